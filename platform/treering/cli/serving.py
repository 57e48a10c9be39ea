"""Server processes that `treering up` starts, watches and ends: each by its own process group."""

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, TextIO

from treering.errors import TreeringError, UserError
from treering.redact import redact

HOST = "127.0.0.1"
_LAST_LINES_S = 5.0
"""How long the last lines of an ended process may take to reach its log."""


def choose_port(wanted: int | None, default: int, option: str) -> int:
    """The port to serve on: the wanted one, else the default, else any free one.

    Raises:
        UserError: the wanted one is taken.
    """
    if wanted is not None:
        if not _is_free(wanted):
            raise UserError(f"port {wanted} of {HOST} is taken; give another one by {option}, or leave it out")
        return wanted
    return default if _is_free(default) else _any_free_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port that only lingers after its last connection is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


class Guard:
    """Ends services whose owner died without a word (kill -9): a process of its own that notices by a closed pipe.

    Make it before the first service. As a context it ends with its owner's work.
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

    def started(self, process: int) -> None:
        """A service leads this process group."""
        self._tell(f"+{process}\n")

    def ended(self, process: int) -> None:
        """Its process group is gone, the number may be another's soon."""
        self._tell(f"-{process}\n")

    def _tell(self, line: str) -> None:
        with suppress(BrokenPipeError):  # the guard itself was killed; serving goes on without it
            os.write(self._pipe, line.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        os.waitpid(self._process, 0)


def _end_left(reader: int) -> None:
    """Waits for the pipe's end, then ends every process group that is still on the list."""
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
    """Copies lines without the passwords in them, until the source ends."""
    with source, target:
        for line in source:
            with suppress(OSError):  # a full disk must not block the process that prints
                target.write(redact(line))


class Service:
    """One child process in a session of its own, so that Ctrl-C reaches it only through `stop`.

    Args:
        name: for messages.
        command: what to run.
        log: where its output goes without passwords, started anew.
        cwd: its working directory.
        environment: variables on top of ours.
        guard: ends it if this process cannot.
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
            guard.started(self._process.pid)

    def check(self) -> None:
        """Says if the process has ended by itself.

        Raises:
            TreeringError: it has, with the end of its log.
        """
        code = self._process.poll()
        if code is not None:
            self._copier.join(_LAST_LINES_S)
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise TreeringError(f"{self.name} ended with exit code {code}; the end of {self._log}:\n{tail}")

    def wait_until_healthy(self, url: str, timeout_s: float = 120.0) -> None:
        """Returns when `url` answers.

        Raises:
            TreeringError: the process ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.check()
            try:
                with urllib.request.urlopen(url, timeout=2):  # noqa: S310  (a URL of our own making)
                    return
            except OSError:
                time.sleep(0.2)
        raise TreeringError(f"{self.name} did not answer at {url} within {timeout_s:.0f} s; see {self._log}")

    def stop(self) -> None:
        """Ends the process and what it started: asks first, insists after ten seconds."""
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
            self._guard.ended(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
