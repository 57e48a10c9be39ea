"""Who can reach the dashboard of `treering up`: the address it listens on, its names, and whether people sign in."""

import ipaddress
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from treering.cli.serving import HOST
from treering.config.settings import read_settings
from treering.errors import ConfigError, UserError
from treering.files import read_text
from treering.project import Project

CALLBACK = "/oauth2callback"
"""Where the identity provider sends people back to, as Streamlit names it."""

_LOCAL_NAMES = ("localhost", HOST)
_PROVIDER = ("client_id", "client_secret", "server_metadata_url")


@dataclass(frozen=True, slots=True)
class Access:
    """Who can reach the dashboard.

    Attributes:
        address: the IP address that it listens on.
        hosts: the host names that it answers to.
        public_url: what people open, None where it is on this machine alone.
        notes: what the person who serves it must know.
    """

    address: str = HOST
    hosts: tuple[str, ...] = _LOCAL_NAMES
    public_url: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether only people on this machine can reach it."""
        return self.hosts == _LOCAL_NAMES


def secrets_file(project: Project) -> Path:
    """Streamlit's file of secrets, whose section `auth` names the identity provider."""
    return project.root.resolve() / ".streamlit" / "secrets.toml"


def access(project: Project, host: str, public_url: str | None, *, insecure: bool) -> Access:
    """Checks who may reach the dashboard before it is started.

    Args:
        project: whose dashboard it is.
        host: name or address to listen on.
        public_url: what people open, where a proxy stands before it.
        insecure: serve others without a sign-in.

    Raises:
        UserError: others could reach it without a sign-in, or a name or URL is wrong.
        ConfigError: the sign-in is not set up whole.
    """
    address = _address(host)
    name = _public_name(public_url) if public_url else host
    if ipaddress.ip_address(address).is_loopback and _is_local(name):
        return Access(address)
    if name in ("0.0.0.0", "::"):  # noqa: S104 - looked for, not listened on
        raise UserError(
            f"--host: found {host}, every address of this machine, expected --public-url with the name that people "
            "open: the dashboard answers to its own names alone"
        )
    notes = []
    file = secrets_file(project)
    auth = _auth_section(file)
    if auth is not None:
        notes.append(_check_sign_in(project, file, auth, public_url))
    elif not insecure:
        raise UserError(
            f"--host: others could reach the dashboard of {name}, and {file} names no identity provider to sign in "
            "by; add its section [auth] (docs/dashboard.md#for-others), or say --insecure: then everyone who reaches "
            "the machine reads corpora, runs and notes"
        )
    else:
        notes.append(f"nobody signs in: everyone who reaches {name} reads corpora, runs and notes")
    if not (public_url or "").startswith("https://"):
        notes.append("without TLS: others on the network can read along; put a proxy with TLS before it")
    return Access(address, (*_LOCAL_NAMES, name), public_url, tuple(notes))


def _address(host: str) -> str:
    """The IP address of a name, IPv4 first.

    Raises:
        UserError: the name has no address.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(
            f"--host: found {host!r}, expected a name or address of this machine: {error.strerror or error}"
        ) from error
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def _public_name(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise UserError(f"--public-url: found {url!r}, expected https://NAME or http://NAME, without a path")
    return parts.hostname


def _is_local(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _auth_section(file: Path) -> Mapping[str, Any] | None:
    if not file.exists():
        return None
    try:
        section = tomllib.loads(read_text(file)).get("auth")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), "auth", "no TOML", f"a TOML file: {error}") from error
    if section is not None and not isinstance(section, dict):
        raise ConfigError(str(file), "auth", type(section).__name__, "a section [auth]")
    return section


def _check_sign_in(project: Project, file: Path, auth: Mapping[str, Any], public_url: str | None) -> str:
    """What the sign-in lets in, in a sentence.

    Raises:
        ConfigError: a field is missing, leads to another address, or nobody would be let in.
    """
    named: list[Mapping[str, Any]] = [value for value in auth.values() if isinstance(value, dict)]
    for provider in named or [auth]:
        for field in _PROVIDER:
            if not provider.get(field):
                raise ConfigError(str(file), f"auth.{field}", "none", "the identity provider's value")
    if not auth.get("cookie_secret"):
        raise ConfigError(str(file), "auth.cookie_secret", "none", "a long random text: `openssl rand -hex 32`")
    redirect = str(auth.get("redirect_uri", ""))
    wanted = f"{public_url.rstrip('/')}{CALLBACK}" if public_url else f"the dashboard's own URL and {CALLBACK}"
    if redirect != wanted if public_url else not redirect.endswith(CALLBACK):
        raise ConfigError(str(file), "auth.redirect_uri", repr(redirect), wanted)
    allowed = read_settings(project).dashboard.allowed
    if not allowed:
        raise ConfigError(
            str(project.settings),
            "dashboard.allowed",
            "nobody",
            "the e-mail addresses of those who may see the dashboard",
        )
    return f"people sign in; let in: {', '.join(allowed)} ({project.settings.name})"
