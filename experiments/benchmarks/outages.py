"""What an outage of MLflow, PostgreSQL or S3 costs a training: the time of its steps, beside one that nobody ships.

    .venv/bin/python experiments/benchmarks/outages.py --json experiments/benchmarks/results/outages.json

A loop reports its steps by `treering.start`, in a process of its own with one BLAS thread, and a follower ships it from
another to a real MLflow server, a ledger in a real PostgreSQL and a real S3 server, through proxies that make the
trouble of one of them. `locked`:
another connection holds MLflow's SQLite database. `hung`: the server takes connections and is silent. The follower has
the lower priority, as always. Rounds of all kinds alternate; figures are medians over the rounds, and ratios to a
training without a follower. In the end the trouble is over, and everything must have arrived.
"""

import argparse
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from troubled_server import TroubledServer

from treering.project import Project
from treering.record.start import start
from treering.runlog.find import find_recorded_runs
from treering.ship.follow import ship_once
from treering.ship.target import Projection, targets

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from faulty_proxy import FaultyProxy
from postgresql_server import create_database, postgresql_server
from s3_server import S3Server

KINDS = (
    *("no follower", "none", "mlflow slow", "mlflow error", "mlflow down", "mlflow locked"),
    *("postgresql slow", "postgresql down", "postgresql hung", "s3 slow", "s3 500", "s3 down", "s3 hung"),
)


@contextmanager
def mlflow_server(folder: Path) -> Iterator[int]:
    """A real server over an SQLite file; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}",
    ]  # fmt: skip
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)
    try:
        for _ in range(600):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                break
            time.sleep(0.2)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def train(folder: Path, name: str, steps: int) -> list[float]:
    """Trains for so many steps; the seconds of each, its report included."""
    matrix = np.random.default_rng(0).normal(size=(256, 256))
    tokens = np.zeros((8, 129), np.int64)
    run = start(name, folder=folder / "runs")
    seconds = []
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        for _ in range(4):  # in place of a model
            matrix = np.tanh(matrix @ matrix.T / 256)
        run.step(loss=float(matrix.sum()), learning_rate=1 / step, tokens=tokens)
        seconds.append(time.perf_counter() - begin)
    run.finish()
    return seconds


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, TroubledServer | FaultyProxy]]:
    """Real servers behind proxies, which the environment names."""
    s3 = S3Server(folder / "s3")
    s3.start()
    try:
        s3.make_bucket("bucket")
        with (
            mlflow_server(folder) as port,
            TroubledServer(port) as mlflow,
            postgresql_server("ledger", "secret") as postgresql,
        ):
            create_database(f"postgresql://ledger:secret@{postgresql.address}", "ledger")
            proxies = {
                "mlflow": mlflow,
                "postgresql": FaultyProxy(int(postgresql.address.split(":")[1])),
                "s3": FaultyProxy(s3.port),
            }
            os.environ |= {
                **s3.environment,
                "AWS_ENDPOINT_URL": proxies["s3"].url,
                "MLFLOW_TRACKING_URI": mlflow.url,
                "TREERING_DATABASE_URL": f"postgresql://ledger:secret@127.0.0.1:{proxies['postgresql'].port}/ledger",
                "TREERING_STORE_URL": "s3://bucket/copies",
            }
            yield proxies
    finally:
        s3.kill()


def one_round(
    root: Path, kind: str, number: int, proxies: dict[str, TroubledServer | FaultyProxy], steps: int
) -> dict[str, Any]:
    """The steps of one training, and whether everything arrived when the trouble was over."""
    project = root / f"{kind}-{number}".replace(" ", "-")
    project.mkdir()
    server, _, trouble = kind.partition(" ")
    lock = sqlite3.connect(root / "mlflow.db", isolation_level=None, timeout=60) if trouble == "locked" else None
    follower = None
    if kind != "no follower":
        command = [sys.executable, "-m", "treering.ship.follow", str(project)]
        with (project / "ship.log").open("wb") as log:
            follower = subprocess.Popen(command, stdout=log, stderr=log)
        time.sleep(5)  # its imports are not part of an outage
    if lock is not None:
        lock.execute("BEGIN EXCLUSIVE")
    elif server == "mlflow":
        proxies[server].trouble = trouble
    elif server in proxies:
        proxies[server].fault = trouble
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as trainer:  # without the threads of the proxies
            seconds = trainer.submit(train, project, f"outage-{number}", steps).result()
    finally:
        if follower is not None:
            follower.kill()
            follower.wait()
        if lock is not None:
            lock.close()
        proxies["mlflow"].trouble = "none"
        proxies["postgresql"].fault = proxies["s3"].fault = "none"
    ship_once(Project(project))
    (run,) = find_recorded_runs(project / "runs")
    held = [each for each in targets(Project(project)) if isinstance(each, Projection)]
    arrived = len(held) == 3 and all(each.difference(run) is None for each in held)
    return {"median_s": statistics.median(seconds), "p99_s": float(np.quantile(seconds, 0.99)), "arrived": arrived}


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="of each training")
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each kind")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the processes that train
    rounds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as proxies:
        for number in range(arguments.rounds):
            for kind in KINDS:
                rounds[kind].append(one_round(Path(folder), kind, number, proxies, arguments.steps))
    found = {}
    alone = statistics.median(each["median_s"] for each in rounds["no follower"])
    for kind, every in rounds.items():
        median = statistics.median(each["median_s"] for each in every)
        found[kind] = {
            "median_ms": 1000 * median,
            "p99_ms": 1000 * statistics.median(each["p99_s"] for each in every),
            "ratio": median / alone,
            "everything_arrived": all(each["arrived"] for each in every),
        }
        print(f"{kind:<16} {found[kind]}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
