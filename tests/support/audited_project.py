"""A small project with real corpora and a run of two attempts, whose batch digests are computed here by brute force."""

import hashlib
import random
import struct
from types import SimpleNamespace

import numpy as np
import run_records
import yaml
from corpus_writer import write_corpus

from treering.config.canonical import digest_file
from treering.config.load import load_experiment
from treering.data.blend.continuation import resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.data.corpus.text_tokenizer import load_tokenizer, train_tokenizer
from treering.data.order.treering1 import DataOrder
from treering.project import Project
from treering.runlog.directory import RunDirectory, checkpoint_name
from treering.runlog.records import FileRecord
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter

LENGTH = 16
CONFIG = {
    "experiment": "tiny",
    "seed": 7,
    "corpora": [
        {"name": name, "licence": licence, "jsonl": f"{name}.jsonl"}
        for name, licence in (("red", "CC0-1.0"), ("green", "MIT"), ("blue", "Apache-2.0"))
    ],
    "tokenizer": {"vocabulary_size": 280},
    "blend": {
        "seed": 3,
        "sequence_length": LENGTH,
        "components": [
            {"corpus": "red", "weight": "0.5"},
            {"corpus": "green", "weight": "0.3"},
            {"corpus": "blue", "weight": "0.2"},
        ],
    },
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 320},
    "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
    "schedule": {
        "train_tokens": 160 * LENGTH,
        "global_batch_size": 16,
        "rampup": {"start": 4, "increment": 4, "samples": 48},
    },
    "parallel": {"micro_batch_size": 2, "data": 2},
    "checkpoint": {"every_steps": 15},
}
DOCUMENTS = {"red": 20, "green": 30, "blue": 200}  # red is read more than once, most of blue not at all


def write_corpora(project):
    words = random.Random(5)
    texts = {
        name: [
            " ".join(words.choice(("ring", "tree", "bark", "root", name)) for _ in range(words.randint(3, 12)))
            for _ in range(count)
        ]
        for name, count in DOCUMENTS.items()
    }
    project.corpora.mkdir(parents=True)
    config = SimpleNamespace(vocabulary_size=280, min_frequency=2, end_of_document="<|endoftext|>")
    train_tokenizer([text for each in texts.values() for text in each], config).save(str(project.tokenizer))
    tokenizer = load_tokenizer(project.tokenizer)
    end = tokenizer.token_to_id("<|endoftext|>")
    for corpus in CONFIG["corpora"]:
        name = corpus["name"]
        rows = [
            {
                "id": f"{name}-{number}",
                "text": text,
                "source": f"{name}.jsonl",
                "offset": number,
                "licence": corpus["licence"],
            }
            for number, text in enumerate(texts[name])
        ]
        about = {
            "name": name,
            "split": "train",
            "licence": corpus["licence"],
            "source": ["jsonl"],
            "tokenizer": {"digest": digest_file(project.tokenizer), "end_of_document": end},
            "curation": [],
        }
        write_corpus(project.corpus(name), rows, tokenizer, end, about)
    return texts


def brute_batch_digest(project, order, lo, hi):
    """Sample by sample, token by token, from the raw bytes of the `.bin` files."""
    length = order.sequence_length
    raw = []
    for g in range(lo, hi):
        sample = order.sample(g)
        name = order.components[sample.component].corpus
        tokens = np.fromfile(project.corpus(name) / "corpus.bin", "<u2").tolist()
        cut = tokens[sample.index * length : sample.index * length + length + 1]
        raw.append(hashlib.sha256(b"".join(struct.pack("<I", token) for token in cut)).digest())
    return f"sha256:{hashlib.sha256(b''.join(raw)).hexdigest()}"


def lay_attempt(project, run, number, steps, parent=None, **changed):
    """One attempt with true batch digests; `changed` maps `step_<n>` to fields that a faulty trainer would write."""
    resolved = run.resolved
    order = DataOrder(resolved.blend)
    directory = run.path / "attempts" / f"{number:04d}"
    directory.mkdir(parents=True)
    digest = run_records.header(resolved, number, parent=parent).write(directory / "header.json")
    rings = []
    with RingWriter(directory / "rings.jsonl", Ring, digest) as writer:
        for step in steps:
            lo, hi = resolved.schedule.sample_range(step)
            fields = {
                "applied": step != 2,
                "consumed_samples": resolved.consumed_samples(step),
                "consumed_tokens": resolved.consumed_tokens(step),
                "learning_rate": resolved.schedule.step_learning_rate(step),
                "batch_digest": brute_batch_digest(project, order, lo, hi),
            }
            values = fields | changed.get(f"step_{step}", {})
            length = resolved.blend.sequence_length
            rings.append(writer.append(**run_records.ring_values(step, (lo, hi), length, **values)))
    return rings


def cut_checkpoint(run, attempt, ring, **changed):
    directory = run.path / "checkpoints" / checkpoint_name(ring.step)
    directory.mkdir(parents=True)
    weights = directory / "weights.bin"
    weights.write_bytes(bytes([ring.step]) * 1000)
    fields = {
        "applied_steps": ring.step - (ring.step >= 2),
        "files": (FileRecord(path="weights.bin", size=1000, digest=digest_file(weights)),),
    }
    return run_records.manifest(run.resolved, attempt, ring, **(fields | changed)).write(directory / "manifest.json")


def start_run(project, *overrides):
    file = project.root / "tiny.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    experiment = load_experiment(file, overrides)
    resolved = resolve_run(experiment, resolve_blend(experiment, project), str(file), runs=project.runs)
    run = RunDirectory(project.run(resolved.run_id))
    run.path.mkdir(parents=True)
    resolved.write(run.path / "resolved.json")
    return run


def lay_project(root):
    """Attempt 1 does steps 1 to 9 and dies after the checkpoint of step 6; attempt 2 goes on to the end.

    Returns:
        The text of each document, by corpus.
    """
    project = Project(root)
    texts = write_corpora(project)
    run = start_run(project)
    first = lay_attempt(project, run, 1, range(1, 10))
    cut_checkpoint(run, 1, first[5])
    steps = range(7, run.resolved.schedule.num_steps + 1)
    second = lay_attempt(project, run, 2, steps, run_records.parent(run.checkpoints()[0]))
    cut_checkpoint(run, 2, second[-1])
    return texts
