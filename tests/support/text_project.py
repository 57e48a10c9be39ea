"""A small project on two corpora of made-up text, tokenized by the real stage, and an experiment to train on it."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from treering.config.load import load_experiment
from treering.data.blend.corpora import resolve_blend
from treering.data.tokenize.stage import tokenize
from treering.project import Project

WORDS = {
    "letters": [a + b + c for a in "bcdfg" for b in "aeiou" for c in "lmnrst"],
    "numbers": [f"{number:03d}" for number in range(100)],
}


def experiment(name: str, **sections: Any) -> dict[str, Any]:
    """The authored document but for the sections that say how to train: optimizer, schedule, parallel, checkpoint."""
    return {
        "experiment": name,
        "corpora": [{"name": corpus, "licence": "CC0-1.0", "jsonl": f"{corpus}.jsonl"} for corpus in WORDS],
        "tokenizer": {"vocabulary_size": 400},
        "blend": {
            "seed": 3,
            "sequence_length": 32,
            "components": [{"corpus": "letters", "weight": "0.7"}, {"corpus": "numbers", "weight": "0.3"}],
        },
        "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 512},
        **sections,
    }


def text(rng: random.Random, corpus: str, length: int) -> str:
    """Words of a corpus, the first ones oftenest."""
    words = WORDS[corpus]
    return " ".join(rng.choices(words, weights=range(len(words), 0, -1), k=length))


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def lay(root: Path, document: dict[str, Any], heldout: int = 4) -> Project:
    """Curated text, its corpora and blend, and the experiment as `<its name>.yaml`."""
    project = Project(root)
    for name in WORDS:
        for split, count in (("train", 60), ("heldout", heldout)):
            rng = random.Random(f"{name} {split}")
            write_jsonl(
                project.curated / split / f"{name}.jsonl",
                [
                    {
                        "id": f"{name}-{i}",
                        "text": text(rng, name, rng.randint(20, 60)),
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
    config = root / f"{document['experiment']}.yaml"
    config.write_text(yaml.safe_dump(document))
    loaded = load_experiment(config)
    tokenize(loaded.corpora, loaded.tokenizer, loaded.curation, project, say=lambda _: None)
    resolve_blend(loaded, project).write(project.blend)
    return project


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


def evaluate(project, *words, code=0):
    """Evaluates as `treering evaluate` does, in this process: starting torch takes longer than evaluating."""
    from treering_trainer.evaluate.__main__ import main

    output = io.StringIO()
    with contextlib.chdir(project.root), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        assert main(list(words)) == code, output.getvalue()
    return output.getvalue()
