"""A tiny real project that several areas test on: text, corpora, tasks, and a run trained by the real trainer."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from treering.config.load import load_experiment
from treering.data.blend import resolve_blend
from treering.data.tokenize import tokenize
from treering.project import Project

EXPERIMENT = {
    "experiment": "scored",
    "seed": 5,
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
    "optimizer": {"peak_learning_rate": 0.01, "min_learning_rate": 0.001},
    "schedule": {"train_tokens": 2560, "global_batch_size": 8, "warmup_tokens": 512},
    # Tensor parallelism: the weights of each layer lie in two files.
    "parallel": {"tensor": 2, "micro_batch_size": 4},
    "checkpoint": {"every_steps": 5},
    "validation": {"every_steps": 5, "samples": 3},
    "evaluation": {"shots": [0, 1, 3], "max_items": 12, "perplexity_samples": 3},
}
WORDS = {
    "letters": [a + b + c for a in "bcdfg" for b in "aeiou" for c in "lmnrst"],
    "numbers": [f"{number:03d}" for number in range(100)],
}


def text(rng, corpus, length):
    """Words of a corpus, the first ones oftenest."""
    words = WORDS[corpus]
    return " ".join(rng.choices(words, weights=range(len(words), 0, -1), k=length))


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_tasks(directory):
    rng = random.Random(1)
    write_jsonl(
        directory / "lambada.jsonl",
        [
            {
                "id": f"l{i}",
                "context": text(rng, "letters", 5),
                "target": text(rng, "letters", 1),
                "document": f"d{i // 2}",
            }
            for i in range(16)
        ],
    )
    write_jsonl(
        directory / "cloze.jsonl",
        [
            {
                "id": f"c{i}",
                "context": text(rng, "letters", 5),
                "choices": [text(rng, "numbers", 2), text(rng, "letters", 2), text(rng, "letters", 3)],
                "gold": 1,
                "document": f"d{i // 2}",
            }
            for i in range(16)
        ],
    )


def run_module(project, *arguments):
    """Runs a module of the trainer in the project's folder; returns its output, fails on any exit code but 0."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *arguments],
        cwd=project.root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def scored_project(tmp_path_factory):
    """Trained: 10 steps, checkpoints at 5 and 10."""
    project = Project(tmp_path_factory.mktemp("scored"))
    for name in WORDS:
        for split, count in (("train", 60), ("heldout", 4)):
            rng = random.Random(f"{name} {split}")
            write_jsonl(
                project.curated / split / f"{name}.jsonl",
                [
                    {
                        "id": f"{name}-{i}",
                        "text": text(rng, name, 40),
                        "source": "test",
                        "offset": i,
                        "licence": "CC0-1.0",
                    }
                    for i in range(count)
                ],
            )
        steps = project.curated / "provenance" / f"{name}.json"
        steps.parent.mkdir(exist_ok=True)
        steps.write_text(json.dumps([{"step": "test", "input": name}]))
    write_tasks(project.tasks)
    (project.root / "scored.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    experiment = load_experiment(project.root / "scored.yaml")
    tokenize(experiment.corpora, experiment.tokenizer, project, say=lambda _: None)
    resolve_blend(experiment, project).write(project.blend)
    run_module(project, "treering_trainer.launch", "scored.yaml")
    return project


@pytest.fixture(scope="session")
def scored_run(scored_project) -> Path:
    """The one run's folder."""
    (folder,) = (path.parent for path in scored_project.runs.glob("*/resolved.json"))
    return folder
