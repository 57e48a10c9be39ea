"""What columns cost and what they save: built from a run's rings, then read, beside two peers.

    .venv/bin/python experiments/benchmarks/columns.py --json experiments/benchmarks/results/columns.json

The first run has five metrics and one step whose loss is 42 instead of 2; the fifty runs have twenty metrics each. A
value is a float32, as a loss is that comes from a device. The peers read the same run: its `rings.jsonl` ring by ring,
as without columns, and the same numbers as one plain Parquet file of pyarrow, which verifies nothing. Last come whole
commands on a run of Treering's trainer: the first call builds the columns, the second finds them. All times are of the
processor.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from synthetic_project import write_project

from treering.config.canonical import digest_bytes
from treering.runlog.columns.attempt import COLUMNS, AttemptColumns
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.ring import RINGS_FILE
from treering.runlog.ring_file import COMPRESSED, compress
from treering.runlog.ring_log import RingLog

HEADER = digest_bytes(b"header")
SPIKE = 42.0
CHART = 1000


@dataclass(frozen=True)
class Attempt:
    """The rings of one process start; its header is left out, but for its digest."""

    path: Path
    header_digest: str = HEADER

    @property
    def ring_log(self) -> RingLog[RecordedRing]:
        """The reader of the rings."""
        return RingLog(self.path / RINGS_FILE, RecordedRing)


def write_rings(folder: Path, steps: int, metrics: int, seed: int) -> Attempt:
    """Writes an attempt of `steps` rings; the loss is 2 but for one step."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    prev = HEADER
    names = ["train/loss", *(f"train/metric_{number:02d}" for number in range(1, metrics))]
    with (folder / RINGS_FILE).open("wb") as file:
        for first in range(0, steps, 10_000):
            count = min(10_000, steps - first)
            values = random.normal(0, 1, (count, metrics)).astype(np.float32).astype(np.float64)
            values[:, 0] = 2.0
            for row, numbers in enumerate(values.tolist(), first + 1):
                metric = dict(zip(names, numbers, strict=True))
                if row == steps * 2 // 3:
                    metric["train/loss"] = SPIKE
                ring, line = RecordedRing.sealed(
                    step=row,
                    metrics=metric,
                    samples=None,
                    tokens=None,
                    batch_digest=None,
                    fingerprints=None,
                    ended_at=1.7e9 + row / 4,
                    prev=prev,
                )
                prev = ring.digest
                file.write(f"{line}\n".encode())
    return Attempt(folder)


def best(action: Callable[[], Any], rounds: int) -> float:
    """Lowest processor time of an action, which other work on the machine disturbs least."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def one_run(root: Path, steps: int, rounds: int) -> dict[str, Any]:
    """Builds and reads the columns of one run, beside the peers."""
    attempt = write_rings(root / "one", steps, 5, seed=1)
    columns = AttemptColumns(attempt)
    start = time.process_time()
    head = columns.head()
    build = time.process_time() - start
    points = sum(summary.count for summary in head.metrics.values())
    chart = columns.chart("train/loss", CHART)
    rings = attempt.ring_log.path.read_bytes()
    plain = root / "plain.parquet"
    found = {name: columns.history(name) for name in head.metrics}
    table = {"step": found["train/loss"].steps} | {name: each.values for name, each in found.items()}
    pq.write_table(pa.table(table), plain, compression="zstd")
    found_here = {
        "steps": steps,
        "build_us_a_ring": 1e6 * build / steps,
        "rings_bytes_a_point": len(rings) / points,
        "columns_bytes_a_point": sum(file.stat().st_size for file in (attempt.path / COLUMNS).iterdir()) / points,
        "plain_parquet_bytes_a_point": plain.stat().st_size / points,
        "head_s": best(lambda: AttemptColumns(attempt).head(), rounds),
        "history_s": best(lambda: AttemptColumns(attempt).history("train/loss"), rounds),
        "chart_s": best(lambda: AttemptColumns(attempt).chart("train/loss", CHART), rounds),
        "spike": bool(chart.maximum.max() == SPIKE and chart.max_step[chart.maximum.argmax()] == steps * 2 // 3),
        "history_of_rings_s": best(lambda: read_rings(attempt, "train/loss"), 1),
        "history_of_plain_parquet_s": best(lambda: read_plain(plain, "train/loss"), rounds),
    }
    return found_here | finished(attempt, points)


def finished(attempt: Attempt, points: int) -> dict[str, Any]:
    """What a finished run has on disk, and how fast one of its rings is read; compresses the rings."""
    start = time.process_time()
    compress(attempt.ring_log.path)
    took = time.process_time() - start
    rings, columns = attempt.path / f"{RINGS_FILE}{COMPRESSED}", attempt.path / COLUMNS
    sizes = [sum(file.stat().st_size for file in each) / points for each in ([rings], columns.iterdir())]
    middle = AttemptColumns(attempt).head().last_step // 2
    return {
        "compress_s": took,
        "finished_rings_bytes_a_point": sizes[0],
        "finished_bytes_a_point": sum(sizes),
        "ring_of_compressed_s": best(lambda: AttemptColumns(attempt).ring(middle), 5),
    }


def read_rings(attempt: Attempt, metric: str) -> list[tuple[int, float]]:
    """The peer without columns: every ring is parsed and digested."""
    return [(ring.step, ring.metrics[metric]) for ring in attempt.ring_log.rings(HEADER)]


def read_plain(file: Path, metric: str) -> list[Any]:
    """The peer that verifies nothing: two columns of one file."""
    table = pq.read_table(file, columns=["step", metric])
    return [table[name].to_numpy() for name in ("step", metric)]


def many_runs(root: Path, runs: int, metrics: int, steps: int, rounds: int) -> dict[str, Any]:
    """Reads every series of many runs."""
    first = write_rings(root / "many/0", steps, metrics, seed=2)
    head = AttemptColumns(first).head()
    names = list(head.metrics)
    attempts = [first]
    for number in range(1, runs):
        folder = root / f"many/{number}"
        folder.mkdir()
        os.link(first.ring_log.path, folder / RINGS_FILE)  # the same evidence, columns of its own
        shutil.copytree(first.path / COLUMNS, folder / COLUMNS)
        attempts.append(Attempt(folder))
    return {
        "runs": runs,
        "metrics": metrics,
        "steps": steps,
        "read_s": best(lambda: [AttemptColumns(attempt).histories(names) for attempt in attempts], rounds),
        "heads_s": best(lambda: [AttemptColumns(attempt).head() for attempt in attempts], rounds),
    } | finished(first, sum(summary.count for summary in head.metrics.values()))


def commands(root: Path, steps: int) -> dict[str, Any]:
    """Processor time of whole commands on a run of Treering's trainer: the first builds the columns."""
    resolved = write_project(root / "project", 3000, 10_000_000, steps, 16)
    found: dict[str, Any] = {"steps": steps}
    for name, words in (
        ("runs_first_s", ["runs"]),
        ("runs_s", ["runs"]),
        ("show_s", ["show", resolved.run_id]),
    ):
        before = _children_s()
        subprocess.run(
            [sys.executable, "-m", "treering", *words], cwd=root / "project", check=True, stdout=subprocess.DEVNULL
        )
        found[name] = _children_s() - before
    return found


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the one run")
    parser.add_argument("--many-steps", type=int, default=10_000, help="of each of the fifty runs")
    parser.add_argument("--command-steps", type=int, default=1_000_000, help="of the run that the commands read")
    parser.add_argument("--rounds", type=int, default=5, help="how often each figure is measured; the best counts")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part, measure in (
            ("many", lambda root: many_runs(root, 50, 20, arguments.many_steps, arguments.rounds)),
            ("one", lambda root: one_run(root, arguments.steps, arguments.rounds)),
            ("commands", lambda root: commands(root, arguments.command_steps)),
        ):
            found[part] = measure(Path(folder))
            for name, value in found[part].items():
                shown = value if isinstance(value, bool) else format(value, "10,.4g")
                print(f"{part:<9} {name:<28} {shown}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
