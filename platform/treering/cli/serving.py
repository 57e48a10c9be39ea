"""Server processes that `treering up` starts, watches and ends, each in its own process group.

honcho is not used: it starts all processes at once, waits for none to answer, and ends all when any ends. Passwords in
logs, and servers whose owner was killed by SIGKILL, would still need the code below.
"""

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self, TextIO

from treering.errors import TreeringError, UserError
from treering.redact import redact

HOST = "127.0.0.1"
_LAST_LINES_S = 5.0
"""Seconds to wait until the last lines of an ended process are in its log."""


def choose_port(wanted: int | None, default: int, option: str, address: str = HOST) -> int:
    """Chooses a port of an address: the wanted port, or the default port, or any free port.

    Raises:
        UserError: the wanted port is taken.
    """
    if wanted is not None:
        if not _is_free(wanted, address):
            raise UserError(
                f"{option}: found port {wanted} of {address} taken, expected a free port; leave {option} out to get one"
            )
        return wanted
    return default if _is_free(default, address) else _any_free_port(address)


def _is_free(port: int, address: str) -> bool:
    with _socket(address) as probe:
        # As servers do: a port whose last connection is only waiting to time out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _any_free_port(address: str) -> int:
    with _socket(address) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port


def _socket(address: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)


class Guard:
    """A process that ends the services if their owner was killed (kill -9), which it sees by a closed pipe.

    Make the guard before the first service. As a context manager, it ends with the `with` block.
    """

    def __init__(self) -> None:
        reader, self._pipe = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            try:
                os.close(self._pipe)
                os.setsid()
                for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(sign, signal.SIG_IGN)
                devnull = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(devnull, stream)
                _end_left(reader)
            finally:
                os._exit(0)
        os.close(reader)

    def add(self, group: int) -> None:
        """Adds the process group of a started service."""
        self._send(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Removes the process group of an ended service: another process may get its number."""
        self._send(f"-{group}\n")

    def _send(self, line: str) -> None:
        with suppress(BrokenPipeError):  # the guard itself was killed; the services continue without it
            os.write(self._pipe, line.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        os.waitpid(self._process, 0)


def _end_left(reader: int) -> None:
    """Waits until the pipe is closed, then ends every process group that was added and not removed."""
    left: set[int] = set()
    with os.fdopen(reader) as lines:
        for line in lines:
            (left.add if line[0] == "+" else left.discard)(int(line[1:]))
    for sign, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 0.0)):
        for group in left:
            with suppress(ProcessLookupError):
                os.killpg(group, sign)
        time.sleep(patience_s if left else 0.0)


def _copy(source: TextIO, target: TextIO) -> None:
    """Copies lines without their passwords until the source ends."""
    with source, target:
        for line in source:
            with suppress(OSError):  # a full disk must not block the process that prints
                target.write(redact(line))


class Services:
    """The services of one command: ended in reverse order at the end of the `with` block.

    Args:
        root: the project; the logs are in its `.treering/up/`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._guard = Guard()
        self._servers: list[Service] = []
        self._all = ExitStack()

    def start(
        self, name: str, command: Sequence[str], *, health: str = "", environment: Mapping[str, str] | None = None
    ) -> "Service":
        """Starts a service, and waits until it answers.

        Args:
            name: its name in messages, and of its log.
            command: the program and its arguments.
            health: the URL that a server answers; without it, the service is not a server.
            environment: variables in addition to ours.

        Raises:
            TreeringError: the server ended, or it did not answer in time.
        """
        log = self._root / ".treering" / "up" / f"{name}.log"
        service = Service(name, command, log=log, cwd=self._root, environment=environment, guard=self._guard)
        self._all.enter_context(service)
        if health:
            service.wait_until_healthy(health)
            self._servers.append(service)
        return service

    def check(self) -> None:
        """Checks that every server still runs.

        Raises:
            TreeringError: a server ended by itself.
        """
        for server in self._servers:
            server.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._guard, self._all:
            pass


class Service:
    """A child process in its own session, so that Ctrl-C reaches the child only through `stop`.

    Args:
        name: its name in messages.
        command: the program and its arguments.
        log: the file for its output without passwords; an earlier file is replaced.
        cwd: its working directory.
        environment: variables in addition to ours.
        guard: ends the child if this process is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.name = name
        self._guard = guard
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            text=True,
            errors="replace",
        )
        output = log.open("w", encoding="utf-8", buffering=1)
        self._copier = threading.Thread(target=_copy, args=(self._process.stdout, output), daemon=True)
        self._copier.start()
        if guard:
            guard.add(self._process.pid)

    def check(self) -> None:
        """Checks that the process still runs.

        Raises:
            TreeringError: the process ended by itself; the text has the end of its log.
        """
        code = self._process.poll()
        if code is not None:
            self._copier.join(_LAST_LINES_S)
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise TreeringError(f"{self.name} ended with exit code {code}; the end of {self._log}:\n{tail}")

    def wait_until_healthy(self, url: str, timeout_s: float = 120.0) -> None:
        """Waits until `url` answers.

        Raises:
            TreeringError: the process ended, or it did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.check()
            try:
                with urllib.request.urlopen(url, timeout=2):  # noqa: S310  (a URL that we made)
                    return
            except OSError:
                time.sleep(0.2)
        raise TreeringError(f"{self.name} did not answer at {url} within {timeout_s:.0f} s; see {self._log}")

    def stop(self) -> None:
        """Ends the process and the processes that it started: by SIGTERM, and by SIGKILL after ten seconds."""
        for sign, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            try:
                os.killpg(self._process.pid, sign)
            except ProcessLookupError:
                break
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
        self._process.poll()
        self._copier.join(_LAST_LINES_S)
        if self._guard:
            self._guard.remove(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
