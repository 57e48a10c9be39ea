"""What reporting a step costs the training thread: 20 numbers a step, by `run.step` and by its peers.

    .venv/bin/python experiments/benchmarks/record_step.py --steps 20000

The peers of the same run write the same numbers: JSON lines with an fsync at every step, JSON lines with an fsync at
every 50th step, and MLflow into an SQLite file (a call a step, of fewer steps). Times are those of the calling thread,
from call to return, in turns of 500 steps.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import treering

NUMBERS = {f"metric_{number:02d}": 1.2345678 * (number + 1) / 7 for number in range(20)}
TURN = 500


def treering_step() -> Callable[[int], None]:
    """Reports by `run.step`."""
    run = treering.start("benchmark", config={"time": time.time()})
    return lambda _step: run.step(NUMBERS)


def json_lines(every: int) -> Callable[[int], None]:
    """Writes a JSON line a step, with an fsync at every so many steps."""
    descriptor = os.open(f"every-{every}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(step: int) -> None:
        os.write(descriptor, (json.dumps({"step": step, "time": time.time(), **NUMBERS}) + "\n").encode())
        if step % every == 0:
            os.fsync(descriptor)

    return write


def mlflow_step() -> Callable[[int], None]:
    """Logs by MLflow's own call, into an SQLite file."""
    import mlflow

    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("benchmark")
    mlflow.start_run()
    return lambda step: mlflow.log_metrics(NUMBERS, step=step)


def measure(writers: dict[str, tuple[Callable[[int], None], int]]) -> dict[str, dict[str, float]]:
    """Microseconds a step, mean and 99th percentile, of each writer.

    Args:
        writers: by name; how many steps each does.
    """
    times: dict[str, list[float]] = {name: [] for name in writers}
    done = dict.fromkeys(writers, 0)
    while any(done[name] < steps for name, (_write, steps) in writers.items()):
        for name, (write, steps) in writers.items():
            for step in range(done[name] + 1, min(done[name] + TURN, steps) + 1):
                started = time.perf_counter()
                write(step)
                times[name].append(time.perf_counter() - started)
            done[name] = min(done[name] + TURN, steps)
    return {
        name: {"mean_us": float(np.mean(each)) * 1e6, "p99_us": float(np.percentile(each, 99)) * 1e6}
        for name, each in times.items()
    }


def main() -> None:
    """Measures all writers and prints them beside each other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each writer but MLflow, which does a 100th")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    out = arguments.json.absolute() if arguments.json else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = measure(
            {
                "treering run.step": (treering_step(), arguments.steps),
                "JSON, fsync each step": (json_lines(1), arguments.steps),
                "JSON, fsync each 50": (json_lines(50), arguments.steps),
                "mlflow, SQLite": (mlflow_step(), max(1, arguments.steps // 100)),
            }
        )
        os.chdir("/")
    own = found["treering run.step"]["mean_us"]
    for name, each in found.items():
        ratio = each["mean_us"] / own
        print(f"{name:<22} mean {each['mean_us']:9.1f} µs  p99 {each['p99_us']:9.1f} µs  {ratio:8.2f} of ours")
    if out:
        out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
