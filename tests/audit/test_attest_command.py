"""`treering keygen`, `attest`, `verify`, `find` and the audit's view of a signature, as a user types them."""

import json

import pytest
from typer.testing import CliRunner

from treering.cli import app
from treering.errors import EvidenceError, UserError


@pytest.fixture
def invoke(built):  # noqa: ARG001 - its working directory
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def signed(built, invoke):
    assert invoke("keygen", "signer.pem").exit_code == 0
    result = invoke("attest", built.run.id, "--key", "signer.pem", "--json")
    assert result.exit_code == 0
    return json.loads(result.stdout)


def damage(built):
    path = built.last.path / "weights.bin"
    path.write_bytes(b"x" + path.read_bytes()[1:])


def test_keygen_names_the_key(built, invoke):
    document = json.loads(invoke("keygen", "a.pem", "--json").stdout)
    assert (document["private"], document["public"]) == ("a.pem", "a.pub.pem")
    assert (built.project.root / "a.pub.pem").read_text().startswith("-----BEGIN PUBLIC KEY-----")
    text = invoke("keygen", "b.pem").stdout
    assert "private  b.pem" in text
    with pytest.raises(UserError, match="a key is never replaced"):
        invoke("keygen", "a.pem")


def test_attest_for_people_and_machines(built, invoke, signed):
    assert signed["level"] == "recorded"
    assert signed["attestation"] == f"{built.last.path}.attestation.json"
    assert signed["statement"]["predicate"]["evidence"]["checkpoint"]["step"] == 15
    result = invoke("attest", built.run.id, "--key", "signer.pem", "--verify", "--force")
    assert "level content-bound" in result.stdout
    assert f"signed by    {signed['key']}" in result.stdout


def test_attest_refuses_what_does_not_hold(built, invoke):
    invoke("keygen", "signer.pem")
    damage(built)
    with pytest.raises(EvidenceError, match="not signed, for it does not hold"):
        invoke("attest", built.run.id, "--key", "signer.pem")


def test_attest_into_a_folder_names_the_file_to_write(built, invoke):
    invoke("keygen", "signer.pem")
    with pytest.raises(UserError, match=r"^\.: is a folder; `--output` takes the file to write, `step-00000015\.att"):
        invoke("attest", built.run.id, "--key", "signer.pem", "--output", ".")


def test_verify_an_attestation(built, invoke, signed):
    arguments = ("verify", "--attestation", signed["attestation"], "--public-key", "signer.pub.pem")
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert f"signed by    {signed['key']}" in result.stdout
    assert "equal to the checkpoint" in result.stdout
    document = json.loads(invoke(*arguments, built.last.path, "--json").stdout)
    assert (document["holds"], document["checkpoint"]) == (True, str(built.last.path))
    damage(built)
    result = invoke(*arguments)
    assert result.exit_code == 3
    assert f"FAILED       {built.last.path}/weights.bin: digest" in result.stdout
    document = json.loads(invoke(*arguments, "--json").stdout)
    assert [finding["file"] for finding in document["findings"]] == [str(built.last.path / "weights.bin")]


def test_verify_without_a_checkpoint_at_hand(built, invoke, signed):
    built.run.path.joinpath(signed["attestation"]).rename(built.project.root / "mailed.json")
    result = invoke("verify", "--attestation", "mailed.json", "--public-key", "signer.pub.pem")
    assert result.exit_code == 0
    assert "no checkpoint was compared" in result.stdout
    assert "note         No checkpoint lies beside the attestation" in result.stdout


def test_verify_an_attestation_needs_a_key_and_one_checkpoint(invoke, signed):
    with pytest.raises(UserError, match="found no trusted key, expected `--public-key FILE`"):
        invoke("verify", "--attestation", signed["attestation"])
    with pytest.raises(UserError, match="found 2 paths, expected one"):
        invoke("verify", ".", ".", "--attestation", signed["attestation"], "--public-key", "signer.pub.pem")


def test_audit_reaches_attested(invoke, built, signed):
    result = invoke("audit", built.run.id, "--verify", "--public-key", "signer.pub.pem")
    assert result.exit_code == 0
    assert "declared → re-derived → recorded → content-bound → attested" in result.stdout
    assert f"by key {signed['key']}, at level recorded" in result.stdout
    document = json.loads(invoke("audit", built.run.id, "--public-key", "signer.pub.pem", "--json").stdout)
    assert (document["level"], document["attestation"]["level"]) == ("attested", "recorded")
    assert "`--public-key` checks it" in invoke("audit", built.run.id).stdout


def test_audit_with_a_named_attestation(invoke, built, signed):
    invoke("attest", built.run.id, "--key", "signer.pem", "--output", "mine.json")
    arguments = ("audit", built.run.id, "--public-key", "signer.pub.pem", "--attestation", "mine.json", "--json")
    assert json.loads(invoke(*arguments).stdout)["attestation"]["file"] == "mine.json"
    invoke("keygen", "stranger.pem")
    result = invoke("audit", built.run.id, "--public-key", "stranger.pub.pem", "--json")
    assert (result.exit_code, json.loads(result.stdout)["findings"][0]["kind"]) == (3, "attestation")
    assert signed["key"] in json.loads(result.stdout)["findings"][0]["text"]


def test_verify_a_project(built, invoke):
    result = invoke("verify")
    assert result.exit_code == 0
    assert "holds: 7 things" in result.stdout
    path = built.corpora["red"].directory / "corpus.bin"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    result = invoke("verify", "data/corpora")
    assert result.exit_code == 3
    assert "corpus red, document red-0 (number 0); bytes 0 to " in result.stdout
    document = json.loads(invoke("verify", "--json").stdout)
    assert (document["holds"], document["findings"][0]["document"]) == (False, "red-0")
    assert sum(each["findings"] for each in document["checked"]) == 1


def test_find(built, invoke):
    digest = built.corpora["blue"].digest
    result = invoke("find", digest[:20])
    assert "corpus blue (train)" in result.stdout
    assert json.loads(invoke("find", digest, "--json").stdout)[0]["digest"] == digest
