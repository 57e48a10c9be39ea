"""What the index of texts costs to build and to ask, beside two that one would write first.

The corpora of a project, or copies of them one after the other for more, are indexed by `treering index`'s builder with
one process and with one for each core, and in the same call by two peers with one process each:

- `python`: a dictionary from each 13-gram of words to its documents, as `hash` of the words, in memory.
- `suffix array`: numpy sorts all places of the corpus by the 32 tokens that follow (prefix doubling), which finds runs
  of tokens, not of words; on disk with the tokens, as infini-gram lays it (arXiv 2401.17377).

    .venv/bin/python experiments/benchmarks/index_build.py --json out.json
    .venv/bin/python experiments/benchmarks/index_build.py --corpora data/corpora --copies 20 --peer-copies 1

Each build runs in a process of its own, whose CPU seconds (with its workers') and peak memory (of the largest process)
count. The peers need many times the corpus in memory, so they may be given fewer copies (`--peer-copies`); figures are
by token.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST, Corpus
from treering.data.corpus.indexed import index_bytes
from treering.data.corpus.manifest import SCHEMA_VERSION, describe_file, write_manifest
from treering.data.corpus.text import Detokenizer
from treering.data.ngram_index.build import build_index
from treering.data.ngram_index.hashes import ngram_hashes
from treering.data.ngram_index.index import NGRAM_WORDS, NgramIndex, index_directory
from treering.data.words import words

SUFFIX_TOKENS = 32
ASKED = 1000


def copied(corpora: Sequence[Corpus], copies: int, directory: Path) -> Corpus:
    """One corpus of all documents of some, so many times over."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with (directory / BIN).open("wb") as file:
        for _ in range(copies):
            for corpus in corpora:
                file.write((corpus.directory / BIN).read_bytes())
    lengths = np.concatenate([np.diff(corpus.document_offsets) for corpus in corpora] * copies)
    (directory / IDX).write_bytes(index_bytes(lengths.astype(np.int32)))
    table = pa.concat_tables([pq.read_table(corpus.directory / DOCUMENTS) for corpus in corpora] * copies)
    pq.write_table(table, directory / DOCUMENTS)
    about = {key: corpora[0].manifest[key] for key in ("licence", "tokenizer", "token_width_bytes")}
    manifest = {
        **about,
        "name": "copied",
        "schema_version": SCHEMA_VERSION,
        "num_documents": len(lengths),
        "num_tokens": int(lengths.sum()),
        "files": {name: describe_file(directory / name) for name in (BIN, IDX, DOCUMENTS)},
    }
    write_manifest(directory / MANIFEST, manifest)
    return Corpus.open(directory)


def ours(corpus: Path, tokenizer: Path, folder: Path, workers: int) -> int:
    """Builds the index; its bytes."""
    return build_index(Corpus.open(corpus), Detokenizer(tokenizer), folder, workers=workers).num_bytes


def python(corpus: Path, tokenizer: Path, _folder: Path, _workers: int) -> int:
    """A dictionary in memory; the memory that it takes."""
    opened, text_of = Corpus.open(corpus), Detokenizer(tokenizer)
    before = _peak_bytes(resource.RUSAGE_SELF)
    found: dict[int, int | list[int]] = {}
    for number in range(opened.num_documents):
        (text,) = text_of.documents(opened, [number])
        spoken = words(text)
        for ngram in {hash(tuple(spoken[at : at + NGRAM_WORDS])) for at in range(len(spoken) - NGRAM_WORDS + 1)}:
            held = found.setdefault(ngram, number)
            if isinstance(held, list):
                held.append(number)
            elif held != number:
                found[ngram] = [held, number]
    return _peak_bytes(resource.RUSAGE_SELF) - before


def suffix_array(corpus: Path, _tokenizer: Path, folder: Path, _workers: int) -> int:
    """All places sorted by the tokens that follow; bytes of places and tokens."""
    opened = Corpus.open(corpus)
    rank = opened.tokens(0, opened.num_tokens).astype(np.int64)
    length = 1
    while True:
        following = np.zeros_like(rank)
        following[:-length] = rank[length:] + 1
        key = rank * (int(following.max()) + 1) + following
        order = np.argsort(key)
        length *= 2
        if length >= SUFFIX_TOKENS:
            break
        ordered = key[order]
        rank = np.empty_like(order)
        rank[order] = np.concatenate(([0], np.cumsum(ordered[1:] != ordered[:-1])))
    folder.mkdir(parents=True, exist_ok=True)
    places = order.astype(np.uint32)
    places.tofile(folder / "places.bin")
    return places.nbytes + (corpus / BIN).stat().st_size


def lookups(corpus: Corpus, text_of: Detokenizer, folder: Path) -> dict[str, float]:
    """Microseconds of a lookup: of n-grams that stand in the corpus, and of ones that do not."""
    numbers = np.linspace(0, corpus.num_documents - 1, ASKED).astype(int).tolist()
    held = np.unique(ngram_hashes(text_of.documents(corpus, numbers), NGRAM_WORDS)[0])
    held = np.random.default_rng(1).choice(held, min(ASKED, len(held)), replace=False)
    absent = np.random.default_rng(2).integers(0, 1 << 64, ASKED, dtype=np.uint64)
    found = {}
    for name, hashes in (("held", held), ("absent", absent)):
        index = NgramIndex(index_directory(folder, corpus.digest), corpus)
        for warmth in ("first", "again"):  # the first reads and checks each block
            started = time.process_time()
            index.lookup(hashes)
            found[f"{name}_{warmth}_us"] = (time.process_time() - started) / len(hashes) * 1e6
    return found


def measure(corpora: Path, copies: int, peer_copies: int, folder: Path) -> dict[str, Any]:
    """All figures, in the order of the table."""
    tokenizer = corpora / "tokenizer.json"
    opened = [Corpus.open(path.parent) for path in sorted(corpora.glob(f"train/*/{MANIFEST}"))]
    whole, part = (copied(opened, count, folder / f"copies-{count}") for count in (copies, peer_copies))
    cores = len(os.sched_getaffinity(0))
    builds: list[tuple[str, Callable[..., int], Corpus, int]] = [
        ("treering, 1 process", ours, whole, 1),
        (f"treering, {cores} processes", ours, whole, cores),
        ("treering, 1 process, the peers' corpus", ours, part, 1),
        ("python", python, part, 1),
        ("suffix array", suffix_array, part, 1),
    ]
    rows = []
    for name, build, corpus, workers in builds:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            arguments = (corpus.directory, tokenizer, folder / "index", workers)
            rows.append({"name": name, "tokens": corpus.num_tokens, **pool.submit(timed, build, arguments).result()})
    return {
        "machine": {
            "processor": platform.machine(),
            "cores": cores,
            "load_average": os.getloadavg()[0],
            "numpy": np.__version__,
        },
        "documents": whole.num_documents,
        "tokens": whole.num_tokens,
        "builds": rows,
        "lookup": lookups(whole, Detokenizer(tokenizer), folder / "index"),
    }


def timed(build: Callable[..., int], arguments: tuple[Any, ...]) -> dict[str, float]:
    """Runs a build: wall and CPU seconds, bytes of the index, highest memory of a process."""
    started, before = time.perf_counter(), _cpu_s()
    index_bytes = build(*arguments)
    return {
        "wall_s": time.perf_counter() - started,
        "cpu_s": _cpu_s() - before,
        "index_bytes": index_bytes,
        "peak_bytes": max(map(_peak_bytes, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))),
    }


def table(found: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        f"{found['tokens']:,} tokens, {found['documents']:,} documents",
        f"{'':40}{'M tokens/CPU-s':>15}{'M tokens/s':>12}{'bytes/token':>13}{'peak MB':>9}",
    ]
    for each in found["builds"]:
        speeds = f"{each['tokens'] / each['cpu_s'] / 1e6:15.2f}{each['tokens'] / each['wall_s'] / 1e6:12.2f}"
        sizes = f"{each['index_bytes'] / each['tokens']:13.2f}{each['peak_bytes'] / 1e6:9.0f}"
        lines.append(f"{each['name']:40}{speeds}{sizes}")
    for name, value in found["lookup"].items():
        lines.append(f"{'lookup, ' + name.removesuffix('_us').replace('_', ', '):40}{value:15.1f} us")
    return "\n".join(lines)


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _peak_bytes(who: int) -> int:
    return resource.getrusage(who).ru_maxrss * 1024


def main() -> None:
    """Prints the table; writes all figures as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, default=Path("data/corpora"), help="corpora and their tokenizer")
    parser.add_argument("--copies", type=int, default=1, help="how often each document stands in what is indexed")
    parser.add_argument("--peer-copies", type=int, default=1, help="the same for the peers")
    parser.add_argument("--folder", type=Path, help="where everything is written; by default a temporary folder")
    parser.add_argument("--json", type=Path, help="file for all figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        found = measure(arguments.corpora, arguments.copies, arguments.peer_copies, folder)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
