"""Records any command as an attempt of a run: what it prints, the metrics in that, telemetry, and how it ends."""

import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from treering.errors import UserError
from treering.record.printed_metrics import Reader, read_megatron
from treering.record.run import Run
from treering.record.start import start
from treering.redact import redact
from treering.runlog.folders import RunFolder

LOG_FILE: Final = "logs/output.log"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

_log = logging.getLogger(__name__)


def record_command(
    command: Sequence[str],
    experiment: str,
    *,
    config: Any = None,
    reader: Reader = read_megatron,
    folder: Path = Path("runs"),
) -> int:
    """Runs a command, passes on to standard output what it prints, and records it.

    The run is the experiment with the command and its config. The attempt begins with the first step that the command
    prints, which says where the command goes on, or at its end where it prints none.

    Args:
        command: program and arguments.
        experiment: name that groups runs.
        config: settings that the command reads elsewhere, such as those of its config file.
        reader: finds the metrics in a line.
        folder: folder of all runs.

    Returns:
        The exit code of the command, 128 and the number of the signal where one ended it.

    Raises:
        UserError: the command cannot be started.
    """
    settings = {"command": [redact(word) for word in command], "config": config}
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(command, stdout=writing, stderr=subprocess.STDOUT)
    except OSError as error:
        raise UserError(f"record: {command[0]} cannot be started ({error.strerror})") from None
    finally:
        os.close(writing)
    recorder = _Recorder(experiment, settings, command, process.pid, folder)
    with _forwarded(process):
        try:
            for line in _passed_on(reading):
                recorder.take(line, reader)
        except BaseException:
            process.terminate()  # what is not recorded must not go on
            raise
        finally:
            os.close(reading)
        code = process.wait()
    recorder.end(code)
    return code if code >= 0 else 128 - code


def _passed_on(reading: int) -> Iterator[str]:
    """The lines of a pipe, each with its newline; every byte goes to standard output as soon as it comes."""
    rest = b""
    while chunk := os.read(reading, 1 << 16):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (f"{line.decode(errors='replace')}\n" for line in lines)
    if rest:
        yield f"{rest.decode(errors='replace')}\n"


class _Recorder:
    """Begins the attempt when it is known where the command goes on, and keeps what was printed until then."""

    def __init__(
        self, experiment: str, settings: dict[str, Any], command: Sequence[str], process: int, folder: Path
    ) -> None:
        self._experiment = experiment
        self._settings = settings
        self._command = command
        self._process = process
        self._folder = folder
        self._early: list[str] = []
        self._has_warned = False
        self._run: Run | None = None
        self._log: TextIO | None = None

    def take(self, line: str, reader: Reader) -> None:
        """Records a line, and the metrics in it; those of a run that goes wrong are metrics too."""
        found = reader(line)
        if found is not None and found.step < 1:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("step %d is not recorded, since steps count from 1: %s", found.step, redact(line.strip()))
        elif found is not None and not found.evaluated and (self._run is None or found.step > self._run.last_step):
            self._begin(found.step).step(found.metrics, step=found.step)
        elif found is not None and found.evaluated:
            scores = {name: value for name, value in found.metrics.items() if math.isfinite(value)}
            if scores:
                self._begin(found.step + 1).score(found.step, "validation", scores)
        if self._log is None:
            self._early.append(line)
        else:
            self._log.write(redact(line))
            self._log.flush()

    def end(self, code: int) -> None:
        """Ends the attempt by the exit code of the command."""
        run = self._begin(1)
        if self._log is not None:
            self._log.close()
        if code == 0:
            run.finish()
        elif code < 0:
            run.interrupt(f"the command was ended by {signal.Signals(-code).name}")
        else:
            run.fail(f"the command ended with exit code {code}")

    def _begin(self, step: int) -> Run:
        if self._run is None:
            self._run = start(
                self._experiment,
                config=self._settings,
                resume_before=step,
                folder=self._folder,
                command=self._command,
                process=self._process,
                rank=0,
                world_size=1,
            )
            attempt = RunFolder(self._run.path).attempt_folder(self._run.attempt)
            log = attempt / LOG_FILE
            log.parent.mkdir()
            self._log = log.open("a", encoding="utf-8")
            self._log.writelines(redact(line) for line in self._early)
        return self._run


@contextmanager
def _forwarded(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Passes signals on to the command while it runs; Ctrl-C reaches it from the terminal already."""

    def forward(number: int, _frame: object) -> None:
        if number != signal.SIGINT or not os.isatty(0):
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
