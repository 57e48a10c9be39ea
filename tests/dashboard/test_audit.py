"""The Audit page, held against `audit_checkpoint` and `attested`, on real corpora."""

import os
import shutil

import pytest
from audited_project import cut_checkpoint, lay_attempt, start_run
from corpus_writer import write_corpus
from dashboard_page import metrics, page, table, texts

from treering.audit.attestation.check import attested
from treering.audit.attestation.keys import PublicKey, generate
from treering.audit.attestation.sign import attest
from treering.audit.checkpoint import audit_checkpoint
from treering.config.canonical import digest_file
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.manifest import write_manifest
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.runlog.find import find_runs


@pytest.fixture
def checkpoint(audited):
    return find_runs(audited.runs)[0].checkpoints()[-1]


def show(checkpoint):
    return page("audit", run=checkpoint.run.path.name, checkpoint=checkpoint.path.name)


def number(text):
    return int(text.replace("\u2009", ""))


def states(app):
    return {row["Level"]: row["State"][0].split()[1] for row in table(app, "Reached by").to_dict("records")}


def test_corpora_licences_and_levels_are_the_audits(audited, checkpoint):
    report = audit_checkpoint(checkpoint, audited)
    app = show(checkpoint)
    assert report.verdict in texts(app)
    corpora = table(app, "Epochs planned")
    for column, field in (
        ("Samples", "samples"),
        ("Tokens", "tokens"),
        ("Documents touched", "documents_touched"),
        ("Documents held", "num_documents"),
        ("Unread tail", "unread_tokens"),
    ):
        assert [number(text) for text in corpora[column]] == [getattr(usage, field) for usage in report.corpora]
    licences = table(app, "Share")
    assert dict(zip(licences["Licence"], map(number, licences["Tokens"]), strict=True)) == report.licences
    assert licences["Share"].sum() == pytest.approx(100)
    assert licences["Corpora"].tolist() == ["red", "green", "blue"]
    assert states(app) == {
        "declared": "reached",
        "re-derived": "reached",
        "recorded": "reached",
        "content-bound": "next",
        "replayed": "open",
        "attested": "open",
    }
    where = f"runs/{checkpoint.run.path.name}/checkpoints/{checkpoint.path.name}"
    assert [code.value for code in app.code] == [
        f"treering audit {where} --verify\ntreering audit {where} --replay 3\ntreering attest {where} --key signer.pem",
        f"treering audit {where}",
    ]
    for text in report.not_proven:
        assert text.replace("`", "") in texts(app)
    assert metrics(app)["Attestation"] == "none"
    assert metrics(app)["Held-out overlap"] == "not looked for"


def test_held_out_documents_that_were_read_are_counted_and_found(audited, checkpoint):
    shutil.copytree(audited.corpus("green"), audited.corpus("green", "heldout"))
    report = audit_checkpoint(checkpoint, audited)
    app = show(checkpoint)
    assert metrics(app)["Held-out overlap"] == str(report.held_out.overlapping)
    assert f"of {report.held_out.documents} held-out documents read" in [m.proto.delta_description for m in app.metric]
    (finding,) = report.findings
    found = table(app, "Kind")
    assert (found["Kind"].tolist(), found["Corpus"].tolist()) == ([finding.kind], ["green"])
    assert finding.text in texts(app)
    assert "does not hold" in texts(app)
    assert "need these findings to be mended" in texts(app)
    assert states(app)["content-bound"] == "held"


def test_no_overlap_is_said_in_words(audited, checkpoint):
    folder = audited.corpus("green", "heldout")
    tokenizer = load_tokenizer(audited.tokenizer)
    row = {"id": "new", "text": "no such words at all", "source": "x", "offset": 0, "licence": "MIT"}
    about = {
        key: Corpus.open(audited.corpus("green")).manifest[key] for key in ("name", "licence", "source", "curation")
    }
    end = tokenizer.token_to_id("<|endoftext|>")
    about["tokenizer"] = {"digest": digest_file(audited.tokenizer), "end_of_document": end}
    write_corpus(folder, [row], tokenizer, end, {**about, "split": "heldout"})
    app = show(checkpoint)
    assert metrics(app)["Held-out overlap"] == "none"
    assert "of 1 held-out document read" in [m.proto.delta_description for m in app.metric]


def test_curation_is_summed_by_corpus(audited):
    corpus = Corpus.open(audited.corpus("red"))
    steps = [
        {"step": "extract", "input": "x", "kept": 32, "dropped": 0},
        {"step": "filter", "input": "x", "kept": 30, "dropped": 2},
        {"step": "dedup", "input": "x", "kept": 20, "dropped": 10},
    ]
    manifest = {key: value for key, value in corpus.manifest.items() if key != "digest"}
    write_manifest(audited.corpus("red") / "manifest.json", manifest | {"curation": steps})
    run = start_run(audited, "seed=8")
    cut_checkpoint(run, 1, lay_attempt(audited, run, 1, range(1, 7))[-1])
    shown = table(show(run.checkpoints()[-1]), "Before")
    assert shown.to_dict("records") == [
        {"Corpus": "red", "Before": "32", "filter": "2", "dedup": "10", "Kept": "20"},
    ]


def test_without_corpora_the_records_still_answer(audited, checkpoint):
    shutil.rmtree(audited.corpora / "train")
    report = audit_checkpoint(checkpoint, audited)
    app = show(checkpoint)
    corpora = table(app, "Epochs planned")
    assert corpora["Documents touched"].tolist() == ["corpus not available"] * 3
    assert [number(text) for text in corpora["Samples"]] == [usage.samples for usage in report.corpora]
    (licence,) = table(app, "Share").to_dict("records")
    assert (licence["Licence"], number(licence["Tokens"])) == ("unknown", report.consumed_tokens)
    assert licence["Corpora"] == "red, green, blue"
    assert "or none was curated" in texts(app)


def test_what_is_missing_and_what_is_answered_all_the_same(audited, checkpoint):
    (checkpoint.run.path / "attempts" / "0001" / "header.json").unlink()
    report = audit_checkpoint(checkpoint, audited)
    app = show(checkpoint)
    assert report.verdict in texts(app)
    (missing,) = report.gaps
    assert f"{missing.answered} (level {missing.level})" in texts(app)
    assert missing.missing in texts(app)
    assert [number(text) for text in table(app, "Epochs planned")["Samples"]] == [u.samples for u in report.corpora]


def test_without_any_record_there_is_nothing_to_audit(checkpoint):
    (checkpoint.run.path / "resolved.json").write_text("{}")
    (checkpoint.path / "manifest.json").write_text("{}")
    app = show(checkpoint)
    assert "There is nothing to audit" in texts(app)
    assert not app.dataframe


def test_findings_name_file_line_and_step(audited, checkpoint):
    path = checkpoint.run.path / "attempts" / "0002" / "rings.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace('"loss":', '"loss":1'), *lines[2:]]))
    report = audit_checkpoint(checkpoint, audited)
    found = table(show(checkpoint), "Kind").iloc[0]
    assert found["Kind"] == report.findings[0].kind
    assert found["File"] == str(path.relative_to(audited.root))
    assert found["Line"] == "2"
    assert found["Step"] == str(report.findings[0].step)


@pytest.fixture
def signed(audited, checkpoint, tmp_path, monkeypatch):
    """The checkpoint with an attestation, and the key that the dashboard trusts."""
    private, public = generate(tmp_path / "signer.pem")
    attest(checkpoint, audited, private, verify=True)
    monkeypatch.setenv("TREERING_PUBLIC_KEYS", str(public))
    return public


def test_a_trusted_signature_holds(audited, checkpoint, signed):
    report = attested(audit_checkpoint(checkpoint, audited), checkpoint, [PublicKey.read(signed)])
    app = show(checkpoint)
    assert report.verdict in texts(app)
    assert metrics(app)["Attestation"] == "holds"
    assert states(app)["attested"] == "reached"
    assert states(app)["content-bound"] == "signed", "by the signer's audit, not by this one"
    assert states(app)["replayed"] == "open"
    assert f"--public-key {signed}" in app.code[-1].value
    assert not any("treering attest" in code.value for code in app.code)


@pytest.mark.usefixtures("signed")
def test_without_a_key_a_signature_is_only_said_to_be_there(checkpoint, monkeypatch):
    monkeypatch.delenv("TREERING_PUBLIC_KEYS")
    app = show(checkpoint)
    assert metrics(app)["Attestation"] == "not checked"
    assert states(app)["attested"] == "open"
    assert "--public-key signer.pub.pem" in app.code[0].value


@pytest.mark.usefixtures("signed")
def test_a_strangers_signature_does_not_hold(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("TREERING_PUBLIC_KEYS", str(generate(tmp_path / "stranger.pem")[1]))
    app = show(checkpoint)
    assert metrics(app)["Attestation"] == "does not hold"
    assert table(app, "Kind")["Kind"].tolist() == ["attestation"]


def test_several_keys_are_trusted(checkpoint, signed, tmp_path, monkeypatch):
    other = generate(tmp_path / "other.pem")[1]
    monkeypatch.setenv("TREERING_PUBLIC_KEYS", f"{other}{os.pathsep}{signed}")
    assert metrics(show(checkpoint))["Attestation"] == "holds"


@pytest.mark.usefixtures("signed")
def test_a_key_that_cannot_be_read_leaves_the_audit(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("TREERING_PUBLIC_KEYS", str(tmp_path / "none.pem"))
    app = show(checkpoint)
    assert "no key there" in texts(app)
    assert metrics(app)["Attestation"] == "not checked"
    assert "recorded: 15 of 15 steps" in texts(app)


@pytest.mark.slow
def test_a_signature_made_after_the_page_was_seen_is_seen(audited, checkpoint, tmp_path, monkeypatch):
    private, public = generate(tmp_path / "signer.pem")
    monkeypatch.setenv("TREERING_PUBLIC_KEYS", str(public))
    assert metrics(show(checkpoint))["Attestation"] == "none"
    attest(checkpoint, audited, private)
    assert metrics(show(checkpoint))["Attestation"] == "holds"
