"""An attestation names every file, record and field that was changed after it was signed."""

import base64
import json

import pytest
from signed_checkpoint import audit, check, flip, fresh

from treering.audit.attestation.dsse import Envelope
from treering.audit.attestation.keys import PublicKey
from treering.audit.attestation.statement import Statement
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import Level
from treering.config.canonical import digest_file, digest_json
from treering.errors import EvidenceError
from treering.runlog.find import find_checkpoint


def edit(path, **changes):
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | changes))


def reseal(path, **changes):
    document = json.loads(path.read_text()) | changes
    document.pop("digest")
    path.write_text(json.dumps({**document, "digest": digest_json(document)}, indent=2, sort_keys=True) + "\n")


@pytest.mark.parametrize("replay", [None, {"seed": 1, "picked": [3], "replayed": 3, "identical": 2, "changed": []}])
def test_a_level_without_its_replay_is_refused(signed, replay):
    document = json.loads(base64.b64decode(json.loads(signed[0].read_text())["payload"]))
    document["predicate"]["assurance"] |= {"level": "replayed", "replay": replay}
    with pytest.raises(EvidenceError, match=r"assurance: .*level replayed without steps that all came out the same"):
        Statement.parse(json.dumps(document).encode(), "forged")


def test_a_stranger_signed(built, signed, keys):
    stranger = PublicKey.read(keys["stranger"][1])
    report = audit(built, stranger)
    [finding] = report.findings
    assert (finding.kind, finding.file, report.level) == ("attestation", str(signed[0]), Level.RECORDED)
    assert f"expected a signature of {stranger.id}" in finding.text


def test_a_payload_changed_after_signing(built, signed, signer):
    payload = base64.b64decode(json.loads(signed[0].read_text())["payload"])
    edit(signed[0], payload=base64.b64encode(payload.replace(b'"0.5"', b'"0.4"')).decode())
    [finding] = check(built, signed[0], signer).findings
    assert "payload or signature was changed after signing" in finding.text


def test_a_key_id_that_is_not_the_signers(built, signed, signer):
    document = json.loads(signed[0].read_text())
    document["signatures"][0]["keyid"] = "0" * 64
    edit(signed[0], **document)
    [finding] = check(built, signed[0], signer).findings
    assert f"keyid is {'0' * 64!r}, but key {signer.id} made the signature" in finding.text


@pytest.mark.parametrize("field", ["payload", "sig"])
def test_bits_of_base64_that_stand_for_nothing(built, signed, signer, field):
    document = json.loads(signed[0].read_text())
    owner = document if field == "payload" else document["signatures"][0]
    if field == "payload":
        owner[field] = base64.b64encode(base64.b64decode(owner[field]) + b" ").decode()[:-4] + "IH=="
    else:
        assert owner[field].endswith("==")
        last = owner[field][-3]
        owner[field] = owner[field][:-3] + chr(ord(last) + 1) + "=="
    edit(signed[0], **document)
    [finding] = check(built, signed[0], signer).findings
    assert f"{field} is not base64 as it was written" in finding.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unreadable"),
        ("[]", "expected the fields"),
        ('{"payload":"","payloadType":"text/plain","signatures":[]}', "payloadType is 'text/plain'"),
        ('{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[]}', "expected a list of one"),
        ('{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[{}]}', r"signatures\[0\]"),
        ('{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[{"keyid":"","sig":3}]}', "base64"),
    ],
)
def test_no_envelope(built, signer, text, said, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(EvidenceError, match=said):
        Envelope.read(path)
    assert not check(built, path, signer).holds


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"x", "the payload is not JSON"),
        (b"{}", "not a urn:treering:attestation:training:v1 in an in-toto Statement v1"),
        (b'{"_type":"https://in-toto.io/Statement/v0.1"}', "_type"),
    ],
)
def test_a_true_signature_under_something_else(built, signer, payload, said, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(Envelope.sign(payload, signer).to_text())
    [finding] = check(built, path, signer).findings
    assert said in finding.text


def test_a_file_of_the_checkpoint(built, signed, signer):
    flip(built.last.path / "weights.bin")
    findings = check(built, signed[0], signer).findings
    assert [(each.kind, each.file) for each in findings] == [("checkpoint", str(built.last.path / "weights.bin"))]
    assert "digest sha256:" in findings[0].text
    assert "by the signed statement" in findings[0].text


@pytest.mark.parametrize("how", ["missing", "added"])
def test_a_file_that_came_or_went(built, signed, signer, how):
    path = built.last.path / ("weights.bin" if how == "missing" else "more.bin")
    path.unlink() if how == "missing" else path.write_bytes(b"x")
    [finding] = check(built, signed[0], signer).findings
    assert finding.file == str(path)
    assert ("missing" if how == "missing" else "names no such file") in finding.text


def test_weights_and_manifest_rewritten_consistently(built, signed, signer):
    """What only a signature catches: everything fits again, but it is not what was signed."""
    weights = built.last.path / "weights.bin"
    flip(weights)
    manifest = json.loads((built.last.path / "manifest.json").read_text())
    manifest["files"][0]["digest"] = digest_file(weights)
    reseal(built.last.path / "manifest.json", files=manifest["files"])
    assert audit_checkpoint(fresh(built), built.project, verify=True).holds
    report = audit(built, signer.public, verify=True)
    assert report.level is Level.CONTENT_BOUND
    assert {finding.file for finding in report.findings} == {
        str(weights),
        str(built.last.path / "manifest.json"),
    }
    texts = [finding.text for finding in report.findings]
    assert any(f"{weights}: has {digest_file(weights)}, signed was sha256:" in text for text in texts)
    assert any("predicate.evidence.checkpoint.manifest is sha256:" in text for text in texts)
    offline = check(built, signed[0], signer).findings
    assert [(each.kind, each.file) for each in offline] == [
        ("checkpoint", str(built.last.path / "manifest.json")),
        ("checkpoint", str(weights)),
        ("attestation", str(built.last.path / "manifest.json")),
    ]


def test_words_of_the_config_that_no_digest_covers(built, signed, signer):
    path = built.run.path / "resolved.json"
    path.write_text(path.read_text().replace('"description": ""', '"description": "harmless"'))
    assert audit_checkpoint(fresh(built), built.project, verify=True).holds
    [finding] = check(built, signed[0], signer).findings
    assert (finding.kind, finding.file) == ("record", str(path))
    assert "changed after the signature" in finding.text


def test_an_attestation_of_another_checkpoint(built, signed, signer):
    result = check(built, signed[0], signer, find_checkpoint(built.first.path))
    assert not result.holds
    said = "predicate.evidence.checkpoint.step is 6 by the run log, signed was 15"
    assert any(said in finding.text for finding in result.findings)


def test_a_resealed_header_whose_code_is_no_digest(built, signed, signer):
    path = built.run.path / "attempts" / "0001" / "header.json"
    reseal(path, code={"digest": "x"})
    assert str(path) in {finding.file for finding in check(built, signed[0], signer).findings}


def test_a_damaged_record_is_named(built, signed, signer):
    path = built.run.path / "attempts" / "0002" / "header.json"
    path.write_text(path.read_text().replace('"backend": "gloo"', '"backend": "nccl"'))
    [finding] = check(built, signed[0], signer).findings
    assert str(path) in finding.text
    assert finding.kind == "record"
