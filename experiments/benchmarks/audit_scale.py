"""What questions to the audit cost at the scale of Megatron-Turing NLG 530B, beside megatron-core's own index.

Fifteen corpora with MT-NLG's weights and token counts (`experiments/mt-nlg-530b.yaml`), 131.8 M samples of 2,048
tokens, 328 M documents of made-up lengths. Their `.idx` files are written first (6.6 GB; `--folder` keeps them for
another run); tokens are needed for one question alone and random there.

    .venv/bin/python experiments/benchmarks/audit_scale.py --folder /tmp/scale --json out.json
    .venv/bin/python experiments/benchmarks/audit_scale.py --scale 0.001          # corpora and samples shrunk alike

Times are CPU seconds of one process, the best of several. megatron-core's builder and the questions to its index run in
the same call at a part of that scale (`--megatron`, 0.05), in a process of their own; what they would take at the whole
is that divided by the part, since the build, the scan for a document and the scan of samples are linear in both.

A cold question is the first one of a fresh process that has imported its libraries: it opens the data order, or lets
megatron-core's builder open the cache that it wrote, and asks once. What Treering reads besides to ask Megatron's
arrays is not counted.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from audit_throughput import random_stretch, stretch_of
from megatron_index import build_index, load_builder
from synthetic_index import document_counts, write_index

from treering.audit.corpora.content import batch_digests
from treering.audit.corpora.usage import path_usage
from treering.config.load import load_experiment
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.config.schedule import Schedule
from treering.data.corpus.mapped_offsets import MappedOffsets
from treering.data.megatron.order import MegatronOrder
from treering.data.order.treering1 import DataOrder

EXPERIMENT = Path(__file__).parents[1] / "mt-nlg-530b.yaml"
DOCUMENTS = 328_000_000
BOOKS = {"books3": 130_000, "gutenberg-pg-19": 95_000, "bookcorpus2": 85_000}
"""Mean tokens of a document in corpora of books; made up, as all document lengths here."""
DISTINCT_SAMPLES = 60_000_000
NUM_SAMPLES = (10**6, 10**8, 10**10)
COLD = ("step", "document", "distinct")
"""The questions that a cold process is asked, each in a process of its own."""
TARGETS = {
    "ready_ms": 500.0,
    "ready_mb": 200.0,
    "summary_ms": 10.0,
    "step_ms": 20.0,
    "document_ms": 1.0,
    "distinct_s": 3.0,
    "verify_ms": 50.0,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What is asked about.

    Attributes:
        blend: MT-NLG's, its corpora shrunk.
        documents: of each corpus.
        batch: samples of a step.
        num_samples: that the training reads.
    """

    blend: ResolvedBlend
    documents: Mapping[str, int]
    batch: int
    num_samples: int

    @classmethod
    def of(cls, scale: float) -> "Setting":
        """MT-NLG's training with corpora, documents and samples at a part of their number."""
        experiment = load_experiment(EXPERIMENT)
        length = experiment.blend.sequence_length
        declared = {corpus.name: corpus.declared_tokens or 0 for corpus in experiment.corpora}
        tokens = {name: max(int(count * scale), 8 * length) for name, count in declared.items()}
        books = {name: max(int(mean * min(1.0, scale * 100)), 100) for name, mean in BOOKS.items()}
        documents = document_counts(tokens, books, max(int(DOCUMENTS * scale), len(tokens)))
        components = tuple(
            ResolvedComponent(
                corpus=part.corpus,
                weight=part.weight,
                digest=f"sha256:{number:064x}",  # nothing checks it
                num_tokens=tokens[part.corpus],
                num_documents=documents[part.corpus],
            )
            for number, part in enumerate(experiment.blend.components)
        )
        blend = ResolvedBlend(
            algorithm="treering-1",
            seed=experiment.blend.seed,
            sequence_length=length,
            components=components,
            tokenizer=None,
        )
        samples = Schedule.from_config(experiment.schedule, experiment.optimizer, length).num_samples
        return cls(blend, documents, experiment.schedule.global_batch_size, max(int(samples * scale), 1))

    def write(self, folder: Path) -> dict[str, Path]:
        """Writes the indices below a folder, those that are not there yet; returns the prefix of each."""
        folder.mkdir(parents=True, exist_ok=True)
        prefixes = {}
        for seed, part in enumerate(self.blend.components):
            prefix = folder / f"{part.corpus}-{self.documents[part.corpus]}"
            if not prefix.with_suffix(".bin").exists():
                write_index(prefix.with_suffix(".idx"), self.documents[part.corpus], part.num_tokens, seed)
                with prefix.with_suffix(".bin").open("wb") as file:
                    file.truncate(2 * part.num_tokens)  # a hole: megatron-core maps it, nobody reads it
            prefixes[part.corpus] = prefix
        return prefixes

    def open(self, prefixes: Mapping[str, Path]) -> DataOrder:
        """The data order, document offsets mapped."""
        return DataOrder(
            self.blend, {name: MappedOffsets.open(prefix.with_suffix(".idx")) for name, prefix in prefixes.items()}
        )


def best_s(ask: Callable[[], object], repeats: int) -> float:
    """CPU seconds of one question, the least of several times."""
    return min(cpu_s(ask)[0] for _ in range(repeats))


def cpu_s(ask: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one question, and its answer."""
    started = time.process_time()
    found = ask()
    return time.process_time() - started, found


def peak_mb() -> float:
    """The most memory that this process has held, mapped pages of files included; not its parent's, as `getrusage`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def ready(setting: Setting, prefixes: Mapping[str, Path], repeats: int) -> dict[str, float]:
    """Opening the order, in a fresh process."""
    taken = best_s(lambda: setting.open(prefixes), repeats)
    return {"ready_ms": 1e3 * taken, "ready_mb": peak_mb(), "ready_disk_bytes": 0}


def questions(setting: Setting, order: DataOrder, num_samples: int, repeats: int) -> dict[str, Any]:
    """Summary, step and document for a checkpoint after that many samples."""
    length = setting.blend.sequence_length
    schedule = Schedule(
        sequence_length=length,
        train_tokens=num_samples * length,
        global_batch_size=setting.batch,
        peak_learning_rate=1.0,
    )
    path = [stretch_of(schedule, setting.blend)]
    lo, hi = schedule.sample_range(schedule.num_steps)
    random = np.random.default_rng(0)
    share = np.array(list(setting.documents.values())) / sum(setting.documents.values())
    names = [list(setting.documents)[each] for each in random.choice(len(share), 20, p=share)]
    asked = [(order.index_of(name), np.array([random.integers(setting.documents[name])])) for name in names]

    def exposed(component: int, document: np.ndarray, since: int) -> tuple[float, int]:
        ask = partial(order.document_exposures, component, document, since, num_samples)
        return best_s(ask, repeats), len(ask().sample)

    every = [exposed(*each, 0) for each in asked]
    newest = [exposed(*each, max(num_samples - setting.num_samples, 0)) for each in asked]
    return {
        "num_samples": num_samples,
        "summary_ms": 1e3 * best_s(lambda: path_usage(path), repeats),
        "step_ms": 1e3 * best_s(lambda: order.samples_with_spans(lo, hi), repeats),
        "step_samples": hi - lo,
        "document_ms": 1e3 * median(taken for taken, _ in every),
        "document_exposures": median(count for _, count in every),
        "document_in_one_training_ms": 1e3 * median(taken for taken, _ in newest),
        "document_in_one_training_most_ms": 1e3 * max(taken for taken, _ in newest),
    }


def distinct(order: DataOrder, num_samples: int, repeats: int) -> dict[str, Any]:
    """Distinct documents in the first samples."""
    taken, found = min(
        cpu_s(lambda: sum(order.documents_touched(each, num_samples) for each in range(len(order.components))))
        for _ in range(repeats)
    )
    return {"num_samples": num_samples, "distinct_documents": found, "distinct_s": taken}


def verify(folder: Path, length: int, batch: int, repeats: int) -> dict[str, Any]:
    """Digesting one step's tokens again, from four corpora that were just written."""
    stretch, corpora = random_stretch(folder, length, 4 * batch, batch, 4000 * length)
    taken = best_s(lambda: next(batch_digests(stretch, corpora, 2, 2)), repeats)
    return {"samples": batch, "corpora_bytes": 4 * 8000 * length, "verify_ms": 1e3 * taken}


def asked_once(setting: Setting, order: DataOrder | MegatronOrder, question: str, until: int) -> object:
    """Asks one of `COLD`, about the samples before `until`."""
    if question == "step":
        return order.samples_with_spans(max(until - setting.batch, 0), until)
    if question == "document":
        name = "openwebtext2"
        return order.exposures(list(setting.documents).index(name), setting.documents[name] // 3, until)
    return sum(order.documents_touched(each, until) for each in range(len(order.components)))


def cold(setting: Setting, prefixes: Mapping[str, Path], question: str, until: int) -> dict[str, float]:
    """One question to the closed form, opening it included, in a fresh process."""
    return {f"cold_{question}_s": cpu_s(lambda: asked_once(setting, setting.open(prefixes), question, until))[0]}


def megatron_cold(setting: Setting, folder: Path, cache: Path, question: str, until: int) -> dict[str, float]:
    """One question to megatron-core's index, opening its cache included, in a fresh process."""
    prefixes = setting.write(folder)
    load_builder()
    opened_s, built = cpu_s(lambda: build_index(setting.blend, prefixes, setting.num_samples, cache))
    order = built.order()
    asked_s = cpu_s(lambda: asked_once(setting, order, question, until))[0]
    return {"reopen_s": opened_s, f"cold_{question}_s": opened_s + asked_s}


def megatron(setting: Setting, folder: Path, cache: Path, part: float, until: int) -> dict[str, Any]:
    """The same questions to megatron-core's index, in a fresh process."""
    prefixes = setting.write(folder)
    load_builder()
    before = peak_mb()
    build_s, built = cpu_s(lambda: build_index(setting.blend, prefixes, setting.num_samples, cache))
    build_mb = peak_mb() - before
    order = built.order()
    distinct_s, found = cpu_s(lambda: asked_once(setting, order, "distinct", until))
    step_s = best_s(lambda: asked_once(setting, order, "step", until), 3)
    names = list(setting.documents)
    document_s = [
        best_s(partial(order.exposures, names.index(name), setting.documents[name] // 3, until), 3)
        for name in ("openwebtext2", "pile-cc", "cc-2021-04", "realnews")
    ]
    return {
        "part": part,
        "num_samples": setting.num_samples,
        "num_documents": sum(setting.documents.values()),
        "build_s": build_s,
        "build_mb": build_mb,
        "build_disk_bytes": built.files_bytes,
        "step_ms": 1e3 * step_s,
        "document_s": median(document_s),
        "distinct_samples": until,
        "distinct_documents": found,
        "distinct_s": distinct_s,
        "whole": {
            "build_s": build_s / part,
            "build_mb": build_mb / part,
            "build_disk_bytes": built.files_bytes / part,
            "step_ms": 1e3 * step_s,
            "document_s": median(document_s) / part,
            "distinct_s": distinct_s / part,
        },
    }


def alone(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Calls a function in a fresh process, so that its memory and its caches are its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure(folder: Path, scale: float, part: float, repeats: int) -> dict[str, Any]:
    """All figures."""
    setting = Setting.of(scale)
    prefixes = setting.write(folder)
    order = setting.open(prefixes)
    until = max(int(DISTINCT_SAMPLES * scale), 1)
    after = (setting.num_samples, *(max(int(each * scale), setting.batch) for each in NUM_SAMPLES))
    with tempfile.TemporaryDirectory(dir=folder) as tokens:
        verified = verify(Path(tokens), setting.blend.sequence_length, setting.batch, repeats)
    return {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "load_average": os.getloadavg()[0],
            "numpy": np.__version__,
        },
        "scale": scale,
        "corpora": len(setting.blend.components),
        "num_samples": setting.num_samples,
        "num_documents": sum(setting.documents.values()),
        "targets": TARGETS,
        "ready": alone(ready, setting, prefixes, repeats),
        "checkpoints": [questions(setting, order, each, repeats) for each in after],
        "distinct": distinct(order, until, max(repeats // 2, 1)),
        "verify": verified,
        "cold": merged(alone(cold, setting, prefixes, each, until) for each in COLD),
        "megatron": megatrons(Setting.of(scale * part), folder / "part", part, max(int(until * part), 1)),
    }


def megatrons(setting: Setting, folder: Path, part: float, until: int) -> dict[str, Any]:
    """Builds megatron-core's index and asks it; then opens its cache again for each cold question."""
    with tempfile.TemporaryDirectory() as temporary:
        cache = Path(temporary)
        built = alone(megatron, setting, folder, cache, part, until)
        found = merged(alone(megatron_cold, setting, folder, cache, each, until) for each in COLD)
    built["cold"] = found
    built["whole"] |= {name: taken if name == "cold_step_s" else taken / part for name, taken in found.items()}
    return built


def merged(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Several results as one; where some have the same figure, the least of it."""
    result: dict[str, float] = {}
    for each in found:
        result |= {name: min(value, result.get(name, value)) for name, value in each.items()}
    return result


def table(found: Mapping[str, Any]) -> str:
    """The figures for people."""
    own, theirs = found["checkpoints"][0], found["megatron"]["whole"]
    ready, machine = found["ready"], found["machine"]
    build = f"{theirs['build_s']:.1f} s, {theirs['build_mb']:,.0f} MB, {theirs['build_disk_bytes'] / 1e9:.2f} GB disk"

    def most(name: str) -> str:
        unit = name.rsplit("_", 1)[1]
        return f"{TARGETS[name]:g} {unit.replace('mb', 'MB')}"

    def first(times: Mapping[str, float], question: str) -> str:
        return f"{1e3 * times[f'cold_{question}_s']:,.0f} ms"

    ready_own = f"{ready['ready_ms']:.1f} ms, {ready['ready_mb']:.0f} MB, no disk"
    a_step = f"step: documents of its {own['step_samples']:,} samples"
    document = f"{1e3 * theirs['document_s']:.0f} ms"
    every = f"distinct documents of {found['distinct']['num_samples']:,} samples"
    rows = [
        ("question", "Megatron's index", "closed form", "at most"),
        ("ready to answer", build, ready_own, f"{most('ready_ms')}, {most('ready_mb')}"),
        ("its cache opened again", f"{1e3 * theirs['reopen_s']:.0f} ms", "-", "-"),
        ("summary of a checkpoint", "-", f"{own['summary_ms']:.1f} ms", most("summary_ms")),
        (a_step, f"{theirs['step_ms']:.1f} ms", f"{own['step_ms']:.1f} ms", most("step_ms")),
        ("document: its exposures", document, f"{own['document_ms']:.2f} ms", most("document_ms")),
        (every, f"{theirs['distinct_s']:.1f} s", f"{found['distinct']['distinct_s']:.2f} s", most("distinct_s")),
        ("verify the digests of a step", "-", f"{found['verify']['verify_ms']:.0f} ms", most("verify_ms")),
        *(
            (f"first question of a process: {each}", first(theirs, each), first(found["cold"], each), "-")
            for each in COLD
        ),
    ]
    lines = [
        f"{found['corpora']} corpora, {found['num_samples']:,} samples, {found['num_documents']:,} documents; CPU time "
        f"on {machine['cores']} cores with a load of {machine['load_average']:.1f}",
        *("  ".join((f"{a:<46}", f"{b:>34}", f"{c:>26}", f"{d:>16}")).rstrip() for a, b, c, d in rows),
        "Megatron's was built at the same scale."
        if found["megatron"]["part"] == 1
        else f"Megatron's was built at {found['megatron']['part']:g} of that (in {found['megatron']['build_s']:.1f} s);"
        " its column is extrapolated linearly.",
        "",
        f"{'samples before the checkpoint':<30}  summary, ms  step, ms  document, ms  exposures  in one training, ms",
        *(
            f"{each['num_samples']:<30,}  {each['summary_ms']:>11.2f}  {each['step_ms']:>8.2f}"
            f"  {each['document_ms']:>12.2f}  {each['document_exposures']:>9g}"
            f"  {each['document_in_one_training_ms']:>19.2f}"
            for each in found["checkpoints"]
        ),
    ]
    return "\n".join(lines)


def main() -> None:
    """Prints the table; writes all figures as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of MT-NLG's tokens, documents and samples")
    parser.add_argument("--megatron", type=float, default=0.05, help="part of that at which megatron-core builds")
    parser.add_argument("--repeats", type=int, default=5, help="the best of so many times counts")
    parser.add_argument("--folder", type=Path, help="where the indices lie and stay; by default a temporary folder")
    parser.add_argument("--json", type=Path, help="file for all figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        found = measure(folder, arguments.scale, arguments.megatron, arguments.repeats)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
