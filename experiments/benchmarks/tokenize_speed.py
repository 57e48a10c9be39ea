"""Megabytes of curated text that tokenization handles in a second of processor time, beside Megatron's way.

    treering curate experiments/demo.yaml
    treering tokenize experiments/demo.yaml
    python experiments/benchmarks/tokenize_speed.py --json out.json

Reads the curated training documents and the tokenizer of a project, and measures in turns, in one process each:

- `ours`: the shards and the corpora made of them: `corpus.bin`, `corpus.idx`, the document table with a digest of each
  document, and the manifest;
- `megatron`: `corpus.bin` and `corpus.idx` alone, as `tools/preprocess_data.py` of Megatron-LM makes them: a line of
  JSON, one call of `encode` of the same library and tokenizer, megatron-core's `IndexedDatasetBuilder`.

Both write the same `.bin`, which `tokens_are_equal` compares. Rates count the UTF-8 bytes of the texts.
"""

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from tokenizers import Tokenizer

from treering.config.canonical import digest_file
from treering.data.corpus.corpus import BIN, IDX
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.curate.shards import SHARD_BYTES
from treering.data.tokenize.curated import cut, read_documents
from treering.data.tokenize.shards import Joint, Setting, Shard, code_version, join_shards, tokenize_shard

WIDTHS = {2: np.uint16, 4: np.int32}


def ours(paths: list[Path], tokenizer_path: Path, end: int, width: int, out: Path) -> None:
    """Makes a corpus of each file, by its shards."""
    setting = Setting(
        tokenizer_path, digest_file(tokenizer_path), end, width, out / "shards", code_version(), threads=False
    )
    for path in paths:
        shards = [Shard(path.stem, path, number, *place) for number, place in enumerate(cut(path, SHARD_BYTES))]
        parts = tuple(tokenize_shard(setting, shard).folder for shard in shards)
        join_shards(width, Joint(out / path.stem, parts, {"name": path.stem}))


def megatron(paths: list[Path], tokenizer_path: Path, end: int, width: int, out: Path) -> None:
    """Writes a pair of each file."""
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    tokenizer.encode_special_tokens = True
    for path in paths:
        (out / path.stem).mkdir()
        builder = IndexedDatasetBuilder(str(out / path.stem / BIN), dtype=WIDTHS[width])
        with path.open("rb") as file:
            for line in file:
                ids = tokenizer.encode(json.loads(line)["text"]).ids
                ids.append(end)
                builder.add_document(ids, [len(ids)])
        builder.finalize(str(out / path.stem / IDX))


WORK = {"ours": ours, "megatron": megatron}


def cpu_seconds(name: str, *arguments: object) -> float:
    """Processor time of one way; for a process of its own."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    WORK[name](*arguments)  # type: ignore[arg-type]
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curated", type=Path, default=Path("data/curated"), help="what `treering curate` wrote")
    parser.add_argument("--tokenizer", type=Path, default=Path("data/corpora/tokenizer.json"))
    parser.add_argument("--end-of-document", default="<|endoftext|>", help="the token of that name")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    paths = sorted((arguments.curated / "train").glob("*.jsonl"))
    tokenizer = load_tokenizer(arguments.tokenizer)
    end, width = tokenizer.token_to_id(arguments.end_of_document), 2 if tokenizer.get_vocab_size() <= 1 << 16 else 4
    lengths = [len(row["text"].encode()) for path in paths for row in read_documents(path)]

    seconds: dict[str, list[float]] = {name: [] for name in WORK}
    equal = True
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as folder:
                for name, times in seconds.items():
                    out = Path(folder) / name
                    out.mkdir()
                    times.append(pool.apply(cpu_seconds, (name, paths, arguments.tokenizer, end, width, out)))
                equal &= all(
                    (Path(folder) / "ours" / path.stem / BIN).read_bytes()
                    == (Path(folder) / "megatron" / path.stem / BIN).read_bytes()
                    for path in paths
                )

    rates = {name: sum(lengths) / 1e6 / min(times) for name, times in seconds.items()}
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "load_average": os.getloadavg()[0]},
        "time": time.strftime("%Y-%m-%d"),
        "megabytes": sum(lengths) / 1e6,
        "documents": len(lengths),
        "entries": tokenizer.get_vocab_size(),
        "cpu_seconds": seconds,
        "megabytes_a_cpu_second": rates,
        "tokens_are_equal": equal,
        "times_megatron": rates["ours"] / rates["megatron"],
    }
    for name, rate in rates.items():
        print(f"{name:<12}{rate:8.2f} MB a CPU second")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
