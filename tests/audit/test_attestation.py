"""A signature under an audit: what is signed, what it adds to an audit, and where it is found."""

import base64
import json
import shutil
import subprocess

import pytest
from signed_checkpoint import audit, check, flip

from treering.audit.attestation.check import attested, check_attestation
from treering.audit.attestation.place import attestation_file, attested_checkpoint, find_attestation
from treering.audit.attestation.sign import attest
from treering.audit.attestation.statement import Statement
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import Level
from treering.config.canonical import digest_file
from treering.errors import EvidenceError, UserError
from treering.project import Project
from treering.runlog.find import find_checkpoint

with_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to check with")


def test_what_is_signed(built, signed):
    path, statement = signed
    assert path == built.last.path.with_name("step-00000015.attestation.json")
    manifest = built.last.manifest
    payload = json.loads(base64.b64decode(json.loads(path.read_text())["payload"]))
    assert payload["_type"] == "https://in-toto.io/Statement/v1"
    assert payload["predicateType"] == "urn:treering:attestation:training:v1"
    assert payload["subject"] == [
        {"name": name, "digest": {"sha256": digest_file(built.last.path / name).removeprefix("sha256:")}}
        for name in ("manifest.json", "weights.bin")
    ]
    found = payload["predicate"]["evidence"]
    assert found["ring"] == manifest.ring
    assert found["run"]["recipe"] == built.run.resolved.recipe.digest
    assert [(each["corpus"], each["weight"]) for each in found["blend"]["components"]] == [
        ("red", "0.5"),
        ("green", "0.3"),
        ("blue", "0.2"),
    ]
    assert sum(each["samples"] for each in found["consumed"]) == 168
    assert sum(each["tokens"] for each in found["consumed"]) == manifest.consumed_tokens
    assert [(each["attempt"], each["firstStep"], each["lastStep"]) for each in found["ancestry"]] == [
        (1, 1, 6),
        (2, 7, 15),
    ]
    assert [each["header"] for each in found["ancestry"]] == [attempt.header_digest for attempt in built.run.attempts()]
    assert {each["name"].split("/", 1)[1] for each in found["records"]} == {
        "resolved.json",
        "attempts/0001/header.json",
        "attempts/0002/header.json",
    }
    assert statement.predicate.assurance.level is Level.CONTENT_BOUND
    assert payload["predicate"]["assurance"]["stepsContentBound"] == 15
    said = payload["predicate"]["assurance"]["notProven"]
    assert any("replayed" in text for text in said)
    assert not any("not signed" in text for text in said)
    assert payload["predicate"]["tool"]["name"] == "treering"


@with_openssl
def test_the_signature_holds_for_openssl(signed, keys, tmp_path):
    """Another implementation checks it, over bytes put together here after DSSE's text."""
    document = json.loads(signed[0].read_text())
    payload = base64.b64decode(document["payload"])
    kind = document["payloadType"]
    message = tmp_path / "message"
    message.write_bytes(b"DSSEv1 " + f"{len(kind)} {kind} {len(payload)} ".encode() + payload)
    signature = tmp_path / "signature"
    signature.write_bytes(base64.b64decode(document["signatures"][0]["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", keys["signer"][1], "-rawin", "-in", message]
    result = subprocess.run([*command, "-sigfile", signature], capture_output=True, text=True, check=False)
    assert "Signature Verified Successfully" in result.stdout


def test_statements_of_before_replays_could_be_signed_hold_to_the_byte(signed):
    payload = base64.b64decode(json.loads(signed[0].read_text())["payload"])
    assert b'"replay"' not in payload
    statement = Statement.parse(payload, "old")
    assert statement.predicate.assurance.replay is None
    assert statement.to_bytes() == payload


def test_it_holds(built, signed, signer):
    result = check(built, signed[0], signer)
    assert (result.holds, result.key, result.not_compared) == (True, signer.id, ())
    assert result.statement == signed[1]
    assert result.verdict == f"holds: signed by key {signer.id[:12]}, equal to the checkpoint"


def test_the_audit_reaches_attested_with_a_trusted_key(built, signed, signer):
    report = audit(built, signer.public, verify=True)
    assert report.level is Level.ATTESTED
    assert [str(level) for level in report.levels] == [
        "declared",
        "re-derived",
        "recorded",
        "content-bound",
        "attested",
    ]
    assert report.verdict == "attested; content-bound: 15 of 15 steps"
    assert (report.attestation.key, report.attestation.signed_level) == (signer.id, Level.CONTENT_BOUND)
    assert not any("not signed" in text for text in report.not_proven)
    assert any(f"before it was signed at {signed[1].predicate.attested_at}" in text for text in report.not_proven)


@pytest.mark.usefixtures("signed")
def test_a_signature_does_not_stand_for_what_this_audit_left_out(built, signer):
    report = audit(built, signer.public)
    assert [str(level) for level in report.levels] == ["declared", "re-derived", "recorded", "attested"]
    assert report.verdict == "attested; recorded: 15 of 15 steps"
    assert any("`--verify` digests them again" in text for text in report.not_proven)


def test_the_audit_names_a_signature_that_nobody_asked_to_check(built, signed):
    report = audit(built)
    assert (report.level, report.attestation, report.holds) == (Level.RECORDED, None, True)
    [text] = [text for text in report.not_proven if "not signed" in text]
    assert f"A signature lies beside it, {signed[0].name}, but" in text


def test_the_audit_says_that_there_is_no_signature(built, signer):
    report = audit(built, signer.public)
    assert (report.level, report.holds) == (Level.RECORDED, True)
    assert any("step-00000015.attestation.json does not exist" in text for text in report.not_proven)


def test_what_does_not_hold_is_not_signed(built, signer):
    flip(built.last.path / "weights.bin")
    with pytest.raises(EvidenceError, match=r"not signed, for it does not hold: .*weights\.bin: digest"):
        attest(built.last, built.project, signer)
    assert find_attestation(built.last) is None


def test_an_earlier_attestation_is_not_replaced_by_chance(built, signed, signer):
    before = signed[0].read_bytes()
    with pytest.raises(UserError, match="`--force` replaces it"):
        attest(built.last, built.project, signer)
    assert signed[0].read_bytes() == before
    attest(built.last, built.project, signer, replace=True)
    assert signed[0].read_bytes() != before


@pytest.mark.usefixtures("signed")
def test_a_project_that_moved(built, signer, tmp_path):
    target = tmp_path / "elsewhere" / "deep"
    shutil.copytree(built.project.root, target)
    project = Project(target)
    checkpoint = find_checkpoint(target / built.last.path.relative_to(built.project.root))
    path = find_attestation(checkpoint)
    assert path.is_relative_to(target)
    assert check_attestation(path, [signer.public], checkpoint, project).holds
    report = attested(audit_checkpoint(checkpoint, project, verify=True), checkpoint, [signer.public])
    assert (report.holds, report.level) == (True, Level.ATTESTED)


def test_a_checkpoint_alone(built, signed, signer, tmp_path):
    """Weights without a run log: files are compared, and the rest is said to be open."""
    folder = tmp_path / "x" / built.last.path.name
    shutil.copytree(built.last.path, folder)
    result = check_attestation(signed[0], [signer.public], find_checkpoint(folder), built.project)
    assert result.holds
    assert "no run log lies around the checkpoint" in result.not_compared[0]
    flip(folder / "weights.bin")
    assert not check_attestation(signed[0], [signer.public], find_checkpoint(folder), built.project).holds


def test_a_published_checkpoint_is_signed_beside_its_folder(built, signer):
    published = built.project.published
    shutil.copytree(built.run.path, published)
    shutil.rmtree(published / "checkpoints" / built.first.path.name)
    checkpoint = find_checkpoint(published)
    path, _ = attest(checkpoint, built.project, signer)
    assert path == published.with_name("published.attestation.json")
    assert attested_checkpoint(path).path == checkpoint.path
    assert find_attestation(checkpoint) == path
    assert attestation_file(built.last).parent == built.last.path.parent
    # The same path of rings: what was signed there holds for the run's own folder too.
    assert check(built, path, signer).holds
