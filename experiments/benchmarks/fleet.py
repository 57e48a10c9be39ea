"""The telemetry of 2,240 devices and a ring a second: what is lost, how late it is, what it takes, and how it is read.

    .venv/bin/python experiments/benchmarks/fleet.py --json experiments/benchmarks/results/fleet.json

280 nodes of eight devices are simulated by their live files, which one process writes: that process stands for 280
collectors and is not counted. Two others do the work of one real run: one puts live files into parts, the other
follows as a shipper does, reading each ring and the telemetry up to it. Ten series a device are drawn at random around
what an A100 under load shows.

First 600 s are simulated as fast as they go: every reading is compared with what was drawn, and processor seconds are
divided by simulated ones. Then some minutes in real time: how late the newest reading of the latest node is, and how
late a ring with its telemetry. The peer is the form of earlier versions, a line of JSON a second and rank, on the same
readings.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from treering.config.canonical import digest_bytes
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.ring import RINGS_FILE
from treering.runlog.ring_log import Place, RingLog
from treering.runlog.telemetry.ingest import ingest
from treering.runlog.telemetry.live import LiveWriter
from treering.runlog.telemetry.old_form import old_files, read_old
from treering.runlog.telemetry.reading import TelemetryFolder
from treering.runlog.writer import RingWriter
from treering.ship.tail import TelemetryTail

NODES, DEVICES = 280, 8
RANKS = NODES * DEVICES
MINUTE = 60
HEADER = digest_bytes(b"header")
DAY_S = 86_400


@dataclass(frozen=True)
class Attempt:
    """The rings and the telemetry of one process start."""

    path: Path

    @cached_property
    def telemetry(self) -> TelemetryFolder:
        """The readings."""
        return TelemetryFolder(self.path / "telemetry")

    @property
    def ring_log(self) -> RingLog[RecordedRing]:
        """The reader of the rings."""
        return RingLog(self.path / RINGS_FILE, RecordedRing)


class Fleet:
    """Draws the readings of all devices, second by second, and adds them up.

    Attributes:
        drawn: how many readings.
        sums: of all values by metric, exact, in stored units.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._energy = self._random.integers(10**9, 2 * 10**9, RANKS)
        self._temperature = self._random.integers(55, 70, RANKS)
        self._memory = self._random.integers(70_000, 78_000, RANKS) << 20
        self._rss = self._random.integers(9_000, 12_000, RANKS) << 20
        self.drawn = 0
        self.sums: dict[str, int] = {}

    def second(self) -> dict[str, list[Any]]:
        """One reading of ten metrics of every device, in order of ranks."""
        draw = self._random
        power = draw.normal(3_800, 120, RANKS).astype(np.int64)  # tenths of a watt, as they are stored
        self._energy += power // 10
        self._temperature = np.clip(self._temperature + draw.choice([-1, 0, 0, 0, 1], RANKS), 50, 85)
        self._rss += draw.choice([0, 0, 0, 0, 4096], RANKS)
        integers = {
            "device/utilisation": draw.choice([97, 98, 99, 100, 100], RANKS),
            "device/memory_used": self._memory,
            "device/energy": self._energy,
            "device/temperature": self._temperature,
            "device/sm_clock": draw.choice([1395, 1410, 1410, 1410, 1410], RANKS),
            "device/throttle_reasons": draw.choice([0, 0, 0, 4], RANKS),
            "process/rss": self._rss,
        }
        compute = draw.normal(2_000_000, 40_000, RANKS).astype(np.int64) // 10
        tenths = draw.integers(1000, 1100, RANKS)
        for name, values in {**integers, "device/power": power, "rank/compute": compute, "cpu": tenths}.items():
            self.sums[name] = self.sums.get(name, 0) + int(values.sum())
        self.drawn += 10 * RANKS
        return {
            **{name: values.tolist() for name, values in integers.items()},
            "device/power": (power / 10).tolist(),
            "rank/compute": (compute / 100_000).tolist(),
            "process/cpu_utilisation": (tenths / 10).tolist(),
        }


class Nodes:
    """The live files of all nodes."""

    def __init__(self, folder: Path) -> None:
        self._writers = [LiveWriter(folder, node * DEVICES) for node in range(NODES)]

    def write(self, moment: float, values: dict[str, list[Any]]) -> None:
        """Appends a sample to each."""
        devices = list(range(DEVICES))
        for node, writer in enumerate(self._writers):
            own = slice(node * DEVICES, (node + 1) * DEVICES)
            ranks = list(range(own.start, own.stop))
            writer.append(moment, ranks, devices, {name: column[own] for name, column in values.items()})

    def close_minute(self) -> None:
        """Begins new files."""
        for writer in self._writers:
            writer.close_segment()


def append_ring(writer: RingWriter[RecordedRing], step: int, moment: float) -> None:
    """Appends a ring with three metrics."""
    metrics = {"train/loss": 2.0, "train/grad_norm": 1.0, "optim/learning_rate": 1e-4}
    nothing: dict[str, Any] = {"samples": None, "tokens": None, "batch_digest": None, "fingerprints": None}
    writer.append(step=step, metrics=metrics, ended_at=moment, **nothing)


def spent() -> dict[str, float]:
    """Processor seconds and most memory of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"processor_s": usage.ru_utime + usage.ru_stime, "most_bytes": usage.ru_maxrss * 1024}


def put_into_parts(pipe: Connection, folder: Path) -> None:
    """Process: at each word puts closed live files into parts, and answers how many readings; None ends it."""
    before = spent()
    while (ended := pipe.recv()) is not None:
        started = time.perf_counter()
        pipe.send((ingest(folder, range(0, RANKS, DEVICES) if ended else ()), time.perf_counter() - started))
    pipe.send({**spent(), "begin_processor_s": before["processor_s"]})


def follow(pipe: Connection, path: Path, real: bool) -> None:
    """Process: follows rings and telemetry until told to end; in simulated time, when told to."""
    attempt = Attempt(path)
    before = spent()
    tail = TelemetryTail(attempt)  # type: ignore[arg-type]  # it needs the telemetry alone
    place, rings, with_telemetry = Place(HEADER), 0, 0
    ring_lags: list[float] = []
    point_lags: list[float] = []
    while True:
        ends = pipe.poll(1.0 if real else None) and pipe.recv() is None
        for ring, after in attempt.ring_log.after(place):
            rings, place = rings + 1, after
            with_telemetry += bool(tail.until(ring.ended_at))
            ring_lags.append(time.time() - ring.ended_at)
        if real:
            newest = attempt.telemetry.read(("device/power",), since=time.time() - 30).readings
            if len(newest):
                of_node = np.zeros(RANKS)
                np.maximum.at(of_node, newest.nodes, newest.times)
                point_lags.append(time.time() - float(of_node[::DEVICES].min()))
        if ends:
            break
        if not real:
            pipe.send(rings)
    lags = {"ring_lag_s": max(ring_lags), "point_lag_s": max(point_lags)} if real else {}
    facts = {"rings": rings, "rings_with_telemetry": with_telemetry, **lags}
    pipe.send({**spent(), "begin_processor_s": before["processor_s"], **facts})


def started(function: Callable[..., None], *arguments: Any) -> tuple[Connection, Any]:
    """A process of its own, and the pipe to it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=function, args=(there, *arguments))
    process.start()
    return here, process


def ended(pipe: Connection, process: Any) -> dict[str, float]:
    """Ends a process and returns what it says of itself."""
    pipe.send(None)
    facts: dict[str, float] = pipe.recv()
    while not isinstance(facts, dict):
        facts = pipe.recv()
    process.join()
    return facts


def simulated(folder: Path, seconds: int) -> dict[str, Any]:
    """Simulated time: losses, processor time, memory, size, queries."""
    path = folder / "attempt"
    (path / "telemetry").mkdir(parents=True)
    fleet, nodes = Fleet(1), Nodes(path / "telemetry")
    rings = RingWriter(path / RINGS_FILE, RecordedRing, HEADER)
    parts, follower = started(put_into_parts, path / "telemetry"), started(follow, path, False)
    origin = 1_764_000_000.0
    wall_s, written = [], 0
    for second in range(1, seconds + 1):
        nodes.write(origin + second, fleet.second())
        append_ring(rings, second, origin + second)
        if second % MINUTE == 0:
            nodes.close_minute()
            follower[0].send(False)
            follower[0].recv()
            parts[0].send(second == seconds)
            count, took_s = parts[0].recv()
            written += count
            wall_s.append(took_s)
    rings.close()
    of_parts, of_follower = ended(*parts), ended(*follower)
    found = TelemetryFolder(path / "telemetry").read()
    readings = found.readings
    stored = {
        "cpu": ("process/cpu_utilisation", 10),
        "device/power": ("device/power", 10),
        "rank/compute": ("rank/compute", 100_000),
    }
    equal = all(
        int(np.rint(readings.column(stored.get(name, (name, 1))[0]) * stored.get(name, (name, 1))[1]).sum()) == total
        for name, total in fleet.sums.items()
    )
    there = sum(int(np.isfinite(column).sum()) for column in readings.values.values())
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    telemetry_bytes = sum(file.stat().st_size for file in (path / "telemetry").rglob("*") if file.is_file())
    del readings, found
    parts_s, follower_s = (facts["processor_s"] - facts["begin_processor_s"] for facts in (of_parts, of_follower))
    return {
        "seconds": seconds,
        "points": fleet.drawn,
        "points_lost": fleet.drawn - there,
        "sums_equal": equal,
        "rings": int(of_follower["rings"]),
        "rings_lost": seconds - int(of_follower["rings"]),
        "rings_with_telemetry": int(of_follower["rings_with_telemetry"]),
        "parts_cores": parts_s / seconds,
        "follower_cores": follower_s / seconds,
        "parts_most_bytes": of_parts["most_bytes"],
        "follower_most_bytes": of_follower["most_bytes"],
        "part_wall_s": max(wall_s),
        "bytes_a_row": telemetry_bytes / (RANKS * seconds),
        "bytes_a_day": size * DAY_S / seconds,
        "files": sum(1 for _ in (path / "telemetry").rglob("*.parquet")),
        **queries(path, seconds),
    }


def queries(path: Path, seconds: int) -> dict[str, float]:
    """Seconds of processor time of questions, the best of five."""

    def one_metric() -> Any:
        readings = TelemetryFolder(path / "telemetry").read(("device/power",)).readings
        return readings.column("device/power").reshape(-1).max()

    def by_rank() -> Any:
        readings = TelemetryFolder(path / "telemetry").read(("device/power",)).readings
        sums, counts = np.zeros(RANKS), np.bincount(readings.ranks, minlength=RANKS)
        np.add.at(sums, readings.ranks, readings.column("device/power"))
        if not (counts == seconds).all():
            raise RuntimeError("a rank has too few readings")
        return sums / counts

    def worst() -> Any:
        minutes = TelemetryFolder(path / "telemetry").minutes(("device/temperature",))
        return max(minutes, key=lambda minute: minute.high).high_place

    def energy() -> Any:
        totals, _damaged = TelemetryFolder(path / "telemetry").energy()
        return totals.devices

    return {
        "query_s": best_of(one_metric),
        "query_by_rank_s": best_of(by_rank),
        "worst_rank_s": best_of(worst),
        "energy_s": best_of(energy),
    }


def best_of(question: Callable[[], Any], times: int = 5) -> float:
    """The least processor time of a question."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        question()
        found.append(time.process_time() - begun)
    return min(found)


def in_real_time(folder: Path, seconds: int) -> dict[str, Any]:
    """Real time: how late readings and rings are, with all processes on this machine."""
    path = folder / "real"
    (path / "telemetry").mkdir(parents=True)
    fleet, nodes = Fleet(2), Nodes(path / "telemetry")
    rings = RingWriter(path / RINGS_FILE, RecordedRing, HEADER)
    parts, follower = started(put_into_parts, path / "telemetry"), started(follow, path, True)
    due = time.time()
    late_s, waiting = 0.0, 0
    for second in range(1, seconds + 1):
        due += 1.0
        time.sleep(max(0.0, due - time.time()))
        late_s = max(late_s, time.time() - due)
        moment = time.time()
        nodes.write(moment, fleet.second())
        append_ring(rings, second, moment)
        if second % MINUTE == 0:
            nodes.close_minute()
            parts[0].send(False)
            waiting += 1
    for _ in range(waiting):
        parts[0].recv()
    time.sleep(1.5)
    rings.close()
    of_follower, of_parts = ended(*follower), ended(*parts)
    there = len(TelemetryFolder(path / "telemetry").read(("device/power",)).readings)
    return {
        "seconds": seconds,
        "rows_lost": RANKS * seconds - there,
        "rings_lost": seconds - int(of_follower["rings"]),
        "ring_lag_s": of_follower["ring_lag_s"],
        "point_lag_s": of_follower["point_lag_s"],
        "cores": sum(facts["processor_s"] - facts["begin_processor_s"] for facts in (of_follower, of_parts)) / seconds,
        "simulation_late_s": late_s,
        "load": os.getloadavg()[0],
    }


def old_form(folder: Path, seconds: int) -> dict[str, Any]:
    """The same readings as lines of JSON, a file a rank: size, and the same question.

    Raises:
        RuntimeError: a reading is missing.
    """
    fleet = Fleet(1)
    begun_at = 1_764_000_000.0
    files = [(folder / f"rank-{rank}.jsonl").open("ab", buffering=1 << 16) for rank in range(RANKS)]
    for second in range(seconds):
        columns = fleet.second()
        names = list(columns)
        for rank, row in enumerate(zip(*columns.values(), strict=True)):
            line = {"time": begun_at + second, "rank": rank, "values": dict(zip(names, row, strict=True))}
            files[rank].write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    for file in files:
        file.close()
    size = sum(path.stat().st_size for path in folder.iterdir())
    begun = time.process_time()
    readings = read_old(old_files(folder), ("device/power",), 1 << 40, 1 << 50)
    took_s = time.process_time() - begun
    if len(readings) != RANKS * seconds:
        raise RuntimeError("the earlier form has too few readings")
    return {"bytes_a_row": size / (RANKS * seconds), "bytes_a_day": size * DAY_S / seconds, "query_s": took_s}


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="simulated seconds, a multiple of 60")
    parser.add_argument("--real-seconds", type=int, default=200, help="seconds in real time")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fleet-"))
    try:
        figures = {"fleet": simulated(folder, arguments.seconds)}
        figures["real_time"] = in_real_time(folder, arguments.real_seconds)
        shutil.rmtree(folder)
        folder.mkdir()
        figures["earlier_form"] = old_form(folder, arguments.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(figures, indent=2) + "\n"
    if arguments.json:
        arguments.json.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
