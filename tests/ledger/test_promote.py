"""`treering promote`: what the audit shows gets an alias, in the journal first, then in the ledger and in MLflow."""

import json
import shutil

import mlflow
import numpy as np
import pytest
from recorded_project import unpack

from treering.audit.promotion import required_level
from treering.errors import ConfigError, UserError
from treering.project import Project
from treering.record.start import start
from treering.runlog.find import find_runs
from treering.runlog.journal import Promoted
from treering.runlog.mirror import Mirror

DOWN = "postgresql://u:p@127.0.0.1:9/d"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return unpack("journals", tmp_path_factory.mktemp("promote"))


@pytest.fixture
def project(trained, tmp_path, monkeypatch):
    """The working directory: a project with a trained run and its corpora; no target but the ledger."""
    project = Project(shutil.copytree(trained, tmp_path / "project"))
    monkeypatch.chdir(project.root)
    monkeypatch.delenv("TREERING_DATABASE_URL", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("USER", "ada")
    return project


@pytest.fixture
def run(project):
    return find_runs(project.runs)[0]


def promoted(run):
    return [line.entry for line in run.journal.lines() if isinstance(line.entry, Promoted)]


def listed(treering):
    code, out, err = treering("promote", "--list", "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_checkpoint_that_reaches_the_level_gets_the_alias(run, treering):
    first, last = run.checkpoints()[0], run.checkpoints()[-1]
    code, out, err = treering("promote", run.id[:6], "--alias", "production")
    assert (code, err) == (0, "")
    assert (
        f"{last.path}: promoted to production, level content-bound, content-bound was asked for by the default" in out
    )
    assert "arrived in ledger (ledger sqlite:///" in out
    assert "not yet in mlflow: registry http://127.0.0.1:9" in out
    (entry,) = promoted(run)
    assert (entry.alias, entry.step, entry.checkpoint, entry.by) == ("production", last.step, last.digest, "ada")
    assert (entry.level, entry.required) == ("content-bound", "content-bound")
    assert treering("promote", first.path, "--alias", "production", "--json")[0] == 0
    assert [(each["step"], each["holds"], each["by"], each["status"]) for each in listed(treering)] == [
        (first.step, True, "ada", "saved"), (last.step, False, "ada", "saved"),
    ]  # fmt: skip
    found = json.loads(treering("search", "promoted:production", "--json")[1])["found"]
    assert [(each["checkpoint"]["digest"], each["promoted"]) for each in found] == [(first.digest, ["production"])]
    assert "production" in treering("promote", "--list")[1]


def test_a_published_checkpoint_is_promoted_in_its_run(project, run, treering):
    code, out, err = treering("promote", "published", "--alias", "release-1")
    assert code == 0, err
    assert str(run.path) in out
    assert promoted(run)[0].checkpoint == run.checkpoints()[-1].digest
    shutil.rmtree(project.runs)
    code, _, err = treering("promote", "published", "--alias", "release-1")
    assert code == 2
    assert "promote it in the project that has the run's folder" in err


def test_files_are_digested_again_whatever_the_level(project, run, treering):
    project.settings.write_text("promotion:\n  staging: recorded\n")
    (last,) = run.checkpoints()[-1:]
    weights = max((path for path in last.path.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    for alias in ("staging", "production"):
        code, _, err = treering("promote", run.id, "--alias", alias)
        assert code == 3
        assert f"not promoted to {alias}: found level " in err
        assert weights.name in err
    assert promoted(run) == []
    assert treering("promote", run.checkpoints()[0].path, "--alias", "staging")[0] == 0
    assert (promoted(run)[0].level, promoted(run)[0].required) == ("recorded", "recorded")


def test_a_missing_corpus_refuses_with_the_level_that_is_reached_and_what_helps(project, run, treering):
    shutil.rmtree(project.corpora / "train" / "letters")
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert code == 3
    assert "found level recorded with " in err
    assert "expected content-bound by the default, since treering.yaml is missing: " in err
    assert "corpus letters" in err
    assert promoted(run) == []


def test_a_signature_is_asked_for_and_checked(project, run, treering):
    project.settings.write_text("promotion: {production: attested}\n")
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert code == 3
    assert "found level content-bound, expected attested by promotion.production in" in err
    assert "`treering attest` signs a checkpoint" in err
    for name in ("mine", "other"):
        assert treering("keygen", f"{name}.pem")[0] == 0
    assert treering("attest", run.id, "--key", "mine.pem", "--verify")[0] == 0
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert (code, "found level content-bound, expected attested" in err) == (3, True)
    code, _, err = treering("promote", run.id, "--alias", "production", "--public-key", "other.pub.pem")
    assert (code, "found level content-bound with 1 findings, expected attested" in err) == (3, True)
    assert promoted(run) == []
    code, out, err = treering("promote", run.id, "--alias", "production", "--public-key", "mine.pub.pem")
    assert (code, "level attested, attested was asked for by promotion.production in" in out) == (0, True), err
    assert [(each.level, each.required) for each in promoted(run)] == [("attested", "attested")]


def test_a_signature_replaces_no_replay(project, run, treering):
    project.settings.write_text("promotion: {production: replayed}\n")
    assert treering("keygen", "mine.pem")[0] == 0
    assert treering("attest", run.id, "--key", "mine.pem", "--verify")[0] == 0
    code, _, err = treering("promote", run.id, "--alias", "production", "--public-key", "mine.pub.pem")
    assert code == 3
    assert "found level attested without replayed, expected replayed by promotion.production in" in err
    assert "`treering promote --replay K` also trains K steps again" in err
    assert promoted(run) == []


def test_a_mirror_is_refused_before_anything_is_read(run, treering):
    mark = {"store": "s3://b", "project": "here", "state": "finished", "written_at": 1.0, "complete": True}
    Mirror(**mark, rewritten={}).write(run.mirror_file)
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert code == 2
    assert "is a mirror of a run" in err


@pytest.mark.slow
def test_everything_arrives_when_the_targets_answer_again(run, treering, monkeypatch):
    monkeypatch.setenv("TREERING_DATABASE_URL", DOWN)
    code, out, _ = treering("promote", run.id, "--alias", "production", "--json")
    answer = json.loads(out)
    assert (code, answer["arrived"], sorted(answer["later"])) == (0, [], ["ledger", "mlflow"])
    monkeypatch.delenv("TREERING_DATABASE_URL")
    assert treering("ship")[0] == 4  # MLflow is still down, and the ledger is served all the same
    assert [each["holds"] for each in listed(treering)] == [True]


@pytest.mark.slow
def test_mlflow_has_the_alias_of_the_newest_promotion(project, run, treering, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    first, last = run.checkpoints()[0], run.checkpoints()[-1]
    for checkpoint in (last, first):
        code, out, err = treering("promote", checkpoint.path, "--alias", "production")
        assert code == 0, err
        assert "arrived in mlflow" in out
        client = mlflow.MlflowClient(f"sqlite:///{project.root}/mlflow.db")
        version = client.get_model_version_by_alias("earlier", "production")
        assert version.tags["treering.checkpoint"] == checkpoint.digest
    old = promoted(run)[0]
    run.journal.append(old.model_copy(update={"alias": "late", "at": 2.0}))
    run.journal.append(old.model_copy(update={"alias": "late", "at": 1.0, "checkpoint": first.digest}))
    assert treering("ship")[0] == 0
    assert len(client.search_model_versions("name = 'earlier'")) == 2


def test_a_recorded_checkpoint_reaches_what_its_record_shows(tmp_path, treering, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.delenv("TREERING_DATABASE_URL", raising=False)
    run = start("plain")
    run.step(loss=1.0, tokens=np.arange(12).reshape(3, 4))
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert (code, "has no checkpoint; report it with run.checkpoint(PATH)" in err) == (2, True)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/weights.bin").write_bytes(b"weights")
    run.checkpoint("one")
    run.finish()
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert code == 3
    assert "found level recorded, expected content-bound by the default" in err
    assert "Which documents the samples are from" in err
    (tmp_path / "treering.yaml").write_text("promotion: {production: recorded}\n")
    code, out, err = treering("promote", "one", "--alias", "production")
    assert code == 0, err
    assert f"{tmp_path}/one: promoted to production, level recorded" in out
    (tmp_path / "one/weights.bin").write_bytes(b"Weights")
    code, _, err = treering("promote", run.id, "--alias", "production")
    assert (code, "weights.bin: digest sha256:" in err) == (3, True)


@pytest.mark.parametrize("alias", ["", "a b", "latest", "V7", "-x", "a" * 65])
def test_an_alias_that_is_none_is_refused(tmp_path, alias):
    with pytest.raises(UserError, match=r"--alias: found .*, expected a word of letters"):
        required_level(Project(tmp_path), alias)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("promotion: {production: gold}", "promotion.production: found 'gold', expected one of declared, re-derived"),
        ("promote: {production: recorded}", "promote: found"),
        ("promotion: [production]", "promotion: found"),
        ("promotion: {", "treering.yaml"),
    ],
)
def test_wrong_settings_are_pointed_at(tmp_path, text, message):
    (tmp_path / "treering.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        required_level(Project(tmp_path), "production")


@pytest.mark.usefixtures("project")
def test_wrong_usage_is_an_error(treering):
    for words in ((), ("published",), ("published", "--list", "--alias", "a"), ("--list", "--alias", "a")):
        code, _, err = treering("promote", *words)
        assert (code, "promote: expected a CHECKPOINT with --alias NAME, or --list alone" in err) == (2, True), words
    assert treering("promote", "--list")[0] == 4
