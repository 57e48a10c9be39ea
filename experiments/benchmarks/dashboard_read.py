"""What the dashboard reads for its pages, beside peers that read the same numbers of the same runs.

    .venv/bin/python experiments/benchmarks/dashboard_read.py --json experiments/benchmarks/results/dashboard_read.json

One run of another trainer has five metrics and one step whose loss is 42 instead of 2; fifty runs have twenty metrics
each. A page's curves are buckets with minimum, maximum and last value, at most 1,000 for each metric. The peers: the
rings one by one, as the dashboard read them before, and one plain Parquet file of pyarrow, downsampled by the same
code, which verifies nothing. A refresh of a run that grew is measured after a hundred more rings. All times are of the
processor, the best of several.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treering.metrics.lines.read import run_line
from treering.record.run import Run
from treering.record.start import start
from treering.runlog.columns.attempt import COLUMNS
from treering.runlog.columns.rows import Series
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames.buckets import MAX_BUCKETS, Envelope, bucket_starts
from treering_dashboard.frames.recorded import read_recorded

SPIKE = 42.0
LOSS = "train/loss"


def write_run(folder: Path, name: str, steps: int, metrics: int) -> Run:
    """Reports a run, which goes on; the loss is 2 but for one step."""
    random = np.random.default_rng(len(name))
    names = ["loss", *(f"metric_{number:02d}" for number in range(1, metrics))]
    run = start(name, folder=folder)
    for first in range(0, steps, 10_000):
        values = random.normal(0, 1, (min(10_000, steps - first), metrics)).astype(np.float32).astype(np.float64)
        values[:, 0] = 2.0
        for step, row in enumerate(values.tolist(), first + 1):
            if step == steps * 2 // 3:
                row[0] = SPIKE
            run.step(dict(zip(names, row, strict=True)))
    return run


def best(action: Callable[[], Any], rounds: int) -> float:
    """Lowest processor time of an action, which other work on the machine disturbs least."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return min(times)


def charts(run: RecordedRunDirectory, keys: list[str] | None = None) -> dict[str, Envelope]:
    """The curves of a page: of all metrics, or of some."""
    path = read_recorded(RecordedRunDirectory(run.path)).path
    return path.drawn(keys or list(path.metrics)).envelopes


def one_run(root: Path, steps: int, rounds: int) -> dict[str, Any]:
    """The pages of one long run, beside the peers."""
    written = write_run(root / "runs", "one", steps, 5)
    run = RecordedRunDirectory(written.path)
    begin = time.process_time()
    path = read_recorded(run).path
    build = time.process_time() - begin
    loss = charts(run, [LOSS])[LOSS]
    history = path.series(LOSS).values
    plain = root / "plain.parquet"
    pq.write_table(pa.table({"step": path.fact("step"), "loss": history}), plain, compression="zstd")
    found = {
        "steps": steps,
        "build_s": build,
        "spike_in_chart": bool(loss.hi.max() == SPIKE),
        "buckets": len(loss.last),
        "chart_s": best(lambda: charts(run, [LOSS]), rounds),
        "history_s": best(lambda: read_recorded(RecordedRunDirectory(run.path)).path.series(LOSS), rounds),
        "newest_1000_steps_s": best(lambda: newest(run), rounds),
        "line_of_a_list_s": best(lambda: line(run), rounds),
        "chart_of_rings_s": best(lambda: of_rings(run), 1),
        "chart_of_plain_parquet_s": best(lambda: of_plain(plain), rounds),
    }
    for _ in range(100):
        written.step(loss=2.0)
    begin = time.process_time()
    charts(run, [LOSS])
    found["refresh_after_100_steps_s"] = time.process_time() - begin
    written.finish()
    return found


def newest(run: RecordedRunDirectory) -> Envelope:
    """The chart of the newest steps."""
    return read_recorded(RecordedRunDirectory(run.path)).path.last(1000).drawn([LOSS]).envelopes[LOSS]


def line(run: RecordedRunDirectory) -> Any:
    """The run in the list of runs."""
    return run_line(RecordedRunDirectory(run.path))


def of_rings(run: RecordedRunDirectory) -> Envelope:
    """The peer without columns: every ring is parsed and verified."""
    values = np.array([ring.metrics["loss"] for ring in run.attempts()[0].rings()])
    return downsampled(values)


def of_plain(file: Path) -> Envelope:
    """The peer that verifies nothing."""
    return downsampled(pq.read_table(file, columns=["step", "loss"])["loss"].to_numpy())


def downsampled(values: np.ndarray) -> Envelope:
    """The buckets of a whole series."""
    series = Series(values, np.ones(len(values), bool))
    return Envelope.of(series, bucket_starts(np.zeros(len(values), np.int64), MAX_BUCKETS))


def many_runs(root: Path, runs: int, metrics: int, steps: int, rounds: int) -> dict[str, Any]:
    """All curves of many runs, and their lines in the list."""
    written = write_run(root / "runs", "many", steps, metrics)
    written.finish()
    first = RecordedRunDirectory(written.path)
    charts(first)
    found = [first]
    for number in range(1, runs):
        folder = root / "runs" / f"{number:016x}"
        shutil.copytree(first.path, folder, copy_function=os.link)  # the same evidence, columns of its own
        columns = folder / "attempts" / "0001" / COLUMNS
        shutil.rmtree(columns)
        shutil.copytree(first.path / "attempts" / "0001" / COLUMNS, columns)
        found.append(RecordedRunDirectory(folder))
    keys = list(read_recorded(first).path.metrics)[:metrics]
    return {
        "runs": runs,
        "metrics": metrics,
        "steps": steps,
        "charts_s": best(lambda: [charts(run, keys) for run in found], rounds),
        "series_s": best(lambda: [every_series(run, keys) for run in found], rounds),
        "list_s": best(lambda: [line(run) for run in found], rounds),
        "charts_of_rings_s": runs * best(lambda: all_of_rings(first), 1),
    }


def every_series(run: RecordedRunDirectory, keys: list[str]) -> list[Series]:
    """Every value of every metric."""
    return list(read_recorded(RecordedRunDirectory(run.path)).path.all_series(keys).values())


def all_of_rings(run: RecordedRunDirectory) -> list[Envelope]:
    """The peer without columns, of all metrics."""
    rings = list(run.attempts()[0].rings())
    return [downsampled(np.array([ring.metrics[name] for ring in rings])) for name in rings[0].metrics]


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the one run")
    parser.add_argument("--many-steps", type=int, default=10_000, help="of each of the fifty runs")
    parser.add_argument("--rounds", type=int, default=5, help="how often each figure is measured; the best counts")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part, measure in (
            ("many", lambda root: many_runs(root, 50, 20, arguments.many_steps, arguments.rounds)),
            ("one", lambda root: one_run(root, arguments.steps, arguments.rounds)),
        ):
            found[part] = measure(Path(folder) / part)
            for name, value in found[part].items():
                shown = value if isinstance(value, bool) else format(value, "10,.4g")
                print(f"{part:<9} {name:<28} {shown}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
