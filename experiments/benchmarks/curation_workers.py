"""One corpus over 1, 2, 4 and 8 workers of a Ray cluster, and a plan for MT-NLG's 339 B tokens.

    treering fetch experiments/demo.yaml
    python experiments/benchmarks/curation_workers.py --json out.json

Makes one corpus of all raw texts of the demo, cuts it into small shards, and

- curates it on a real Ray cluster of two nodes on this machine: the driver's memory, and its processor time, which is
  the serial part (all merges);
- curates it in one process: processor time of each task;
- does the tasks again on that cluster, with 1, 2, 4 and 8 workers, where a task only waits, eight times as long as the
  processor time that was measured (the shards are small, those of a real corpus take a minute); the printed seconds are
  divided by eight again. So Ray's scheduling, the shards and their order are real, and the cores are not: this shows
  that time follows the number of shards, and not how many cores, disks or networks of a real cluster bear.

The plan multiplies what was measured here: nothing in it was measured on a cluster. Its rate is that of the demo's
texts in JSON Lines; web archives cost more (`web_pages.py`). The serial part is given twice: with deduplication at the
rate of `dedup_memory.py` alone, and with all merges of this run, which have fixed costs that do not grow.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treering.config.corpora import CorpusConfig
from treering.config.load import load_experiment
from treering.data.curate.engines import Engine, ProcessEngine
from treering.data.curate.pipeline import curate
from treering.data.curate.ray_engine import RayEngine
from treering.data.curate.shards import SHARD_BYTES
from treering.data.sources.documents import Intake
from treering.data.sources.raw import cap_bytes, read_shard, source_of
from treering.project import Project

WORKERS = (1, 2, 4, 8)
STEPS = ("take_shard", "check_shard", "write_corpus")
KEPT_TOKENS = 339e9
"""MT-NLG's corpora. Source: Smith et al. 2022, arXiv 2201.11990, table 1."""
BYTES_A_TOKEN = 4.2
"""English text in GPT-2's vocabulary; the demo's own smaller vocabulary says nothing about it."""
DECISION_BYTES = 18
"""Memory for a document while decisions are sent out: rule, split, original and cluster."""
CORES = (64, 256, 1024)
STRETCH = 8
"""How much longer than its measured time a task waits."""


class Timed:
    """An engine that measures the processor time of each task, by function, and the size of the finished shards."""

    def __init__(self, store: Path) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.store_bytes = 0
        self._store, self._engine = store, ProcessEngine()

    def map(self, function: Callable[[Any, Any], Any], shared: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See `Engine.map`."""
        for place, task in enumerate(tasks):
            before = time.process_time()
            result = function(shared, task)
            self.seconds.setdefault(function.__name__, []).append(time.process_time() - before)
            yield place, result
        self.store_bytes = sum(path.stat().st_size for path in self._store.rglob("*") if path.is_file())

    def close(self) -> None:
        """See `Engine.close`."""


def wait(_shared: None, seconds: float) -> None:
    """A task that takes as long as one that was measured."""
    time.sleep(seconds * STRETCH)


@contextmanager
def cluster_of(nodes: int, cores: int) -> Iterator[str]:
    """A Ray cluster on this machine, its nodes with more cores than there are."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # 127.0.0.1 alone
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="tr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder  # where the address of the newest cluster is written: not the machine's
        (Path(folder) / "ray").mkdir()
        cluster = Cluster()
        try:
            for number in range(nodes):
                own = {"temp_dir": folder, "include_dashboard": False} if number == 0 else {}
                cluster.add_node(num_cpus=cores, node_ip_address="127.0.0.1", object_store_memory=200 << 20, **own)
            yield cluster.address
        finally:
            cluster.shutdown()


def write_corpus_of(raw: Path, corpora: Sequence[CorpusConfig], path: Path) -> tuple[int, int]:
    """Writes the raw texts of all corpora as one file of JSON Lines; its documents and the bytes of their texts."""
    path.parent.mkdir(parents=True)
    count = size = 0
    with path.open("w", encoding="utf-8") as file:
        for corpus in corpora:
            for pieces in source_of(corpus, raw / corpus.name, SHARD_BYTES)[1]:
                for row in read_shard(corpus, raw / corpus.name, pieces, cap_bytes(corpus), Intake()):
                    count, size = count + 1, size + len(row.text.encode("utf-8", "replace"))
                    file.write(json.dumps({"id": str(count), "text": row.text}) + "\n")
    return count, size


def replay(engine: RayEngine, seconds: dict[str, list[float]], workers: int) -> dict[str, float]:
    """How long the tasks of each step take with so many workers."""
    engine.workers = workers
    result = {}
    for step in STEPS:
        begin = time.monotonic()
        for _ in engine.map(wait, None, seconds[step]):
            pass
        result[step] = (time.monotonic() - begin) / STRETCH
    return result


def merge_of(documents: int) -> dict[str, Any]:
    """What deduplication of so many synthetic documents takes, measured in a process of its own."""
    script = Path(__file__).with_name("dedup_memory.py")
    command = [sys.executable, script, "--documents", str(documents)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def plan_of(measured: dict[str, Any]) -> dict[str, Any]:
    """What 339 B kept tokens would take, at the rates and shares of this run."""
    kept_bytes = KEPT_TOKENS * BYTES_A_TOKEN
    raw_bytes = kept_bytes / measured["kept_share"]
    scale = raw_bytes / measured["raw_bytes"]
    documents = measured["documents_passed"] * scale
    shard_seconds = sum(measured["cpu_seconds"][step] for step in STEPS[:2]) * scale
    dedup_seconds = measured["dedup"]["cpu_seconds"] / measured["dedup"]["documents"] * documents
    writing_seconds, merge_seconds = (measured["cpu_seconds"][name] * scale for name in ("write_corpus", "merges"))
    return {
        "raw_terabytes": raw_bytes / 1e12,
        "documents_passed": documents,
        "shards": math.ceil(raw_bytes / SHARD_BYTES),
        "cpu_hours_of_shards": shard_seconds / 3600,
        "cpu_hours_of_deduplication_in_one_process": dedup_seconds / 3600,
        "cpu_hours_of_all_merges_at_most": merge_seconds / 3600,
        "cpu_hours_of_writing_if_one_corpus": writing_seconds / 3600,
        "hours_on_cores": {
            str(cores): [
                round((shard_seconds / cores + writing_seconds + serial) / 3600, 1)
                for serial in (dedup_seconds, merge_seconds)
            ]
            for cores in CORES
        },
        "disk_terabytes": (measured["store_bytes"] * scale + 460 * documents) / 1e12,
        "memory_gib_of_deduplication": measured["dedup"]["memory_limit_mib"] / 1024,
        "memory_gib_of_decisions": DECISION_BYTES * documents / (1 << 30),
    }


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("experiments/demo.yaml"))
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="what `treering fetch` wrote")
    parser.add_argument("--shards", type=int, default=32)
    parser.add_argument("--documents", type=int, default=1_000_000, help="of the measured deduplication")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    experiment = load_experiment(options.config, ())
    corpus = CorpusConfig(name="all", licence="see the sources", jsonl="all.jsonl")

    with tempfile.TemporaryDirectory() as name, cluster_of(2, 4) as address:
        project = Project(Path(name))
        source = project.raw / "all" / "all.jsonl"
        sources = [each for each in experiment.corpora if each.has_text]
        documents, raw_bytes = write_corpus_of(options.raw, sources, source)

        def curated(engine: Engine) -> dict[str, Any]:
            return curate(
                [corpus], experiment.curation, project, lambda _: None, engine=engine,
                shard_bytes=math.ceil(source.stat().st_size / options.shards),
            )  # fmt: skip

        begin, before = time.monotonic(), time.process_time()
        curated(RayEngine(address, 2, project.root))
        driver = {
            "seconds": time.monotonic() - begin,
            "cpu_seconds": time.process_time() - before,
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        timed = Timed(project.root / ".treering" / "curate" / "shards")
        before = time.process_time()
        summary = curated(timed)
        whole = time.process_time() - before
        engine = RayEngine(address, None, project.root)
        list(engine.map(wait, None, [2.0] * max(WORKERS)))  # starts all workers
        times = {str(workers): replay(engine, timed.seconds, workers) for workers in WORKERS}
        engine.close()
        kept_bytes = sum(path.stat().st_size for path in (project.curated / "train").iterdir())

    spent = {step: sum(timed.seconds[step]) for step in STEPS}
    serial = whole - sum(spent.values())
    measured: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%d"),
        "load_average": os.getloadavg()[0],
        "documents": documents,
        "raw_bytes": raw_bytes,
        "documents_passed": summary["total"]["train"] + summary["total"]["heldout"],
        "kept_share": kept_bytes / raw_bytes,
        "shards": len(timed.seconds["take_shard"]),
        "cpu_seconds": {**spent, "merges": serial},
        "longest_task": {step: max(timed.seconds[step]) for step in STEPS},
        "megabytes_a_cpu_second": raw_bytes / 1e6 / whole,
        "cpu_hours_a_terabyte": 1e6 / (raw_bytes / 1e6 / whole) / 3600,
        "store_bytes": timed.store_bytes,
        "ray_driver": driver,
        "seconds_by_workers": times,
        "dedup": merge_of(options.documents),
    }
    measured["plan"] = plan_of(measured)
    print_all(measured)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


def print_all(measured: dict[str, Any]) -> None:
    """Prints what was measured, and the plan."""
    print(f"{measured['raw_bytes'] / 1e6:.1f} MB of raw text, {measured['shards']} shards, one corpus")
    serial, one = measured["cpu_seconds"]["merges"], None
    print("workers   read    check   write   merges   whole   times faster   shards alone")
    for workers, times in measured["seconds_by_workers"].items():
        whole, shards = sum(times.values()) + serial, times["take_shard"] + times["check_shard"]
        one = one or (whole, shards)
        parts = "".join(f"{times[step]:8.2f}" for step in STEPS)
        print(f"{workers:>7}{parts}{serial:9.2f}{whole:8.2f}{one[0] / whole:15.2f}{one[1] / shards:15.2f}")
    driver = measured["ray_driver"]
    print(f"driver on Ray: {driver['peak_rss_mib']} MiB, {driver['cpu_seconds']:.1f} s of the processor")
    print(
        f"{measured['megabytes_a_cpu_second']:.2f} MB a CPU second, {measured['cpu_hours_a_terabyte']:.0f} CPU h a TB"
    )
    for name, value in measured["plan"].items():
        print(f"plan: {name:<48}{value if isinstance(value, dict) else f'{value:,.1f}'}")


if __name__ == "__main__":
    main()
