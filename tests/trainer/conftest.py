"""A tiny project with real corpora, and the means to train in it in processes of its own."""

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from treering.config.load import load_experiment
from treering.config.resolve import ResolvedBlend
from treering.data.blend import resolve_blend
from treering.data.tokenize import tokenize
from treering.project import Project
from treering.runlog.directory import RunDirectory

EXPERIMENT = {
    "experiment": "tiny",
    "seed": 7,
    "corpora": [
        {"name": "letters", "licence": "CC0-1.0", "jsonl": "letters.jsonl"},
        {"name": "numbers", "licence": "CC0-1.0", "jsonl": "numbers.jsonl"},
    ],
    "tokenizer": {"vocabulary_size": 400},
    "blend": {
        "seed": 3,
        "sequence_length": 32,
        "components": [{"corpus": "letters", "weight": "0.7"}, {"corpus": "numbers", "weight": "0.3"}],
    },
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 512},
    "optimizer": {"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
    "schedule": {
        "train_tokens": 3200,
        "global_batch_size": 8,
        "rampup": {"start": 4, "increment": 4, "samples": 16},
        "warmup_tokens": 640,
    },
    "parallel": {"micro_batch_size": 2},
    "checkpoint": {"every_steps": 4},
    "validation": {"every_steps": 5, "samples": 3},
    "telemetry": {"interval_s": 0.2},
}


def _documents(seed, words, count):
    rng = random.Random(seed)
    for number in range(count):
        text = " ".join(rng.choices(words, weights=range(len(words), 0, -1), k=rng.randint(20, 60)))
        yield {"id": f"{seed}-{number}", "text": text, "source": "test", "offset": number, "licence": "CC0-1.0"}


def make_project(root: Path) -> Project:
    """Curated text, tokenized by the real stage, and an experiment to train on it."""
    project = Project(root)
    words = {
        "letters": [a + b + c for a in "bcdfg" for b in "aeiou" for c in "lmnrst"],
        "numbers": [f"{number:03d}" for number in range(100)],
    }
    for seed, (name, vocabulary) in enumerate(words.items()):
        for split, count in (("train", 60), ("heldout", 4)):
            path = project.curated / split / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = _documents(seed * 2 + (split == "heldout"), vocabulary, count)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        steps = project.curated / "provenance" / f"{name}.json"
        steps.parent.mkdir(exist_ok=True)
        steps.write_text(json.dumps([{"step": "test", "input": name}]))
    config = root / "tiny.yaml"
    config.write_text(yaml.safe_dump(EXPERIMENT))
    experiment = load_experiment(config)
    tokenize(experiment.corpora, experiment.tokenizer, project, say=lambda _: None)
    resolve_blend(experiment, project).write(project.blend)
    return project
