"""The run page as a server gives it: processor time, delay, and viewers, beside MLflow's endpoints.

    cd experiments/benchmarks && python dashboard_pages.py --json results/dashboard_pages.json

A real server is asked by viewers that speak Streamlit's protocol; its processor time is that of its process. Runs have
five metrics, and one step whose loss is 42 instead of 2. A first load comes after another run's page has been looked
at, so that imports do not count. A refresh comes after one more ring. `drawn` is the time from a ring in the file to
its step in a board in Chromium, with the page's own timer. The peer is `mlflow server` over SQLite with the same
numbers; its page asks `get-history-bulk-interval` for each metric, and has no push.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from dashboard_read import LOSS, SPIKE, many_runs, write_run
from dashboard_viewers import Viewer
from mlflow.entities import Metric
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from treering.project import Project
from treering.record.run import Run
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames.recorded import read_recorded
from treering_dashboard.panels.wire import decoded
from treering_dashboard.picture import chromium, find_chromium, free_port, serve, wait_until_drawn

METRICS = 5
POINTS = 1000
BATCH = 1000
EVERY_S = 2.0


def processor_s(process: psutil.Process) -> float:
    """User and system seconds of a process and its children."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def child(word: str) -> psutil.Process:
    """The newest process that this one started, with a word in its command."""
    found = [each for each in psutil.Process().children(recursive=True) if word in " ".join(each.cmdline())]
    return max(found, key=lambda each: each.create_time())


def append(run: Run) -> float:
    """Reports a step; the moment at which its ring is in the file."""
    file = RecordedRunDirectory(run.path).attempts()[0].rings_file
    size = file.stat().st_size
    run.step(loss=2.0)
    while file.stat().st_size == size:
        time.sleep(0.005)
    return time.monotonic()


def page_figures(address: str, server: psutil.Process, run: Run, rounds: int) -> dict[str, Any]:
    """First load and refresh of one run's page."""
    begin = processor_s(server)
    viewer = Viewer(address, "run", f"run={run.path.name}&x=step")
    first = viewer.open()
    first_cpu = processor_s(server) - begin
    head, arrays = decoded(first.boards[-1])
    loss = head["panels"][0]["lines"][0]
    highest = arrays[loss.get("hi", loss["y"])].max()
    cpu, sent, waited = [], [], []
    for _ in range(rounds):
        append(run)
        before = processor_s(server)
        seen = viewer.refresh()
        cpu.append(processor_s(server) - before)
        sent.append(seen.received)
        waited.append(seen.seconds)
    viewer.close()
    return {
        "first_cpu_s": first_cpu,
        "first_board_s": first.board_s,
        "first_sent_bytes": first.received,
        "spike_kept": bool(highest == SPIKE),
        "refresh_cpu_s": statistics.median(cpu),
        "refresh_s": statistics.median(waited),
        "refresh_sent_bytes": statistics.median(sent),
    }


def at_once(ask: Callable[[], float], viewers: list[Callable[[], float]], seconds: float) -> dict[str, float]:
    """Delays of many who ask every two seconds.

    Args:
        ask: called once a second beside them.
        viewers: each asks once and returns its delay.
        seconds: how long.
    """
    delays: list[float] = []
    end = time.monotonic() + seconds

    def look(viewer: Callable[[], float]) -> None:
        while time.monotonic() < end:
            begin = time.monotonic()
            delays.append(viewer())
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - begin)))

    threads = [threading.Thread(target=look, args=(viewer,)) for viewer in viewers]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        ask()
        time.sleep(1.0)
    for thread in threads:
        thread.join()
    delays.sort()
    return {"refreshes": len(delays), "median_s": statistics.median(delays), "slowest_s": delays[-1]}


def many_viewers(address: str, server: psutil.Process, run: Run, count: int, seconds: float) -> dict[str, Any]:
    """Many viewers of one run that goes on."""
    viewers = [Viewer(address, "run", f"run={run.path.name}&x=step") for _ in range(count)]
    for viewer in viewers:
        viewer.open()
    begin, start = processor_s(server), time.monotonic()
    found = at_once(lambda: append(run), [lambda each=each: each.refresh().seconds for each in viewers], seconds)
    cores = (processor_s(server) - begin) / (time.monotonic() - start)
    for viewer in viewers:
        viewer.close()
    return {"viewers": count, **found, "cores": cores}


def drawn(address: str, run: Run, rounds: int) -> dict[str, float] | None:
    """Seconds from a ring in the file to its step in the board of a browser; None without a Chromium."""
    executable = find_chromium()
    if executable is None:
        return None
    found = []
    with chromium(executable) as browser:
        page = browser.new_page()
        page.goto(f"{address}/run?run={run.path.name}&x=step")
        wait_until_drawn(page, panels=1)
        for round_ in range(rounds):
            time.sleep(0.7 * round_ % EVERY_S)  # at any point of the page's two seconds
            begin, last = append(run), run.last_step
            page.locator(f'.board[data-last="{last}"]').wait_for(timeout=60_000)
            found.append(time.monotonic() - begin)
    return {"median_s": statistics.median(found), "slowest_s": max(found)}


@contextmanager
def mlflow_server(root: Path) -> Iterator[tuple[str, psutil.Process, SqlAlchemyStore]]:
    """MLflow over SQLite, with the store behind it."""
    uri, port = f"sqlite:///{root / 'mlflow.db'}", free_port()
    store = SqlAlchemyStore(uri, str(root / "artifacts"))
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (root / "mlflow.log").open("wb") as log:
        server = subprocess.Popen([*command, "--backend-store-uri", uri], stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=2)  # noqa: S310 - our own address
                break
            except OSError:
                time.sleep(0.2)
        yield address, psutil.Process(server.pid), store
    finally:
        server.terminate()
        server.wait()


def mlflow_run(store: SqlAlchemyStore, steps: int, metrics: int) -> str:
    """A run with the same numbers."""
    run = store.create_run("0", "benchmark", int(time.time() * 1e3), [], "run")
    for first in range(0, steps, BATCH // metrics):
        batch = [
            Metric(f"metric_{number:02d}", 2.0, step, step)
            for step in range(first, min(steps, first + BATCH // metrics))
            for number in range(metrics)
        ]
        store.log_batch(run.info.run_id, batch, [], [])
    return str(run.info.run_id)


def mlflow_page(address: str, run: str, metrics: int) -> float:
    """What MLflow's page asks for its curves; the seconds."""
    begin = time.monotonic()
    for number in range(metrics):
        query = f"run_ids={run}&metric_key=metric_{number:02d}&max_results={POINTS}"
        url = f"{address}/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?{query}"
        with urllib.request.urlopen(url, timeout=600) as answer:  # noqa: S310 - our own address
            answer.read()
    return time.monotonic() - begin


def mlflow_figures(root: Path, steps: int, viewers: int, seconds: float, rounds: int) -> dict[str, Any]:
    """The peer: one page, and many viewers."""
    with mlflow_server(root) as (address, server, store):
        run = mlflow_run(store, steps, METRICS)
        mlflow_page(address, run, METRICS)
        before = processor_s(server)
        waited = [mlflow_page(address, run, METRICS) for _ in range(rounds)]
        cpu = (processor_s(server) - before) / rounds
        asks = [lambda: mlflow_page(address, run, METRICS)] * viewers
        many = at_once(lambda: 0.0, asks, seconds)
    return {"steps": steps, "page_cpu_s": cpu, "page_s": statistics.median(waited), "viewers": viewers, **many}


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000, help="of the run")
    parser.add_argument("--long-steps", type=int, default=1_000_000, help="of the long run")
    parser.add_argument("--viewers", type=int, default=30, help="of one live run")
    parser.add_argument("--seconds", type=float, default=30.0, help="that they look")
    parser.add_argument("--rounds", type=int, default=10, help="refreshes of a page")
    parser.add_argument("--mlflow-steps", type=int, default=10_000, help="of the peer's run")
    parser.add_argument("--compared", type=int, default=50, help="runs of 20 metrics that are compared")
    parser.add_argument("--pages-only", action="store_true", help="first boards and refreshes alone")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}

    def keep(part: str, figures: dict[str, Any]) -> None:
        found[part] = figures
        for name, value in figures.items():
            print(f"{part:<12} {name:<22} {value if isinstance(value, bool) else format(value, '10,.4g')}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        runs = {name: write_run(root / "runs", name, steps, METRICS) for name, steps in (
            ("warm", 500), ("page", arguments.steps), ("long", arguments.long_steps))}  # fmt: skip
        for run in runs.values():
            read_recorded(RecordedRunDirectory(run.path)).path.drawn([LOSS])  # makes the columns
        with serve(Project(root)) as address:
            server = child("streamlit")
            Viewer(address, "run", f"run={runs['warm'].path.name}").open()
            keep("page", page_figures(address, server, runs["page"], arguments.rounds))
            keep("long page", page_figures(address, server, runs["long"], arguments.rounds))
            if not arguments.pages_only:
                if (figures := drawn(address, runs["page"], arguments.rounds)) is not None:
                    keep("drawn", figures)
                keep("viewers", many_viewers(address, server, runs["page"], arguments.viewers, arguments.seconds))
        for run in runs.values():
            run.finish()
        if arguments.compared and not arguments.pages_only:
            keep("compare", many_runs(root / "many", arguments.compared, 20, arguments.steps, 3))
        if arguments.mlflow_steps and not arguments.pages_only:
            steps, viewers = arguments.mlflow_steps, arguments.viewers
            keep("mlflow", mlflow_figures(root, steps, viewers, arguments.seconds, arguments.rounds))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
