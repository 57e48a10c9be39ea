"""Hides passwords and tokens in text that people or files will see: the one place that knows how a secret looks.

Hidden are those in a URI, in its parameters, in assignments, and the values of `MLFLOW_TRACKING_PASSWORD`,
`MLFLOW_TRACKING_TOKEN`, the keys of AWS and `PGPASSWORD` anywhere. A password shorter than four characters is hidden
only inside URIs.
"""

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO
from urllib.parse import quote, unquote

HIDDEN: Final = "***"

_NAMES_IN_TET: Final = r"[\w.-]*(?:password|passwd|passphrase|pwd|secret|secret_access_key|session_token)(?![\w.-])"
_NAMES_IN_URIS: Final = (
    r"[\w.-]*(?:pass(?:word|wd|phrase)|pwd|token|secret|signature|credentials?|api_?key|access_?key)(?![\w.-])"
)
_SECRET_NAME: Final = re.compile(rf"(?i){_NAMES_IN_URIS}")
_USER_INFO: Final = re.compile(
    # A password may hold anything but blanks and quotes, even an `@` or `/` that should have been escaped.
    r"(?<![A-Za-z0-9+.-])(?P<scheme>[0-9+.-]*+[A-Za-z][A-Za-z0-9+.-]*+://)"
    r"(?P<user>[^\s/?#:@'\"<>]*)(?P<password>:[^\s@'\"<>]*)?@(?:[^\s/?#@'\"<>]*@)*"
)
_TOKEN: Final = re.compile(r"[^\s'\"<>]+")
"""What user information cannot go beyond: up to its last `@` every search ends at the next one, so time is linear."""
_SENTENCE_GOES_ON: Final = r"[:.,)\]}]+(?=\s|$)"
"""Punctuation after a secret that belongs to the sentence around it, as in `?token=SECRET: connection refused`."""
_PARAMETER: Final = re.compile(
    rf"(?i)(?P<name>[?&;]{_NAMES_IN_URIS}=)(?:(?!{_SENTENCE_GOES_ON})[:.,)\]}}]++|[^&;\s'\"<>#:.,)\]}}])*"
)
_ASSIGNMENT: Final = re.compile(
    rf"(?i)(?P<name>(?<![\w.-]){_NAMES_IN_TET}['\"]?\s*[=:]\s*)"
    rf"(?P<value>'[^']*'|\"[^\"]*\"|(?:(?!{_SENTENCE_GOES_ON})[:.]++|[^\s,;&)\]}}'\":.])+)"
)
_URI_VARIABLES: Final = (
    "MLFLOW_TRACKING_URI",
    "MLFLOW_BACKEND_STORE_URI",
    "TREERING_DATABASE_URL",
    "TREERING_STORE_URL",
)
_SECRET_VARIABLES: Final = (
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "DATABRICKS_TOKEN",
    "PGPASSWORD",
)
_NO_LETTERS: Final = "0123456789+.-"
"""What may stand before the letter that a scheme begins with."""
_SHORTEST: Final = 4
"""A shorter secret is hidden where it is part of a URI, and not wherever its letters occur."""


def redact(text: str) -> str:
    """The text with every secret replaced by `***`.

    Hides the user information of a URI (a user name before a password stays, as SQLAlchemy does it), parameters and
    assignments whose name says password, token, secret or key, and wherever they occur the values of the environment's
    own secrets: those of MLflow, of AWS and of PostgreSQL, and the passwords in the URIs of MLflow and of the database.

    Args:
        text: for a message, a log, a page, or a record.
    """
    for secret in _known_secrets():
        # As a word: the password `postgres` hides no `postgresql`.
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    text = _change_user_info(_hide_user_info, text)
    text = _PARAMETER.sub(rf"\g<name>{HIDDEN}", text)
    return _ASSIGNMENT.sub(_hide_value, text)


def redact_variable(name: str, value: str) -> str:
    """An environment variable's value for a record: hidden where the name says that it is a secret."""
    return HIDDEN if _SECRET_NAME.fullmatch(name) else redact(value)


class RedactingStream:
    """A text stream that hides secrets in everything that is written to it, a library's log and traceback as well.

    Args:
        stream: where the text goes; everything but `write` is the stream's own.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes the text without its secrets."""
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each text without its secrets."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def without_user_info(uri: str) -> str:
    """A URI without user name and password, as a link that anybody may see."""
    return _change_user_info(lambda match: match["scheme"], uri)


def _change_user_info(change: Callable[[re.Match[str]], str], text: str) -> str:
    def changed(token: re.Match[str]) -> str:
        before, at, after = token[0].rpartition("@")
        return _USER_INFO.sub(change, before + at) + after

    return _TOKEN.sub(changed, text)


def _hide_user_info(match: re.Match[str]) -> str:
    scheme, user, password = match["scheme"], match["user"], match["password"]
    if password is not None:
        return f"{scheme}{user}:{HIDDEN}@"
    # A name alone is a token where it is sent by HTTP, as Git hosts take it; elsewhere it is a user.
    return f"{scheme}{HIDDEN if scheme.lower().lstrip(_NO_LETTERS).startswith(('http', 'git')) else user}@"


def _hide_value(match: re.Match[str]) -> str:
    value = match["value"]
    mark = value[0] if value[0] in "'\"" else ""
    return f"{match['name']}{mark}{HIDDEN}{mark}"


def _known_secrets() -> list[str]:
    """The environment's secrets in every spelling that a URI or a message may have, longest first."""
    found = {os.environ.get(name, "") for name in _SECRET_VARIABLES}
    for name in _URI_VARIABLES:
        uri = os.environ.get(name, "")
        scheme, _, rest = uri.partition("://")
        user, colon, password = rest.rpartition("@")[0].partition(":")
        found.add(password if colon else user if scheme.startswith("http") else "")
        found.update(match[0].partition("=")[2] for match in _PARAMETER.finditer(uri))
    spelled = {form for secret in found for form in (secret, unquote(secret), quote(unquote(secret), safe=""))}
    return sorted((each for each in spelled if len(each) >= _SHORTEST), key=len, reverse=True)
