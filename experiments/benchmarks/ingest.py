"""Durable points a second, by `run.step` and by its peers: 20 numbers a step, on disk within a second.

    .venv/bin/python experiments/benchmarks/ingest.py --json experiments/benchmarks/results/ingest.json

The peers of the same run write the same numbers: JSON lines with an fsync every second; SQLite, a row a point, with a
commit every second; MLflow's `log_batch` of 1,000 points into an SQLite file (a 100th of the steps). A writer's time
begins before its first step and ends when its last point is on disk. The writers work in turns, and the best of each
one's rounds counts.
"""

import argparse
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import treering

NAMES = [f"metric_{number:02d}" for number in range(20)]
SYNC_SECONDS = 1.0


def numbers(step: int) -> dict[str, float]:
    """The numbers of a step, each with 17 digits."""
    return {name: step / 7 + place / 3 for place, name in enumerate(NAMES)}


def by_treering(steps: int) -> float:
    """`run.step`, until the attempt's end is on disk."""
    run = treering.start("ingest", config={"time": time.time()})
    started = time.perf_counter()
    for step in range(1, steps + 1):
        run.step(numbers(step))
    run.interrupt("all points are on disk")
    return time.perf_counter() - started


def by_json_lines(steps: int) -> float:
    """A JSON line a step."""
    started = time.perf_counter()
    descriptor = os.open(f"{time.time()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    synced = time.monotonic()
    for step in range(1, steps + 1):
        os.write(descriptor, (json.dumps({"step": step, "time": time.time(), **numbers(step)}) + "\n").encode())
        if time.monotonic() - synced > SYNC_SECONDS:
            os.fsync(descriptor)
            synced = time.monotonic()
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - started


def by_sqlite(steps: int) -> float:
    """A row a point."""
    started = time.perf_counter()
    database = sqlite3.connect(f"{time.time()}.db")
    database.execute("create table points (name text, step integer, time real, value real)")
    committed = time.monotonic()
    for step in range(1, steps + 1):
        at = time.time()
        rows = [(name, step, at, value) for name, value in numbers(step).items()]
        database.executemany("insert into points values (?, ?, ?, ?)", rows)
        if time.monotonic() - committed > SYNC_SECONDS:
            database.commit()
            committed = time.monotonic()
    database.commit()
    database.close()
    return time.perf_counter() - started


def by_mlflow(steps: int) -> float:
    """Batches of 1,000 points."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient("sqlite:///mlflow.db")
    run = client.create_run("0").info.run_id
    started = time.perf_counter()
    for first in range(1, steps + 1, 50):
        batch = [
            Metric(name, value, int(time.time() * 1000), step)
            for step in range(first, min(first + 50, steps + 1))
            for name, value in numbers(step).items()
        ]
        client.log_batch(run, metrics=batch)
    return time.perf_counter() - started


def main() -> None:
    """Measures all writers and prints them beside each other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--steps", type=int, default=100_000, help="steps of each writer but MLflow, which does a 100th"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each writer works")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    out = arguments.json.absolute() if arguments.json else None
    few = max(1, arguments.steps // 100)
    writers: dict[str, tuple[Callable[[int], float], int]] = {
        "treering run.step": (by_treering, arguments.steps),
        "JSON lines": (by_json_lines, arguments.steps),
        "SQLite": (by_sqlite, arguments.steps),
        "mlflow, SQLite": (by_mlflow, few),
    }
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        by_mlflow(1)  # makes the tables
        for _ in range(arguments.rounds):
            for name, (write, steps) in writers.items():
                rate = steps * len(NAMES) / write(steps)
                best[name] = max(best.get(name, 0.0), rate)
        os.chdir("/")
    for name, rate in best.items():
        print(f"{name:<18} {rate / 1e6:8.3f} M points/s  {rate / best['treering run.step']:6.2f} of ours")
    if out:
        out.write_text(json.dumps({"points_a_second": best, "steps": arguments.steps}, indent=2) + "\n")


if __name__ == "__main__":
    main()
