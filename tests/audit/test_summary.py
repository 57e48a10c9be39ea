"""The summary says of each corpus what the audit says, and opens neither rings nor corpora."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import Level
from treering.audit.summary import summarize
from treering.cli import app
from treering.config.canonical import digest_json
from treering.errors import UserError


@pytest.fixture
def invoke(built):  # noqa: ARG001 - its working directory
    return lambda *arguments: CliRunner().invoke(app, ["audit", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_summary_equals_the_audit(built, which):
    checkpoint = getattr(built, which)
    report = audit_checkpoint(checkpoint, built.project)
    for path in built.run.path.glob("attempts/*/rings.jsonl"):
        path.unlink()
    shutil.rmtree(built.project.corpora)
    found = summarize(checkpoint)
    assert (found.holds, found.level) == (True, Level.REDERIVED)
    for name in ("experiment", "run", "path", "step", "consumed_samples", "consumed_tokens", "applied_steps"):
        assert getattr(found, name) == getattr(report, name)
    for mine, theirs in zip(found.corpora, report.corpora, strict=True):
        for name in ("corpus", "digest", "samples", "tokens", "planned_epochs", "realised_epochs", "unread_tokens"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert (mine.documents_touched, mine.licences) == (None, None)


@pytest.mark.parametrize("name", ["consumed_samples", "consumed_tokens", "blend"])
def test_records_that_contradict_each_other(built, invoke, name):
    path = built.last.path / "manifest.json"
    document = json.loads(path.read_text())
    del document["digest"]
    document[name] = "sha256:" + "1" * 64 if name == "blend" else document[name] + 16
    path.write_text(json.dumps({**document, "digest": digest_json(document)}))
    result = invoke(str(built.last.path), "--summary", "--json")
    assert result.exit_code == 3
    assert f"{path}: {name} is " in json.loads(result.stdout)["findings"][0]["text"]


def test_the_command(built, invoke):
    found = json.loads(invoke(str(built.last.path), "--summary", "--json").stdout)
    assert (found["verdict"], found["holds"]) == ("re-derived: 15 steps", True)
    assert sum(each["samples"] for each in found["corpora"]) == found["consumed_samples"] == 168
    text = invoke(built.run.id, "--summary").stdout
    assert "epochs planned" in text
    assert "not checked: rings, documents" in text
    with pytest.raises(UserError, match="found --summary with another option"):
        invoke(built.run.id, "--summary", "--verify")
