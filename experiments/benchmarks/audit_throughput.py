"""How fast `treering audit --verify` recomputes batch digests, against plain sha256 over the same bytes.

Makes a synthetic blend of four corpora of random tokens in a temporary folder and recomputes the digest of every batch
of a schedule through the data order. Times are CPU seconds of one process.

    .venv/bin/python experiments/benchmarks/audit_throughput.py --sequence-length 2048 --samples 20000
"""

import argparse
import hashlib
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
from random_blend import random_blend

from treering.audit.corpora.content import batch_digests
from treering.audit.evidence.segments import RecordedSegment
from treering.config.resolved_blend import ResolvedBlend
from treering.config.schedule import Schedule
from treering.data.corpus.corpus import Corpus
from treering.runlog.ancestry import PathSegment

WEIGHTS = {"a": "0.4", "b": "0.3", "c": "0.2", "d": "0.1"}


def main() -> None:
    """Prints one JSON object: samples, seconds, samples/s, MB/s, and the ratio to plain sha256."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequence-length", type=int, default=256)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=8_000_000, help="tokens of each corpus")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), arguments), indent=2))


def random_stretch(
    folder: Path, length: int, samples: int, batch: int, tokens: int
) -> tuple[RecordedSegment, list[Corpus]]:
    """Steps over a blend of four corpora of random tokens, `tokens` each, written below `folder`."""
    blend, corpora = random_blend(folder, WEIGHTS, sequence_length=length, num_tokens=tokens, vocabulary=8192)
    schedule = Schedule(
        sequence_length=length, train_tokens=samples * length, global_batch_size=batch, peak_learning_rate=1.0
    )
    return stretch_of(schedule, blend), corpora


def stretch_of(schedule: Schedule, blend: ResolvedBlend) -> RecordedSegment:
    """All steps of a schedule, of no run: data order and digests need none."""
    return RecordedSegment(1, schedule.num_steps, schedule, blend, cast("PathSegment", SimpleNamespace()))


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Both timings; the files are in the page cache, since they were just written."""
    length = arguments.sequence_length
    stretch, corpora = random_stretch(folder, length, arguments.samples, arguments.batch, arguments.tokens)
    schedule = stretch.schedule

    started = time.process_time()
    steps = sum(1 for _ in batch_digests(stretch, corpora, 1, schedule.num_steps))
    audit_s = time.process_time() - started

    sample_bytes = 4 * (length + 1)
    block = np.random.default_rng(0).integers(0, 256, 4 << 20, dtype=np.uint8).tobytes()
    total = schedule.num_samples * sample_bytes
    started = time.process_time()
    state = hashlib.sha256()
    for _ in range(total // len(block)):
        state.update(block)
    state.update(block[: total % len(block)])
    plain_s = time.process_time() - started
    return {
        "sequence_length": length,
        "steps": steps,
        "samples": schedule.num_samples,
        "audit_cpu_s": round(audit_s, 3),
        "samples_per_second": round(schedule.num_samples / audit_s),
        "digested_mb_per_second": round(total / audit_s / 1e6),
        "plain_sha256_mb_per_second": round(total / plain_s / 1e6),
        "ratio_to_plain_sha256": round(audit_s / plain_s, 2),
    }


if __name__ == "__main__":
    main()
