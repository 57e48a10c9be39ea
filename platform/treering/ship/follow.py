"""The follower: ships runs while they train, outlives their processes, and records how they ended.

Started beside a training in its own session (`treering.ship.launch`), so that the signal that ends the training
does not end the shipping of its last steps. Training never waits for it and does not notice its death; `treering ship`
catches up at any time.
"""

import logging
import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import stamina

from treering.ending import run_command
from treering.errors import EvidenceError, StoreError
from treering.files import reason
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_run, find_runs
from treering.runlog.lock import is_held
from treering.ship.shipper import RunShipper, ShipReport
from treering.store.registry import Registry, default_uri

Report = Callable[[ShipReport], None]

_log = logging.getLogger(__name__)


def ship_once(project: Project, prefix: str | None = None, *, report: Report | None = None) -> list[ShipReport]:
    """Brings the registry up to date with every run of a project, or with one.

    Args:
        project: whose runs.
        prefix: beginning of a run's id or its folder, None for all.
        report: called after each run, also after one that was skipped.

    Returns:
        A report of each run that was shipped.

    Raises:
        NotFoundError: no such run.
        StoreError: the registry does not answer, also not after some retries.
        EvidenceError: a run log is damaged, or cannot be read; raised after all other runs were shipped. For one run
            it has the fields of that run's error.
    """
    runs = _selected(project, prefix)
    if not runs:
        return []  # no database is made for nothing
    registry = _open(default_uri(project))
    reports: list[ShipReport] = []
    skipped: list[EvidenceError] = []
    for run in runs:
        try:
            shipper = RunShipper(run, registry)
            for attempt in stamina.retry_context(
                on=StoreError, attempts=4, timeout=30.0, wait_initial=0.5, wait_max=5.0
            ):
                with attempt:
                    reports.append(shipper.ship())
        except (EvidenceError, OSError) as error:
            if not isinstance(error, EvidenceError):
                error = EvidenceError(f"{run.path.name}: {error}", file=run.path, found=reason(error))
            skipped.append(error)
            if report:
                problem = str(error)
                report(ShipReport(run.path.name, None, 0, 0, 0, abandoned=False, state="skipped", problem=problem))
            continue
        if report:
            report(reports[-1])
    if len(skipped) == 1:
        raise skipped[0]
    if skipped:
        raise EvidenceError("\n  ".join((f"{len(skipped)} runs:", *map(str, skipped))))
    return reports


def follow(
    project: Project,
    prefix: str | None = None,
    *,
    interval_s: float = 2.0,
    grace_s: float = 30.0,
    patience_s: float = 600.0,
    companion: int | None = None,
    report: Report | None = None,
) -> None:
    """Ships repeatedly until nothing trains any more and everything is shipped.

    Args:
        project: whose runs.
        prefix: beginning of a run's id or its folder, None for all, those that start meanwhile included.
        interval_s: seconds between two passes.
        grace_s: how long to wait for a training to start or to start again.
        patience_s: how long to try after the last training has ended, if the registry does not answer. While something
            trains, there is no limit.
        companion: id of a process; while it lives, something trains or is about to.
        report: called after each pass that sent something.

    Raises:
        NotFoundError: no such run.
        StoreError: the registry did not answer for `patience_s`; `treering ship` catches up later.
    """
    shippers: dict[Path, RunShipper] = {}
    logged: dict[Path, str] = {}
    process = _process(companion)
    last_alive = time.monotonic()

    def alive() -> bool:
        nonlocal last_alive
        if _lives(process) or any(is_held(run.lock) for run in _selected(project, prefix)):
            last_alive = time.monotonic()
        return time.monotonic() - last_alive < grace_s

    def worth_retrying(error: Exception) -> bool:
        wanted = project.runs.exists() and (alive() or time.monotonic() - last_alive < patience_s)
        return isinstance(error, StoreError) and wanted

    registry: Registry | None = None
    while True:
        going_on = alive()
        for attempt in stamina.retry_context(
            on=worth_retrying, attempts=None, timeout=None, wait_initial=1.0, wait_max=60.0, wait_jitter=1.0
        ):
            with attempt:
                for run in _selected(project, prefix):
                    registry = registry or Registry(default_uri(project))
                    _ship_one(run, registry, shippers, logged, report)
        if not going_on:
            return
        time.sleep(interval_s)


def _ship_one(
    run: RunDirectory,
    registry: Registry,
    shippers: dict[Path, RunShipper],
    logged: dict[Path, str],
    report: Report | None,
) -> None:
    """One pass over one run.

    The error of a run log that is damaged or being removed is logged once, and the other runs are shipped all the same.
    """
    try:
        if run.path not in shippers:
            shippers[run.path] = RunShipper(run, registry)
        result = shippers[run.path].ship()
    except (EvidenceError, OSError) as error:
        shippers.pop(run.path, None)
        if logged.get(run.path) != str(error):
            logged[run.path] = str(error)
            _log.error("%s: not shipped: %s", run.path.name, error)
        return
    if report and result.news:
        report(result)


def _open(uri: str) -> Registry:
    for attempt in stamina.retry_context(on=StoreError, attempts=4, timeout=30.0, wait_initial=0.5, wait_max=5.0):
        with attempt:
            registry = Registry(uri)
    return registry


def _selected(project: Project, prefix: str | None) -> list[RunDirectory]:
    return find_runs(project.runs) if prefix is None else [find_run(project.runs, prefix)]


def _process(number: int | None) -> psutil.Process | None:
    try:
        return None if number is None else psutil.Process(number)
    except psutil.NoSuchProcess:
        return None


def _lives(process: psutil.Process | None) -> bool:
    try:
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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
