"""Megabytes of raw text that curation handles in a second of processor time, beside datatrove.

    treering fetch experiments/demo.yaml
    pip install datatrove==0.10.1 spacy 'xxhash<4'
    python experiments/benchmarks/curation_speed.py --json out.json

in an environment of its own, since datatrove needs an older xxhash than Treering pins.

Reads the raw corpora of a project and measures, in one process each and in turns:

- `rules + MinHash`: every quality rule and the language, then shingles and MinHash of the documents that pass;
- `datatrove`: its Gopher quality filter, which has no language, and its MinHash signatures of the documents that pass,
  with the same bands, rows and words in a shingle. Without the package its figures are left out;
- `whole`: the stage `curate`, reading of the sources included, in this process (workers are another process's children,
  whose time would not be counted).

Before that it runs the stage once with a clock in every step, which costs some time of its own.

Extraction comes before the first two and is not in their time. Rates count the bytes of the raw text in every row.
"""

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from curation_steps import seconds_by_step

from treering.config.corpora import CorpusConfig, CurationConfig
from treering.config.load import load_experiment
from treering.data.curate.engines import ProcessEngine
from treering.data.curate.extract import extract
from treering.data.curate.filter import judge
from treering.data.curate.language import language
from treering.data.curate.minhash import MinHasher
from treering.data.curate.pipeline import curate
from treering.data.sources.documents import Intake
from treering.data.sources.raw import cap_bytes, read_shard, source_of
from treering.data.words import shingle_runs, word_hashes
from treering.project import Project


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Processor time of this process and of the children that end meanwhile."""

    def spent() -> float:
        return sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )

    before = spent()
    work()
    return spent() - before


def ours(texts: dict[str, list[str]], corpora: list[CorpusConfig], config: CurationConfig) -> int:
    """Rules and MinHash of every text; the number of texts that pass."""
    hasher, passed = MinHasher(config.dedup.bands, config.dedup.rows), 0
    for corpus in corpora:
        rules = config.rules(corpus)
        for text in texts[corpus.name]:
            rule, words = judge(text, rules)
            if rule is None:
                hasher.bands(shingle_runs(words, config.dedup.shingle_words))
                passed += 1
    return passed


def datatroves(texts: dict[str, list[str]], config: CurationConfig, folder: Path) -> int:
    """Datatrove's Gopher filter and MinHash signatures of every text; the number of texts that pass."""
    from datatrove.data import Document
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
    from datatrove.pipeline.filters import GopherQualityFilter

    dedup, passed = config.dedup, 0
    quality = GopherQualityFilter()
    shape = MinhashConfig(n_grams=dedup.shingle_words, num_buckets=dedup.bands, hashes_per_bucket=dedup.rows)

    def passing() -> Any:
        nonlocal passed
        documents = (Document(text, str(n)) for part in texts.values() for n, text in enumerate(part))
        for document in documents:
            if quality.filter(document) is True:
                passed += 1
                yield document

    MinhashDedupSignature(str(folder), config=shape).run(passing(), 0, 1)
    return passed


def documents(corpus: CorpusConfig, directory: Path) -> list[str]:
    """The raw texts of a corpus, which is one shard."""
    [pieces] = source_of(corpus, directory, 1 << 40)[1]
    return [row.text for row in read_shard(corpus, directory, pieces, cap_bytes(corpus), Intake())]


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("experiments/demo.yaml"))
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="what `treering fetch` wrote")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    experiment = load_experiment(arguments.config, ())
    corpora, config = [each for each in experiment.corpora if each.has_text], experiment.curation

    raw = {corpus.name: documents(corpus, arguments.raw / corpus.name) for corpus in corpora}
    megabytes = sum(len(text.encode("utf-8", "replace")) for part in raw.values() for text in part) / 1e6
    texts = {
        corpus.name: [text for text in (extract(each, corpus.kind) for each in raw[corpus.name]) if text]
        for corpus in corpora
    }
    language("the first call loads the model")
    MinHasher(2, 2).bands(shingle_runs(word_hashes("the first call loads the compiled code"), 2))

    seconds: dict[str, list[float]] = {}
    passed: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        project.raw.parent.mkdir(parents=True)
        project.raw.symlink_to(arguments.raw.resolve())

        def round_of(name: str, work: Callable[[], Any]) -> None:
            def run() -> None:
                found = work()
                passed[name] = found if isinstance(found, int) else found["total"]["train"] + found["total"]["heldout"]

            seconds.setdefault(name, []).append(cpu_seconds(run))

        steps = seconds_by_step(lambda: curate(corpora, config, project, lambda _: None, engine=ProcessEngine()))
        for _ in range(arguments.rounds):
            round_of("rules + MinHash", lambda: ours(texts, corpora, config))
            if find_spec("datatrove"):
                round_of("datatrove", lambda: datatroves(texts, config, Path(folder) / "signatures"))
            round_of("whole", lambda: curate(corpora, config, project, lambda _: None, engine=ProcessEngine()))

    rates = {name: megabytes / min(times) for name, times in seconds.items()}
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "load_average": os.getloadavg()[0]},
        "time": time.strftime("%Y-%m-%d"),
        "megabytes": megabytes,
        "documents": sum(map(len, raw.values())),
        "documents_passed": passed,
        "cpu_seconds": seconds,
        "megabytes_a_cpu_second": rates,
        "cpu_seconds_by_step": steps,
        "times_datatrove": rates["rules + MinHash"] / rates["datatrove"] if "datatrove" in rates else None,
    }
    for name, rate in rates.items():
        print(f"{name:<20}{rate:8.2f} MB a CPU second   {passed[name]:,} documents left")
    for step, spent in steps.items():
        print(f"{step:<36}{spent:8.2f} s   {spent / sum(steps.values()):6.1%} of the stage")
    if "datatrove" not in rates:
        print("datatrove is not installed; its figures are left out (see --help)")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
