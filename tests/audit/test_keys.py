"""Key files: written once, read with a passphrase, and the same for openssl."""

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

from treering.audit.attestation.check import check_attestation
from treering.audit.attestation.keys import PrivateKey, PublicKey, generate
from treering.audit.attestation.sign import attest
from treering.config.canonical import digest_bytes
from treering.errors import NotFoundError, UserError

with_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to check with")


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
