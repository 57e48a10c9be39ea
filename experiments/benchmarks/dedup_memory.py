"""What deduplication takes in memory and time, on synthetic signatures of many documents.

    .venv/bin/python experiments/benchmarks/dedup_memory.py --documents 10000000 --json results.json

A tenth of the documents are exact copies and a tenth are near-duplicates of documents far before them. The shingle sets
are computed and not read from a text, so the time is that of finding the candidates and not of reading them again. The
bands are MT-NLG's 20. The verdict is checked.
"""

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from treering.data.curate.dedup import EXACT, MEMORY_BYTES, NEAR, find_duplicates
from treering.data.curate.shelf import DIGEST_BYTES, Signatures
from treering.data.words import Hashes

BANDS = 20
SHINGLES = 64
CHANGED = 3
SAME_BAND = 0.29
"""How often a band of 13 rows agrees at this Jaccard similarity: (61 / 67)¹³."""
CHUNK = 1 << 16


def write_signatures(folder: Path, documents: int) -> Signatures:
    """Writes digests and bands, a block after the other."""
    signatures = Signatures(folder / "corpus")
    with signatures.digests.path.open("wb") as digests, signatures.paths[-1].open("wb") as bands:
        for begin in range(0, documents, CHUNK):
            numbers = np.arange(begin, min(documents, begin + CHUNK))
            texts = original(numbers, documents)
            same_text = np.where(numbers < documents * 9 // 10, numbers, texts)
            hashed_bands = hashed(texts[:, None] * BANDS + np.arange(BANDS))
            other = np.random.default_rng(begin).random(hashed_bands.shape) > SAME_BAND
            other[(numbers < documents * 8 // 10) | (numbers >= documents * 9 // 10)] = False
            other[:, 0] = False
            np.where(other, hashed(hashed_bands.astype(np.int64) + numbers[:, None]), hashed_bands).tofile(bands)
            hashed(same_text[:, None] * 2 + np.arange(DIGEST_BYTES // 8)).tofile(digests)
    with signatures.rows.path.open("wb") as rows:
        rows.truncate(8 * documents)
    return signatures


def original(numbers: np.ndarray, documents: int) -> np.ndarray:
    """The document that a document is a copy of, or its own number."""
    num_own, num_near = documents * 8 // 10, documents * 9 // 10 - documents * 8 // 10
    copies = np.where(numbers < num_own + num_near, numbers - num_own, numbers - num_own - num_near)
    return np.where(numbers < num_own, numbers, (copies * 7 + 3) % num_own)


def hashed(values: np.ndarray) -> Hashes:
    """A pseudo-random number for each number (the finalizer of splitmix64)."""
    result = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return result ^ (result >> np.uint64(31))


def main() -> None:
    """Writes the signatures, removes the duplicates, and prints memory and time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--memory-mib", type=int, default=MEMORY_BYTES >> 20)
    parser.add_argument("--folder", type=Path, help="where the files go; needs 500 bytes a document")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    documents = options.documents
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    num_own = documents * 8 // 10

    def shingles(number: int) -> Hashes:
        base = int(original(np.array(number), documents))
        found = np.arange(base * 2 * SHINGLES, base * 2 * SHINGLES + SHINGLES, dtype=np.uint64)
        if number >= num_own:
            found[-CHANGED:] += np.uint64(CHANGED)
        return found

    try:
        signatures = write_signatures(folder, documents)
        before = resource.getrusage(resource.RUSAGE_SELF)
        start = time.monotonic()
        found = find_duplicates(
            [signatures],
            shingles,
            folder / "scratch",
            min_jaccard=0.8,
            cluster_jaccard=0.5,
            memory_bytes=options.memory_mib << 20,
        )
        wall = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_SELF)
        counts = np.bincount(found.rule, minlength=3).tolist()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    planted = [num_own, documents - documents * 9 // 10, documents * 9 // 10 - num_own]
    if counts != planted:
        sys.exit(f"kept, exact and near: found {counts}, planted {planted}")
    result = {
        "documents": documents,
        "memory_limit_mib": options.memory_mib,
        "peak_rss_mib": after.ru_maxrss >> 10,
        "rss_before_mib": before.ru_maxrss >> 10,
        "exact": counts[EXACT],
        "near": counts[NEAR],
        "compared": found.num_compared,
        "seconds": round(wall, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    }
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
