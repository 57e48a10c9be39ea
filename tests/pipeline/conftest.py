"""A whole project in a folder of its own: the repository's files, a tiny config, real text from Python's own docs."""

import json
import os
import pydoc_data.topics
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHUNK_CHARACTERS = 1500

TINY = {
    "experiment": "tiny",
    "description": "two corpora of Python's own documentation and code",
    "seed": 1,
    "start_from": None,
    "corpora": [
        {"name": "docs", "licence": "PSF-2.0", "kind": "prose", "jsonl": "texts/docs.jsonl"},
        {"name": "code", "licence": "PSF-2.0", "kind": "code", "jsonl": "texts/code.jsonl"},
    ],
    "curation": {
        "heldout": {"fraction": 0.15},
        "tasks": {"num_items": 12, "context_words": 30},
    },
    "tokenizer": {"vocabulary_size": 512},
    "blend": {
        "seed": 5,
        "sequence_length": 64,
        "components": [{"corpus": "docs", "weight": "0.6"}, {"corpus": "code", "weight": "0.4"}],
    },
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "padded_vocab_size": 512},
    "optimizer": {"peak_learning_rate": 5e-3, "min_learning_rate": 5e-4},
    "schedule": {
        "train_tokens": 12_288,
        "global_batch_size": 8,
        "rampup": {"start": 4, "increment": 4, "samples": 40},
        "warmup_tokens": 1024,
    },
    "precision": "fp32",
    "parallel": {"micro_batch_size": 2},
    "checkpoint": {"every_steps": 10},
    "validation": {"every_steps": 10, "samples": 4},
    "evaluation": {"shots": [0, 1], "max_items": 8, "perplexity_samples": 4},
    "kernels": {"optimizer": "torch_fused"},
    "telemetry": {"interval_s": 0.5},
    "spikes": {"min_points": 8},
}


def write_texts(folder: Path) -> None:
    """Some 250 documents of English prose and 60 of code, the same on every machine with this Python."""
    folder.mkdir(parents=True)
    with (folder / "docs.jsonl").open("w") as file:
        for name, text in sorted(pydoc_data.topics.topics.items()):
            paragraphs, chunk, number = text.split("\n\n"), "", 0
            for paragraph in [*paragraphs, None]:
                if paragraph is None or len(chunk) > CHUNK_CHARACTERS:
                    file.write(json.dumps({"id": f"{name}-{number}", "text": chunk, "source": f"pydoc:{name}"}) + "\n")
                    chunk, number = "", number + 1
                chunk += textwrap.dedent(paragraph or "") + "\n\n"
    library = Path(os.__file__).parent
    with (folder / "code.jsonl").open("w") as file:
        for path in sorted(library.glob("[a-d]*.py")):
            file.write(json.dumps({"id": path.name, "text": path.read_text()[:6000], "source": path.name}) + "\n")


class PipelineProject:
    """One project on disk and the commands a user types in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        packages = [str(root / folder) for folder in ("platform", "trainer", "dashboard")]
        self.environment = os.environ | {
            # The project's own code, not the checkout that the environment was installed from.
            "PYTHONPATH": os.pathsep.join(packages),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
        }

    def command(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command in the project; its output is shown when it fails."""
        result = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        if check and result.returncode != 0:
            pytest.fail(f"{' '.join(command)} ended with {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def repro(self) -> str:
        """`dvc repro`; returns what it printed."""
        return self.command("dvc", "repro").stdout

    def status(self) -> dict:
        """`dvc status` by stage; empty when everything is up to date."""
        return json.loads(self.command("dvc", "status", "--json").stdout)

    def configure(self, **sections) -> None:
        """Writes the config with some sections replaced."""
        path = self.root / "experiments" / "demo.yaml"
        path.write_text(yaml.safe_dump(TINY | sections, sort_keys=False))

    def runs(self) -> list[Path]:
        """Run folders, oldest first."""
        return sorted((self.root / "runs").iterdir(), key=lambda path: path.stat().st_ctime)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project before its first `dvc repro`."""
    root = tmp_path_factory.mktemp("project")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in tracked.stdout.splitlines():
        if not name.startswith(("tests/", "docs/")) and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    write_texts(root / "texts")
    project = PipelineProject(root)
    project.configure()
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "-A"],
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "start"],
    ):
        project.command(*command)
    return project
