"""A signature under an audit: written, checked offline, and what becomes of it when something is changed."""

import base64
import json
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from treering.audit.attestation.check import attested, check_attestation
from treering.audit.attestation.dsse import Envelope
from treering.audit.attestation.keys import PrivateKey, PublicKey, generate
from treering.audit.attestation.place import attestation_file, attested_checkpoint, find_attestation
from treering.audit.attestation.sign import attest
from treering.audit.attestation.statement import Statement
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import Level
from treering.config.canonical import digest_bytes, digest_file, digest_json
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.project import Project
from treering.runlog.find import find_checkpoint

with_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to check with")


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """Two signers: their key files."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: (folder / f"{name}.pem", generate(folder / f"{name}.pem")[1]) for name in ("signer", "stranger")}


@pytest.fixture(scope="session")
def signer(keys):
    return PrivateKey.read(keys["signer"][0])


@pytest.fixture
def signed(built, signer):
    """The last checkpoint with its attestation."""
    path, statement = attest(built.last, built.project, signer, verify=True)
    return path, statement


def check(built, path, key, checkpoint=None):
    return check_attestation(path, [key.public], checkpoint or fresh(built), built.project)


def fresh(built):
    """The checkpoint read anew: a directory remembers what it has read."""
    return find_checkpoint(built.last.path)


def audit(built, *trusted, verify=False):
    return attested(audit_checkpoint(fresh(built), built.project, verify), fresh(built), trusted)


def flip(path, position=17):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


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


@with_openssl
def test_keys_made_by_openssl_are_taken(built, tmp_path):
    private, public = tmp_path / "key.pem", tmp_path / "key.pub.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    path, _ = attest(built.last, built.project, PrivateKey.read(private), output=tmp_path / "elsewhere.json")
    assert check_attestation(path, [PublicKey.read(public)], built.last, built.project).holds
    command = ["openssl", "pkey", "-pubin", "-in", public, "-outform", "DER"]
    der = subprocess.run(command, capture_output=True, check=True)
    assert f"sha256:{PublicKey.read(public).id}" == digest_bytes(der.stdout)


def test_statements_of_before_replays_could_be_signed_hold_to_the_byte(signed):
    payload = base64.b64decode(json.loads(signed[0].read_text())["payload"])
    assert b'"replay"' not in payload
    statement = Statement.parse(payload, "old")
    assert statement.predicate.assurance.replay is None
    assert statement.to_bytes() == payload


@pytest.mark.parametrize("replay", [None, {"seed": 1, "picked": [3], "replayed": 3, "identical": 2, "changed": []}])
def test_a_level_without_its_replay_is_refused(signed, replay):
    document = json.loads(base64.b64decode(json.loads(signed[0].read_text())["payload"]))
    document["predicate"]["assurance"] |= {"level": "replayed", "replay": replay}
    with pytest.raises(EvidenceError, match=r"assurance: .*level replayed without steps that all came out the same"):
        Statement.parse(json.dumps(document).encode(), "forged")


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


def test_a_stranger_signed(built, signed, keys):
    stranger = PublicKey.read(keys["stranger"][1])
    report = audit(built, stranger)
    [finding] = report.findings
    assert (finding.kind, finding.file, report.level) == ("attestation", str(signed[0]), Level.RECORDED)
    assert f"expected a signature of {stranger.id}" in finding.text


def edit(path, **changes):
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | changes))


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


def reseal(path, **changes):
    document = json.loads(path.read_text()) | changes
    document.pop("digest")
    path.write_text(json.dumps({**document, "digest": digest_json(document)}, indent=2, sort_keys=True) + "\n")


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


def test_a_key_pair_is_never_overwritten(tmp_path):
    key, public = generate(tmp_path / "a.pem")
    assert public == tmp_path / "a.pub.pem"
    assert (tmp_path / "a.pem").stat().st_mode & 0o777 == 0o600
    assert PublicKey.read(public).id == key.id
    with pytest.raises(UserError, match="a key is never replaced"):
        generate(tmp_path / "a.pem")
    (tmp_path / "a.pem").unlink()
    with pytest.raises(UserError, match=r"a\.pub\.pem exists"):
        generate(tmp_path / "a.pem")


def test_keys_of_other_kinds(tmp_path, keys):
    curve = tmp_path / "ec.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    curve.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(UserError, match="expected an ed25519 key"):
        PrivateKey.read(curve)
    with pytest.raises(UserError, match="no public key in PEM"):
        PublicKey.read(keys["signer"][0])
    with pytest.raises(NotFoundError, match="no key there"):
        PublicKey.read(tmp_path / "none.pem")


def test_an_encrypted_key(tmp_path, keys, signer, monkeypatch):
    path = tmp_path / "encrypted.pem"
    key = load_pem_private_key(keys["signer"][0].read_bytes(), None)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    with pytest.raises(UserError, match="TREERING_KEY_PASSPHRASE"):
        PrivateKey.read(path)
    monkeypatch.setenv("TREERING_KEY_PASSPHRASE", "word")
    assert PrivateKey.read(path).id == signer.id
    monkeypatch.setenv("TREERING_KEY_PASSPHRASE", "another")
    with pytest.raises(UserError, match="no private key in PEM that opens"):
        PrivateKey.read(path)
