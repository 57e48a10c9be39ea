"""A tiny project with real corpora, and fixtures that train in it in separate processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import text_project

from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering.runlog.lock import is_held

ROOT = Path(__file__).parents[2]

EXPERIMENT = text_project.experiment(
    "tiny",
    seed=7,
    optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
    schedule={
        "train_tokens": 3200,
        "global_batch_size": 8,
        "rampup": {"start": 4, "increment": 4, "samples": 16},
        "warmup_tokens": 640,
    },
    parallel={"micro_batch_size": 2},
    checkpoint={"every_steps": 4},
    validation={"every_steps": 5, "samples": 3},
    telemetry={"interval_s": 0.2},
)


@dataclass
class Training:
    """A launcher that was started.

    Attributes:
        zygote: who started it.
        pid: its process id, which is its process group's.
        runs: the folder that it trains in.
        log: what it printed.
    """

    zygote: "Zygote"
    pid: int
    runs: Path
    log: Path
    code: int | None = None

    def wait(self):
        if self.code is None:
            self.code = self.zygote.ask({"wait": self.pid})["code"]
            while self.code == -signal.SIGKILL and any(is_held(run.lock) for run in find_runs(self.runs)):
                time.sleep(0.01)  # other ranks of a killed group take a moment to end
        return self.code

    def kill(self, number):
        os.killpg(self.pid, number)

    @property
    def output(self):
        return self.log.read_text()


@dataclass
class Zygote:
    """The process that has the trainer imported."""

    process: subprocess.Popen
    folder: Path
    sources: Path
    started: list = field(default_factory=list)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(
        self, project, runs, *options,
        config="tiny.yaml", code_root=None, environ=None, ignored=(), sweep=False, **faults,
    ):  # fmt: skip
        log = self.folder / f"launch-{len(self.started)}.log"
        request = {
            "cwd": str(project.root),
            "arguments": [config, f"--runs={runs}", *options],
            "log": str(log),
            "environ": environ or {},
            "ignored": list(ignored),
            "faults": faults,
            "code_root": str(code_root or self.sources),
            "sweep": sweep,
        }
        self.started.append(Training(self, self.ask({"start": request})["pid"], runs, log))
        return self.started[-1]

    def train(self, project, runs, *options, expect=0, **faults):
        """Trains to the end; returns what was printed."""
        training = self.start(project, runs, *options, **faults)
        assert training.wait() == expect, training.output
        return training.output


def copy_sources(target: Path) -> Path:
    """A copy of the sources that decide numbers, for the digest: the tests' own edits must not reach the tree."""
    for path in ("trainer", "platform"):
        shutil.copytree(ROOT / path, target / path, ignore=shutil.ignore_patterns("__pycache__"))
    return target


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("zygote.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    folder = tmp_path_factory.mktemp("zygote")
    yield Zygote(process, folder, copy_sources(folder / "sources"))
    process.stdin.close()
    process.wait(timeout=30)


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    return text_project.lay(tmp_path_factory.mktemp("project"), EXPERIMENT)


@pytest.fixture(scope="session")
def reference(zygote, project, tmp_path_factory):
    """The uninterrupted run in the demo's layout, two replicas."""
    runs = tmp_path_factory.mktemp("reference")
    zygote.train(project, runs)
    (path,) = runs.glob("*/resolved.json")
    return RunDirectory(path.parent)


@dataclass
class Trials:
    """Trains what `treering.reproduce.trial` starts by the process that has the trainer imported.

    Attributes:
        zygote: that process.
        faults: of the code that is here under this Python; `code_root` is the tree that is on record.
        elsewhere: of another Python.
        started: the trainings.
    """

    zygote: Zygote
    faults: dict = field(default_factory=dict)
    elsewhere: dict = field(default_factory=dict)
    started: list = field(default_factory=list)

    def start(self, command, project, variables):
        config, runs, *options = command[3:]
        changed = {name: value for name, value in variables.items() if os.environ.get(name) != value}
        sources = changed.pop("PYTHONPATH", "").split(os.pathsep)[0]
        faults = self.faults if command[0] == sys.executable else self.elsewhere
        if sources and command[0] == sys.executable:
            root = str(Path(sources).parent)
            faults = {"code_root": root, "run_optimizer_of": {"root": root}}
        training = self.zygote.start(
            text_project.Project(project), Path(runs.removeprefix("--runs=")), *options,
            config=config, environ=changed, **faults,
        )  # fmt: skip
        self.started.append(training)
        return training.wait()


@pytest.fixture
def trials(zygote, monkeypatch):
    found = Trials(zygote)
    monkeypatch.setattr("treering.reproduce.trial.start_trainer", found.start)
    return found
