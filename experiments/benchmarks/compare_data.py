"""Where the data of two long runs differ: by the fields of all rings at once, and ring by ring.

    .venv/bin/python experiments/benchmarks/compare_data.py --json experiments/benchmarks/results/compare_data.json

The second run is a copy of the first, whose last step alone read another batch. "First" is without columns, as after a
copy of a run from elsewhere; then the columns exist. The peer walks both paths ring by ring. All times are of the
processor.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from synthetic_project import write_project

from treering.metrics.same_data import compare_data
from treering.project import Project
from treering.reproduce.difference import compare_runs
from treering.runlog.columns.attempt import COLUMNS
from treering.runlog.columns.fed import fed_of
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring

OTHER = "sha256:" + "0" * 64


def two_runs(root: Path, steps: int) -> tuple[RunDirectory, RunDirectory]:
    """Writes both runs, each in a project of its own."""
    resolved = write_project(root / "a", 2000, 40_000_000, steps, 16)
    shutil.copytree(root / "a/runs", root / "b/runs")
    first, second = (RunDirectory(Project(root / name).run(resolved.run_id)) for name in "ab")
    log = second.attempts()[0].ring_log
    last = log.newest(1)[0]
    values = {each.name: getattr(last, each.name) for each in fields(Ring) if each.name != "digest"}
    _, line = Ring.sealed(**values | {"batch_digest": OTHER})
    with log.path.open("r+b") as file:
        file.truncate(log.path.stat().st_size - len(last.to_line().encode()) - 1)
        file.seek(0, 2)
        file.write(f"{line}\n".encode())
    return first, second


def spent(action: Callable[[], Any], expected: int) -> float:
    """Processor time of a comparison.

    Raises:
        SystemExit: it did not find the step.
    """
    begin = time.process_time()
    found = action()
    took = time.process_time() - begin
    if found != expected:
        raise SystemExit(f"found step {found}, expected {expected}")
    return round(took, 3)


def in_bulk(first: RunDirectory, second: RunDirectory) -> int | None:
    """The first step that differs, by the fields of all rings."""
    found = compare_data(fed_of(first), fed_of(second)).first
    return None if found is None else found.step


def whole(first: RunDirectory, second: RunDirectory) -> int | None:
    """The same by `treering diff-runs`, which compares the numbers, code and environment too."""
    return compare_runs(first, second).first_step


def one_by_one(first: RunDirectory, second: RunDirectory) -> int | None:
    """The same, ring by ring."""
    pairs = zip(first.path_rings(), second.path_rings(), strict=True)
    return next((a.step for a, b in pairs if a.batch_digest != b.batch_digest), None)


def measured(steps: int) -> dict[str, Any]:
    """All times for runs of one length."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = two_runs(Path(folder), steps)
        for run in (first, second):
            shutil.rmtree(run.attempts()[0].path / COLUMNS, ignore_errors=True)
        return {
            "steps": steps,
            "first_s": spent(lambda: in_bulk(first, second), steps),
            "next_s": min(spent(lambda: in_bulk(first, second), steps) for _ in range(3)),
            "diff_runs_s": min(spent(lambda: whole(first, second), steps) for _ in range(3)),
            "ring_by_ring_s": spent(lambda: one_by_one(first, second), steps),
        }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    found = [measured(steps) for steps in options.steps]
    for each in found:
        print(each)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
