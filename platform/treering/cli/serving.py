"""Server processes that `treering up` starts, watches and ends: each by its own process group."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from treering.errors import TreeringError, UserError

HOST = "127.0.0.1"


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


class Service:
    """One child process in a session of its own, so that Ctrl-C reaches it only through `stop`.

    Args:
        name: for messages.
        command: what to run.
        log: where its output goes, started anew.
        cwd: its working directory.
        environment: variables on top of ours.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def check(self) -> None:
        """Says if the process has ended by itself.

        Raises:
            TreeringError: it has, with the end of its log.
        """
        code = self._process.poll()
        if code is not None:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
