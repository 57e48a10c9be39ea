"""Steps that are trained again: the same to the last bit, or found out."""

import dataclasses
import json
import math
import shutil

import pytest
from typer.testing import CliRunner

from treering.audit.attestation.check import attested, check_attestation
from treering.audit.attestation.keys import PrivateKey, generate
from treering.audit.attestation.sign import attest
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.replay import replay_steps, replayed
from treering.audit.report import NOT_REPLAYED, Level
from treering.cli import app
from treering.errors import TrainingError
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering_trainer.replay.__main__ import _compared

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def audit_with_replay(checkpoint, project, monkeypatch, seed):
    monkeypatch.chdir(project.root)
    report = audit_checkpoint(checkpoint, project, verify=True)
    assert NOT_REPLAYED in report.not_proven
    return replayed(report, replay_steps(checkpoint, 2, seed))


def test_an_honest_run_comes_out_the_same(project, reference, monkeypatch):
    """In the layout of the attempt, from the beginning and from the checkpoint of step 8."""
    before = sorted(path for path in reference.path.rglob("*") if path.is_file())
    report = audit_with_replay(reference.checkpoints()[-1], project, monkeypatch, seed=1)
    assert report.replay.picked == (3, 10)
    assert (report.replay.replayed, report.replay.identical) == (5, 5)  # steps 1 to 3, 9 and 10
    assert report.findings == ()
    assert report.level is Level.REPLAYED
    assert report.levels == (Level.DECLARED, Level.REDERIVED, Level.RECORDED, Level.CONTENT_BOUND, Level.REPLAYED)
    assert "That the weights follow from the other steps: 5 of 15 were replayed." in report.not_proven
    assert json.loads(json.dumps(report.to_json()))["replay"]["seed"] == 1
    assert sorted(path for path in reference.path.rglob("*") if path.is_file()) == before


def test_replayed_steps_are_compared_by_their_bits(reference):
    ring = next(iter(reference.path_rings()))
    values = {"loss": math.nan, "grad_norm": 0.0}
    one, again = (dataclasses.replace(ring, **values) for _ in range(2))
    assert _compared(one, again, picked=True).identical
    assert not _compared(one, dataclasses.replace(again, grad_norm=-0.0), picked=True).identical


def test_a_step_that_was_not_trained_as_recorded_is_found(zygote, project, tmp_path, monkeypatch):
    """Every record holds, every batch is bound to content; only the update was another one."""
    zygote.train(project, tmp_path, "--no-publish", secret_rate={"step": 9})
    (path,) = tmp_path.glob("*/resolved.json")
    report = audit_with_replay(RunDirectory(path.parent).checkpoints()[-1], project, monkeypatch, seed=1)
    assert (report.replay.replayed, report.replay.identical) == (5, 4)
    (finding,) = report.findings
    assert finding.step == 10
    assert "is recorded" in finding.text
    assert report.level is Level.CONTENT_BOUND
    assert not report.holds


def test_what_was_replayed_is_signed_and_not_lent(project, reference, tmp_path, monkeypatch):
    monkeypatch.chdir(project.root)
    recorded = reference.attempts()[0].header.environment["variables"]
    for name in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"):
        # megatron-core sets them where a model was built, as other tests do in this process
        if name in recorded:
            monkeypatch.setenv(name, recorded[name])
        else:
            monkeypatch.delenv(name, raising=False)
    _, public = generate(tmp_path / "signer.pem")
    signer, checkpoint = PrivateKey.read(tmp_path / "signer.pem"), reference.checkpoints()[-1]
    path, statement = attest(checkpoint, project, signer, output=tmp_path / "signed.json", replay=2, seed=1)
    said = statement.predicate.assurance
    assert (said.level, said.steps_content_bound) == (Level.REPLAYED, 15)
    assert json.loads(statement.to_bytes())["predicate"]["assurance"]["replay"] == {
        "seed": 1,
        "picked": [3, 10],
        "replayed": 5,
        "identical": 5,
        "changed": [],
    }
    assert "That the weights follow from the other steps: 5 of 15 were replayed." in said.not_proven
    result = check_attestation(path, [signer.public], checkpoint, project)
    assert (result.findings, result.statement) == ((), statement)
    report = attested(audit_checkpoint(checkpoint, project), checkpoint, [signer.public], path)
    assert report.levels == (Level.DECLARED, Level.REDERIVED, Level.RECORDED, Level.ATTESTED)
    assert (report.attestation.signed_level, report.attestation.signed_replay) == (Level.REPLAYED, said.replay.steps)
    assert report.replay is None
    assert NOT_REPLAYED in report.not_proven
    for command in ("verify", "audit"):
        arguments = [command, str(checkpoint.path), "--attestation", str(path), "--public-key", str(public)]
        shown = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
        assert "level replayed" in shown
        assert "steps 3, 10 (seed 1): 5 of 5 steps that ran again are the same to the last bit" in shown


def test_a_replay_promotes_where_the_policy_asks_for_it(project, reference, tmp_path, monkeypatch, treering):
    here = Project(shutil.copytree(project.root, tmp_path / "project"))
    run = RunDirectory(shutil.copytree(reference.path, here.runs / reference.path.name))
    here.settings.write_text("promotion: {production: replayed}\n")
    monkeypatch.chdir(here.root)
    monkeypatch.delenv("TREERING_DATABASE_URL", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert (code, "found level content-bound, expected replayed" in err) == (3, True)
    code, out, err = treering("promote", run.id, "--alias", "production", "--replay", "1", "--json")
    assert code == 0, err
    promoted = json.loads(out)
    assert (promoted["level"], promoted["required"]) == ("replayed", "replayed")
    assert promoted["checkpoint"] == run.checkpoints()[-1].digest
    assert run.journal.lines()[-1].entry.level == "replayed"


def test_a_replay_without_the_corpora_says_why(reference, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrainingError, match="could not be replayed"):
        replay_steps(reference.checkpoints()[-1], 1, seed=1)
    assert "`treering tokenize CONFIG`" in capfd.readouterr().err


def test_a_training_stops_after_a_step(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, "--stop-after=6", "--no-publish", expect=75)
    (path,) = tmp_path.glob("*/resolved.json")
    run = RunDirectory(path.parent)
    end = run.attempts()[0].end
    assert (end.status, end.reason, end.step) == ("interrupted", "asked to stop after step 6", 6)
    assert [each.step for each in run.checkpoints()] == [4, 6]
    zygote.train(project, tmp_path, "--no-publish")
    ours, theirs = ([ring.loss for ring in each.path_rings(each.checkpoints()[-1])] for each in (run, reference))
    assert ours == theirs


def test_a_resolved_config_is_trained_as_it_is(zygote, project, reference, tmp_path):
    resolved = str(reference.path / "resolved.json")
    training = zygote.start(project, tmp_path, config=resolved)
    assert training.wait() == 0, training.output
    (path,) = tmp_path.glob("*/resolved.json")
    assert path.parent.name == reference.path.name
    refused = zygote.start(project, tmp_path, "--set=seed=8", config=resolved)
    assert refused.wait() == 2
    assert "--set beside a resolved config" in refused.output
