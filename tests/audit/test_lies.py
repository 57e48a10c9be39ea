"""What DVC alone gets wrong about a checkpoint, with real DVC; and that the audit says what happened."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from treering.audit.checkpoint import audit_checkpoint
from treering.config.load import load_experiment
from treering.data.blend.corpora import resolve_blend
from treering.project import Project
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def repository(template, tmp_path, monkeypatch):
    """A project under git and DVC whose stage `train` is real but for a model."""
    root = tmp_path / "project"
    shutil.copytree(template.root, root, ignore=shutil.ignore_patterns("runs"))
    shutil.copy(SUPPORT / "stage_trainer.py", root / "train.py")
    monkeypatch.chdir(root)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path]),
        "DVC_NO_ANALYTICS": "1",
        "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org",
    }  # fmt: skip

    def call(*command, check=True):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    call("git", "init", "-q")
    call("dvc", "init", "-q")
    made = SimpleNamespace(root=root, project=Project(root), call=call)
    write_blend(made)
    return made


def stage(repository, *options, persist):
    command = " ".join(["python train.py tiny.yaml", *options])
    entry = {
        "cmd": command,
        "params": [{"tiny.yaml": ["seed", "model", "optimizer", "schedule"]}],
        "deps": ["data/corpora", "data/blend.json"],
        "outs": [{"published": {"persist": True}} if persist else "published"],
    }
    (repository.root / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train": entry}}))


def write_blend(repository, **weights):
    path = repository.root / "tiny.yaml"
    document = yaml.safe_load(path.read_text())
    for component in document["blend"]["components"]:
        component["weight"] = weights.get(component["corpus"], component["weight"])
    path.write_text(yaml.safe_dump(document))
    resolve_blend(load_experiment(path), repository.project).write(repository.project.blend)


def locked(repository):
    (entry,) = yaml.safe_load((repository.root / "dvc.lock").read_text())["stages"].values()
    return {each["path"]: each["md5"] for each in entry["deps"]}


def up_to_date(repository):
    return json.loads(repository.call("dvc", "status", "--json")) == {}


def md5(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def audit(repository, verify=False):
    return audit_checkpoint(RunDirectory(repository.project.published).checkpoints()[-1], repository.project, verify)


def test_persist_claims_a_checkpoint_for_a_blend_that_never_trained_it(repository):
    stage(repository, "--resume-from-out", persist=True)
    repository.call("dvc", "repro")
    assert audit(repository, verify=True).verdict == "content-bound: 15 of 15 steps"
    before = audit(repository).digests
    write_blend(repository, red="0.2", green="0.6")
    assert "0 steps to do" in repository.call("dvc", "repro")
    assert locked(repository)["data/blend.json"] == md5(repository.project.blend)
    assert up_to_date(repository)
    report = audit(repository)
    assert report.digests == before
    (finding,) = report.findings
    assert finding.kind == "lineage"
    assert "dvc.lock: stage train: is said to have read data/blend.json as blend " in finding.text
    assert "(red 0.2, green 0.6, blue 0.2; seed 3), but the checkpoint's rings and manifest say blend" in finding.text
    assert "(red 0.5, green 0.3, blue 0.2; seed 3): it was made before the change" in finding.text

    stage(repository, "--resume-from-out", persist=False)
    assert "15 steps to do" in repository.call("dvc", "repro", "-f"), "what the finding advises"
    assert audit(repository).holds
    assert audit(repository).digests["blend"] != before["blend"]


def test_what_was_trained_beside_dvc_is_not_what_dvc_speaks_of(repository):
    stage(repository, persist=False)
    repository.call("dvc", "repro")
    path = repository.root / "tiny.yaml"
    path.write_text(path.read_text().replace("seed: 7", "seed: 8"))
    repository.call("python", "train.py", "tiny.yaml")
    assert not up_to_date(repository)
    assert audit(repository, verify=True).holds


def test_an_experiment_inherits_the_checkpoint_of_its_baseline(repository):
    stage(repository, "--resume-from-out", persist=True)
    repository.call("dvc", "add", "-q", "data/corpora")
    repository.call("dvc", "repro")
    repository.call("git", "add", "-A")
    repository.call("git", "commit", "-qm", "baseline")
    rate = "tiny.yaml:optimizer.peak_learning_rate=0.009"
    # In a copy, as the queue's worker does it.
    repository.call("dvc", "exp", "run", "-q", "--temp", "-n", "ablation", "-S", rate)
    repository.call("dvc", "exp", "apply", "-q", "ablation")
    assert up_to_date(repository)
    (finding,) = audit(repository).findings
    assert (
        "stage train: is said to have trained with optimizer.peak_learning_rate 0.009, the checkpoint" in finding.text
    )
    assert "recipe says 0.001: the checkpoint is another experiment's and was inherited, not trained" in finding.text


def test_data_that_changed_during_training_are_recorded_as_what_was_read(repository):
    file = repository.project.corpus("red") / "corpus.bin"
    before = md5(file)
    stage(repository, f"--rewrite {file.relative_to(repository.root)}", persist=False)
    repository.call("dvc", "repro")
    assert up_to_date(repository), "DVC hashed the changed file, and knows of no other"
    report = audit(repository, verify=True)
    lineage = [finding for finding in report.findings if finding.kind == "lineage"]
    assert len(lineage) == 1
    assert "is said to have read data/corpora/train/red/corpus.bin with md5 " in lineage[0].text
    assert f"whose file has md5 {before}: the data changed while or after the stage ran" in lineage[0].text
    assert {"corpus", "batch"} <= {finding.kind for finding in report.findings}
    assert report.level == "recorded"


def test_a_rerun_deletes_what_a_killed_stage_had_done_and_ours_resumes(repository):
    stage(repository, "--resume-from-out --die-after 8", persist=False)
    repository.call("dvc", "repro", check=False)
    assert [each.step for each in RunDirectory(repository.project.published).checkpoints()] == [6]
    stage(repository, "--resume-from-out", persist=False)
    assert "15 steps to do" in repository.call("dvc", "repro"), "DVC removed the partial checkpoint"

    stage(repository, "--die-after 8", persist=False)
    repository.call("dvc", "repro", check=False)
    stage(repository, persist=False)
    assert "9 steps to do" in repository.call("dvc", "repro")
    report = audit(repository, verify=True)
    assert [(each.attempt, each.first_step, each.last_step) for each in report.path] == [(1, 1, 6), (2, 7, 15)]
    assert report.verdict == "content-bound: 15 of 15 steps"
