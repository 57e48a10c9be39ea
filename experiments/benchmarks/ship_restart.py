"""What a shipper that is started again costs, by the length of the run; MLflow is an SQLite file.

    .venv/bin/python experiments/benchmarks/ship_restart.py --json experiments/benchmarks/results/ship_restart.json

A run of Treering's trainer that goes on is shipped once. Then a new shipper makes a pass with nothing new, the same
shipper another one, and a new one after a ring was appended. The peer reads every ring once, as a shipper without
columns must. Times are of the processor, and of the clock where MLflow writes.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from synthetic_project import write_project

from treering.project import Project
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.folders import END_FILE
from treering.runlog.lock import acquire
from treering.runlog.ring import Ring
from treering.ship.shipper import MlflowShipper
from treering.store.registry import Registry


def timed(action: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> tuple[float, Any]:
    """Seconds of an action, and what it returns."""
    start = clock()
    found = action()
    return clock() - start, found


def append_ring(run: RunDirectory) -> None:
    """Appends a ring like the last one."""
    attempt = run.attempts()[-1]
    last = attempt.ring_log.newest(1)[0]
    values = {each.name: getattr(last, each.name) for each in fields(Ring) if each.name != "digest"}
    _, line = Ring.sealed(**values | {"step": last.step + 1, "prev": last.digest, "ended_at": last.ended_at + 1})
    with attempt.ring_log.path.open("ab") as file:
        file.write(f"{line}\n".encode())


def measure(root: Path, steps: int) -> dict[str, Any]:
    """The figures of a run of so many steps."""
    resolved = write_project(root, 3000, 10_000_000, steps, 16)
    run = RunDirectory(Project(root).run(resolved.run_id))
    registry = Registry(f"sqlite:///{root / 'mlflow.db'}")
    attempt = run.attempts()[-1]
    (attempt.path / END_FILE).unlink(missing_ok=True)
    lock = acquire(run.lock)  # the run goes on
    columns_s, _ = timed(lambda: AttemptColumns(attempt).head())
    first_s, report = timed(lambda: MlflowShipper(run, registry).ship(), time.monotonic)
    image = registry.image(registry.get_run(report.stored_as))
    shipper = MlflowShipper(RunDirectory(run.path), registry)
    restart_s, again = timed(shipper.ship)
    nothing_s, _ = timed(shipper.ship)
    append_ring(run)
    one_s, one = timed(lambda: MlflowShipper(RunDirectory(run.path), registry).ship())
    rings_s, _ = timed(lambda: sum(1 for _ in attempt.rings()))
    os.close(lock)
    return {
        "steps": steps,
        "columns_first_s": columns_s,
        "first_ship_wall_s": first_s,
        "points": sum(len(points) for points in image.points.values()),
        "most_points_of_a_metric": max(len(points) for points in image.points.values()),
        "database_bytes": (root / "mlflow.db").stat().st_size,
        "restart_s": restart_s,
        "restart_sent": again.sent,
        "restart_with_a_new_ring_s": one_s,
        "new_ring_sent": one.sent,
        "nothing_new_s": nothing_s,
        "read_every_ring_once_s": rings_s,
    }


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 100_000, 1_000_000], help="of each run")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    found = []
    for steps in arguments.steps:
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder) / "project", steps))
        for name, value in found[-1].items():
            print(f"{steps:>9,} {name:<28} {value if isinstance(value, dict) else format(value, '12.4g')}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
