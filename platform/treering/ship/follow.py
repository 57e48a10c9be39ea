"""The follower: ships runs while they train, outlives their processes, and records how they ended.

Started beside a training in its own session (`treering.ship.launch`), so that the signal that ends the training
does not end the shipping of its last steps. Training never waits for it and does not notice its death; `treering ship`
catches up at any time. Every target has a thread of its own, with its own retries.
"""

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import stamina

from treering.apart import lives, process_of
from treering.ending import run_command
from treering.errors import EvidenceError, StoreError
from treering.files import reason
from treering.project import Project
from treering.runlog.find import AnyRun, named_run, runs_of_any_trainer
from treering.runlog.folders import RunFolder
from treering.ship.target import RunShipper, ShipReport, Target, targets

Report = Callable[[ShipReport], None]

_log = logging.getLogger(__name__)


def ship_once(project: Project, prefix: str | None = None, *, report: Report | None = None) -> list[ShipReport]:
    """Brings every target up to date with every run of a project, or with one.

    Args:
        project: whose runs.
        prefix: beginning of a run's id or its folder, None for all.
        report: called after each run, also after one that was skipped; by one thread at a time.

    Returns:
        A report of each run that was shipped, by target.

    Raises:
        NotFoundError: no such run.
        UserError: a target is named wrongly in the environment; raised after the others were served.
        StoreError: a target does not answer, also not after some retries; raised after the others were served.
        EvidenceError: a run log is damaged, or cannot be read; raised after all other runs were shipped. For one run
            it has the fields of that run's error.
    """
    runs = selected(project, prefix)
    if not runs:
        return []  # no database is made for nothing
    passes = [_Once(target, runs, _by_turns(report)) for target in targets(project)]
    _in_threads([each.run for each in passes])
    skipped = {str(error): error for each in passes for error in each.skipped}
    problems = list(skipped.values())
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise EvidenceError("\n  ".join((f"{len(problems)} runs:", *map(str, problems))))
    return [each for done in passes for each in done.reports]


class _Once:
    """One pass over runs for one target."""

    def __init__(self, target: Target, runs: Sequence[RunFolder], report: Report | None) -> None:
        self._target, self._runs, self._report = target, runs, report
        self.reports: list[ShipReport] = []
        self.skipped: list[EvidenceError] = []

    def run(self) -> None:
        for run in self._runs:
            try:
                done = self._shipped(run)
            except (EvidenceError, OSError) as error:
                if not isinstance(error, EvidenceError):
                    error = EvidenceError(f"{run.path.name}: {error}", file=run.path, found=reason(error))
                self.skipped.append(error)
                done = ShipReport(self._target.name, run.path.name, "skipped", problem=str(error))
            else:
                self.reports += [done] if done else []
            if self._report and done:
                self._report(done)

    def _shipped(self, run: RunFolder) -> ShipReport | None:
        for attempt in stamina.retry_context(on=StoreError, attempts=4, timeout=30.0, wait_initial=0.5, wait_max=5.0):
            with attempt:
                shipper = self._target.shipper(run)
                return shipper.ship() if shipper else None
        return None


def follow(
    project: Project,
    prefix: str | None = None,
    *,
    interval_s: float = 2.0,
    grace_s: float = 30.0,
    patience_s: float = 600.0,
    retry_s: float = 60.0,
    companion: int | None = None,
    report: Report | None = None,
) -> None:
    """Ships repeatedly until nothing trains any more and everything is shipped.

    Args:
        project: whose runs.
        prefix: beginning of a run's id or its folder, None for all, those that start meanwhile included.
        interval_s: seconds between two passes.
        grace_s: how long to wait for a training to start or to start again.
        patience_s: how long to try after the last training has ended, if a target does not answer. While something
            trains, there is no limit.
        retry_s: most seconds between two tries of a target that does not answer; the first ones come sooner.
        companion: id of a process; while it lives, something trains or is about to.
        report: called after each pass that sent something; by one thread at a time.

    Raises:
        NotFoundError: no such run.
        UserError: a target is named wrongly in the environment; raised when the others have ended.
        StoreError: a target did not answer for `patience_s`; `treering ship` catches up later.
    """
    training = _Training(project, prefix, companion)
    pace = _Pace(interval_s, grace_s, patience_s, retry_s)
    _in_threads([_Following(target, training, pace, _by_turns(report)).run for target in targets(project)])


@dataclass(frozen=True, slots=True)
class _Pace:
    """Seconds, see `follow`."""

    interval_s: float
    grace_s: float
    patience_s: float
    retry_s: float


class _Training:
    """Whether something trains, or did until a moment ago."""

    def __init__(self, project: Project, prefix: str | None, companion: int | None) -> None:
        self._project, self._prefix = project, prefix
        self._process = process_of(companion)
        self._last_alive = time.monotonic()

    def runs(self) -> list[AnyRun]:
        return selected(self._project, self._prefix)

    def silent_s(self) -> float:
        """Seconds since something trained."""
        if lives(self._process) or any(run.is_held for run in self.runs()):
            self._last_alive = time.monotonic()
        return time.monotonic() - self._last_alive

    @property
    def has_folder(self) -> bool:
        return self._project.runs.exists()


class _Following:
    """Passes over all runs for one target."""

    def __init__(self, target: Target, training: _Training, pace: _Pace, report: Report | None) -> None:
        self._target, self._training, self._pace, self._report = target, training, pace, report
        self._shippers: dict[Path, RunShipper | None] = {}
        self._logged: dict[Path, str] = {}

    def run(self) -> None:
        while True:
            going_on = self._training.silent_s() < self._pace.grace_s
            for attempt in stamina.retry_context(
                on=self._worth_retrying,
                attempts=None,
                timeout=None,
                wait_initial=min(1.0, self._pace.retry_s),
                wait_max=self._pace.retry_s,
                wait_jitter=min(1.0, self._pace.retry_s),
            ):
                with attempt:
                    for run in self._training.runs():
                        self._ship(run)
            if not going_on:
                return
            time.sleep(self._pace.interval_s)

    def _worth_retrying(self, error: Exception) -> bool:
        if not isinstance(error, StoreError) or not self._training.has_folder:
            return False
        return self._training.silent_s() < max(self._pace.grace_s, self._pace.patience_s)

    def _ship(self, run: RunFolder) -> None:
        """One pass over one run.

        The error of a run log that is damaged or being removed is logged once, and the other runs are shipped all the
        same.
        """
        try:
            if run.path not in self._shippers:
                self._shippers[run.path] = self._target.shipper(run)
            shipper = self._shippers[run.path]
            result = shipper.ship() if shipper else None
        except (EvidenceError, OSError) as error:
            self._shippers.pop(run.path, None)
            if self._logged.get(run.path) != str(error):
                self._logged[run.path] = str(error)
                _log.error("%s: not shipped to %s: %s", run.path.name, self._target.name, error)
            return
        if self._report and result and result.news:
            self._report(result)


def selected(project: Project, prefix: str | None) -> list[AnyRun]:
    """All runs of a project, of other trainers too, or the one that a person names.

    Raises:
        NotFoundError: no such run.
    """
    return runs_of_any_trainer(project.runs) if prefix is None else [named_run(project.runs, prefix)]


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Does each work in a thread, so that none waits for another; the first error is raised when all have ended."""
    errors: list[Exception | None] = [None] * len(works)

    def do(number: int) -> None:
        try:
            works[number]()
        except Exception as error:  # noqa: BLE001 - raised below
            errors[number] = error
            if len(works) > 1:
                _log.error("%s", error)  # the others may go on for long

    threads = [threading.Thread(target=do, args=(number,), daemon=True) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if error is not None:
            raise error


def _by_turns(report: Report | None) -> Report | None:
    if report is None:
        return None

    def one_at_a_time(done: ShipReport) -> None:
        with _reporting:
            report(done)

    return one_at_a_time


_reporting = threading.Lock()


def main(arguments: list[str]) -> int:
    """`python -m treering.ship.follow ROOT [PID]`: follows all runs as long as a process lives, or for ever."""
    os.nice(10)  # a training on the same cores goes first
    root, *companion = arguments
    project = Project(Path(root))
    if companion:
        work = partial(follow, project, grace_s=5.0, companion=int(companion[0]), report=_print)
    else:
        work = partial(follow, project, interval_s=5.0, grace_s=math.inf, report=_print)
    trouble = "shipping cannot read or write: {}; `treering ship` goes on later"
    return run_command(work, trouble=trouble, interrupted="; `treering ship` goes on later")


def _print(result: ShipReport) -> None:
    print(result, flush=True)  # noqa: T201  (into its log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
