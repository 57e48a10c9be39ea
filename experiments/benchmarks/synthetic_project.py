"""A whole project of made-up documents, with a run and a checkpoint: what the audit's commands find, at any size.

Everything is real but the texts: all tokens are zero (the `.bin` files are holes), ids, sources and digests of
documents are drawn, and of a `.bin` the manifest holds the digests of its chunks alone. So every command answers as it
would, but for `--verify`.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from synthetic_index import write_index

from treering.config.canonical import digest_bytes, digest_file
from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved import Resolved
from treering.data.blend.corpora import resolve_blend
from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST
from treering.data.corpus.document_table import DOCUMENT_SCHEMA
from treering.data.corpus.manifest import CHUNK_BYTES, SCHEMA_VERSION, describe_file, write_manifest
from treering.data.corpus.mapped_offsets import MappedOffsets
from treering.data.corpus.text_tokenizer import train_tokenizer
from treering.project import Project
from treering.runlog.directory import MANIFEST_FILE, RunDirectory, checkpoint_name
from treering.runlog.folders import HEADER_FILE
from treering.runlog.records import AttemptHeader, AttemptLayout, CheckpointManifest
from treering.runlog.ring import RINGS_FILE, Ring
from treering.runlog.writer import RingWriter

LENGTH = 2048
ROW_GROUP = 8192
"""As `treering.data.corpus.table` writes it."""
LICENCES = ("MIT", "CC-BY-4.0", "CC0-1.0", "various")
SHARES = {"large": 0.8, "middle": 0.15, "small": 0.05}
"""Parts of tokens and documents that each corpus holds."""
HELD_OUT = 0.02
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_LAYOUT = AttemptLayout(tensor=1, pipeline=1, data=8, micro_batch_size=2, device="cuda", backend="nccl")


def write_project(root: Path, num_documents: int, num_tokens: int, steps: int, batch: int) -> Resolved:
    """Writes a project whose run read `steps` batches.

    Args:
        root: made.
        num_documents: of all training corpora.
        num_tokens: of all training corpora.
        steps: of the run; one ring each, and a checkpoint after the last.
        batch: samples of a step.
    """
    project = Project(root)
    project.corpora.mkdir(parents=True)
    config = SimpleNamespace(vocabulary_size=270, min_frequency=2, end_of_document="<|endoftext|>")
    train_tokenizer(["ring tree bark root"] * 50, config).save(str(project.tokenizer))
    for seed, (name, share) in enumerate(SHARES.items()):
        for split, part in (("train", 1.0), ("heldout", HELD_OUT)):
            counts = int(num_documents * share * part), int(num_tokens * share * part)
            write_corpus(project.corpus(name, split), name, split, counts, digest_file(project.tokenizer), seed)
    file = root / "scale.yaml"
    file.write_text(yaml.safe_dump(_config(steps * batch * LENGTH, batch)), encoding="utf-8")
    experiment = load_experiment(file, [])
    resolved = resolve(experiment, resolve_blend(experiment, project), str(file), runs=project.runs)
    project.run(resolved.run_id).mkdir(parents=True)
    resolved.write(RunDirectory(project.run(resolved.run_id)).config_file)
    _lay(project.run(resolved.run_id), resolved)
    return resolved


def write_corpus(  # noqa: PLR0917 - of one kind, called above
    folder: Path, name: str, split: str, counts: tuple[int, int], tokenizer: str, seed: int
) -> None:
    """Writes a corpus of (documents, tokens) zeros."""
    num_documents, num_tokens = counts
    folder.mkdir(parents=True)
    write_index(folder / IDX, num_documents, num_tokens, seed)
    with (folder / BIN).open("wb") as file:
        file.truncate(2 * num_tokens)
    offsets, random = MappedOffsets.open(folder / IDX), np.random.default_rng([seed, len(split)])
    with pq.ParquetWriter(folder / DOCUMENTS, DOCUMENT_SCHEMA, compression="zstd") as writer:
        for first in range(0, num_documents, ROW_GROUP):
            end = min(first + ROW_GROUP, num_documents)
            writer.write_table(_rows(name, first, np.diff(offsets[first : end + 1]), random))
    sizes = [min(CHUNK_BYTES, 2 * num_tokens - start) for start in range(0, 2 * num_tokens, CHUNK_BYTES)]
    digests = {size: digest_bytes(bytes(size)) for size in set(sizes)}
    tokens_file = {"size": 2 * num_tokens, "sha256": "", "chunks": [digests[size] for size in sizes], "dvc_md5": ""}
    about = {
        "name": name,
        "split": split,
        "licence": "various",
        "source": ["synthetic"],
        "tokenizer": {"digest": tokenizer, "end_of_document": 0},
        "curation": [],
        "schema_version": SCHEMA_VERSION,
        "num_documents": num_documents,
        "num_tokens": num_tokens,
        "token_width_bytes": 2,
        "files": {BIN: tokens_file} | {each: describe_file(folder / each) for each in (IDX, DOCUMENTS)},
    }
    write_manifest(folder / MANIFEST, about)


def _rows(name: str, first: int, lengths: np.ndarray, random: np.random.Generator) -> pa.Table:
    count = len(lengths)
    digits = _HEX[random.integers(0, 16, (count, 64))]
    digests = np.concatenate([np.broadcast_to(np.frombuffer(b"sha256:", np.uint8), (count, 7)), digits], axis=1)
    columns = {
        "id": [f"{name}/{first + each:09d}-{tail:08x}" for each, tail in enumerate(random.integers(0, 2**32, count))],
        "source": [f"https://data.example.org/{name}/{each:05d}.jsonl.zst" for each in random.integers(0, 200, count)],
        "offset": random.integers(0, 10**9, count),
        "licence": np.array(LICENCES)[random.integers(0, len(LICENCES), count)],
        "tokens": lengths,
        "digest": [row.tobytes().decode() for row in digests],
    }
    return pa.table(columns, schema=DOCUMENT_SCHEMA)


def _config(train_tokens: int, batch: int) -> Mapping[str, Any]:
    return {
        "experiment": "scale",
        "seed": 7,
        "corpora": [{"name": name, "licence": "MIT", "jsonl": f"{name}.jsonl"} for name in SHARES],
        "tokenizer": {"vocabulary_size": 270},
        "blend": {
            "seed": 3,
            "sequence_length": LENGTH,
            "components": [{"corpus": name, "weight": str(share)} for name, share in SHARES.items()],
        },
        "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 320},
        "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
        "schedule": {"train_tokens": train_tokens, "global_batch_size": batch},
        "parallel": {"micro_batch_size": 2, "data": 8},
        "checkpoint": {"every_steps": 1000},
    }


def _lay(run: Path, resolved: Resolved) -> None:
    """Lays every ring, and a checkpoint without files after half of the steps and after all."""
    attempt, schedule = run / "attempts" / "0001", resolved.schedule
    attempt.mkdir(parents=True)
    records: dict[str, Any] = {"attempt": 1, "run": resolved.recipe.digest, "blend": resolved.blend.digest}
    code, environment = ({"digest": digest_bytes(each)} for each in (b"code", b"environment"))
    header = AttemptHeader(
        **records,
        parent=None,
        origin="start",
        changed=(),
        continue_changed=False,
        started_at=1.0,
        host="node",
        process=1,
        config=resolved.attempt,
        layout=_LAYOUT,
        code=code,
        environment=environment,
        devices=(),
        kernels=(),
        corpora={component.corpus: component.digest or "" for component in resolved.blend.components},
        upstream=None,
    )
    sample = hashlib.sha256(bytes(4 * (LENGTH + 1))).digest()
    with RingWriter(attempt / RINGS_FILE, Ring, header.write(attempt / HEADER_FILE)) as writer:
        for step in range(1, schedule.num_steps + 1):
            lo, hi = schedule.sample_range(step)
            ring = writer.append(
                step=step,
                sample_start=lo,
                sample_end=hi,
                consumed_samples=hi,
                consumed_tokens=hi * LENGTH,
                applied=True,
                loss=2.0,
                grad_norm=0.5,
                learning_rate=schedule.step_learning_rate(step),
                global_batch_size=hi - lo,
                loss_scale=None,
                time_s=dict.fromkeys(("step", "data", "forward_backward", "communication", "optimizer"), 0.25),
                tokens_per_second=1e5,
                tflops_per_device=100.0,
                flops_formula="megatron",
                ended_at=float(step),
                validation=None,
                batch_digest=digest_bytes(sample * (hi - lo)),
            )
            if step in {max(schedule.num_steps // 2, 1), schedule.num_steps}:
                folder = run / "checkpoints" / checkpoint_name(step)
                folder.mkdir(parents=True)
                CheckpointManifest(
                    **records,
                    step=step,
                    consumed_samples=hi,
                    consumed_tokens=hi * LENGTH,
                    applied_steps=step,
                    ring=ring.digest,
                    tokenizer=resolved.blend.tokenizer,
                    code=code["digest"],
                    environment=environment["digest"],
                    upstream=None,
                    layout=_LAYOUT,
                    created_at=2.0,
                    files=(),
                ).write(folder / MANIFEST_FILE)
