"""Trains the runs of a sweep one after another: `python -m treering_trainer.launch.sweep SWEEP`.

    grid -> plan -> for each run that is not finished: a process that trains it as `treering train` would

`treering train --sweep` runs this. A run that refuses or fails (exit 2, 3, 5) does not hold up the next one. A run that
was stopped or killed ends the sweep: the same command goes on there. Each run gets the signals that this process gets.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# Before numpy and torch start their threads: a process with threads must not fork.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from treering.config.canonical import canonical_json
from treering.config.duration import parse_duration
from treering.ending import EXIT_INTERRUPTED, EXIT_RESTART, heeded, run_command
from treering.errors import TrainingError
from treering.foreign import say
from treering.launch.sweep import SweepPlan, SweepRun, plan_sweep
from treering.project import Project
from treering_trainer.launch import __main__ as launch
from treering_trainer.launch.prepare import import_quietly
from treering_trainer.monitor.processes import STOP_SIGNALS, fork


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and trains.

    Returns:
        0 all runs are finished; 2, 3 or 5 what the first run that failed returned; 75 start again, 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="treering train --sweep", description="Train the runs of a sweep.")
    parser.add_argument("sweep", type=Path, help="the sweep's YAML file")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--continue-changed", action="store_true")
    parser.add_argument("--time-limit", type=parse_duration, default=None, metavar="TIME")
    parser.add_argument("--runs", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _train(plan_sweep(options.sweep, Project(Path.cwd()), options.overrides, options.runs), options),
        trouble="training cannot read or write: {}; then start it again",
        trouble_code=TrainingError.exit_code,
    )


def _train(plan: SweepPlan, options: argparse.Namespace) -> int:
    deadline = None if options.time_limit is None else time.monotonic() + options.time_limit
    if plan.left:
        _import_trainer()
    codes: dict[str, int] = {}
    with _Signals() as signals:
        for number, run in enumerate(plan.runs, start=1):
            if run.finished:
                continue
            if signals.stop is not None:
                break
            say(f"sweep: run {number} of {len(plan.runs)}: {run.words} ({run.resolved.run_id[:8]})")
            code = signals.wait_for(run, _words(plan, run, options, deadline))
            codes[run.resolved.run_id] = code
            if code not in {0, 2, 3, 5}:
                break
    failed = [code for code in codes.values() if code]
    stopped = {EXIT_RESTART, EXIT_INTERRUPTED} & set(failed)
    if signals.stop is not None and not stopped:
        stopped = {EXIT_INTERRUPTED if signals.stop == signal.SIGINT else EXIT_RESTART}
    _report(plan, codes, json_wanted=options.json)
    return next(iter(stopped or failed), 0)


def _words(plan: SweepPlan, run: SweepRun, options: argparse.Namespace, deadline: float | None) -> list[str]:
    """The command line of a run's training."""
    left = None if deadline is None else max(1, round(deadline - time.monotonic()))
    return [
        "--no-publish",
        *(f"--set={override}" for override in run.overrides),
        *(["--continue-changed"] if options.continue_changed else []),
        *([] if left is None else [f"--time-limit={left}"]),
        *([f"--runs={options.runs}"] if options.runs is not None else []),
        "--",
        str(plan.experiment),
    ]


def _import_trainer() -> None:
    """Imports once what every run needs, where runs are forked: a process with GPUs starts interpreters instead."""
    from treering_trainer.launch.devices import find_hardware, set_accelerator  # noqa: PLC0415 - takes seconds

    device = find_hardware().device
    if device != "cuda":
        set_accelerator(device)
        import_quietly("treering_trainer.launch.worker")


class _Signals:
    """Passes the signals that end a training on to the run that trains, which is in a session of its own.

    Attributes:
        stop: the first of the signals, None before.
    """

    def __init__(self) -> None:
        self.stop: int | None = None
        self._running: int | None = None

    def __enter__(self) -> "_Signals":
        self._previous = {number: signal.signal(number, self._pass_on) for number in heeded(*STOP_SIGNALS)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def wait_for(self, run: SweepRun, words: list[str]) -> int:
        """Trains a run in a process of its own; returns its exit code, 75 where a signal killed the process."""

        def train() -> int:
            os.setsid()  # a Ctrl-C reaches it once, through `_pass_on`
            for number, handler in self._previous.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            return launch.main(words)

        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # until it is known whom to pass them on to
        self._running = fork(train)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        code = os.waitstatus_to_exitcode(os.waitpid(self._running, 0)[1])
        self._running = None
        if code < 0:
            say(f"sweep: the training of run {run.resolved.run_id} was killed by signal {-code}")
        return EXIT_RESTART if code < 0 else code

    def _pass_on(self, number: int, _frame: object) -> None:
        self.stop = self.stop or number
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.kill(self._running, number)


def _report(plan: SweepPlan, codes: dict[str, int], *, json_wanted: bool) -> None:
    """Prints what became of the runs, and how to compare them."""
    rows = []
    for run in plan.runs:
        name = run.resolved.run_id
        code = 0 if run.finished else codes.get(name)
        rows.append({**run.to_json(), "state": "finished" if code == 0 else run.state, "exit_code": code})
    if json_wanted:
        say(canonical_json({"runs": rows}), sys.stdout)
        return
    names = [run.resolved.run_id[:8] for run in plan.runs]
    finished = sum(row["exit_code"] == 0 for row in rows)
    say(f"sweep: {finished} of {len(rows)} runs are finished")
    for row, run in zip(rows, plan.runs, strict=True):
        if row["exit_code"]:
            say(f"  {run.words} ({row['run'][:8]}): exit code {row['exit_code']}")
    if finished < len(rows):
        say("  the same command trains the others")
    if finished > 1:
        say(f"  compare them: treering compare {' '.join(names)}")


if __name__ == "__main__":
    sys.exit(main())
