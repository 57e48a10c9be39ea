"""Our envelopes beside those of securesystemslib, the reference implementation of DSSE."""

import json

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib import dsse
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from treering.audit.attestation.dsse import PAYLOAD_TYPE, Envelope, encode
from treering.audit.attestation.keys import PrivateKey, generate
from treering.errors import EvidenceError

PAYLOAD = json.dumps({"_type": "https://in-toto.io/Statement/v1", "name": "größer"}).encode()


@pytest.fixture
def ours(tmp_path):
    return generate(tmp_path / "signer.pem")[0]


@pytest.fixture
def theirs(tmp_path, ours):
    """The same key, with the same id, as securesystemslib has it."""
    private = load_pem_private_key((tmp_path / "signer.pem").read_bytes(), None)
    return CryptoSigner(private, SSlibKey.from_crypto(private.public_key(), ours.id))


@pytest.mark.parametrize("payload", [b"", b"{}", PAYLOAD, bytes(range(256))])
def test_the_bytes_that_are_signed_are_the_same(payload):
    assert encode(payload) == dsse.Envelope(payload, PAYLOAD_TYPE, {}).pae()


def test_it_verifies_what_we_sign(ours, theirs):
    envelope = dsse.Envelope.from_dict(json.loads(Envelope.sign(PAYLOAD, ours).to_text()))
    assert (envelope.payload, envelope.payload_type) == (PAYLOAD, PAYLOAD_TYPE)
    assert envelope.verify([theirs.public_key], 1) == {ours.id: theirs.public_key}
    envelope.payload = PAYLOAD + b" "
    with pytest.raises(VerificationError, match="Accepted signatures do not match threshold"):
        envelope.verify([theirs.public_key], 1)


def test_we_read_what_it_signs(tmp_path, ours, theirs):
    envelope = dsse.Envelope(PAYLOAD, PAYLOAD_TYPE, {})
    envelope.sign(theirs)
    path = tmp_path / "attestation.json"
    path.write_text(json.dumps(envelope.to_dict()))
    read = Envelope.read(path)
    assert read.payload == PAYLOAD
    assert read.signer([ours.public]).id == ours.id
    assert json.loads(Envelope.sign(PAYLOAD, ours).to_text()) == envelope.to_dict()


def test_we_refuse_a_second_text_of_one_envelope_that_it_takes(tmp_path, ours, theirs):
    document = {**json.loads(Envelope.sign(PAYLOAD, ours).to_text()), "note": "added later"}
    assert dsse.Envelope.from_dict(json.loads(json.dumps(document))).verify([theirs.public_key], 1)
    path = tmp_path / "attestation.json"
    path.write_text(json.dumps(document))
    with pytest.raises(EvidenceError, match="expected the fields"):
        Envelope.read(path)


def test_a_key_of_its_own_is_read_by_us(tmp_path):
    signer = CryptoSigner.generate_ed25519()
    path = tmp_path / "their.pem"
    path.write_bytes(signer.private_bytes)
    assert PrivateKey.read(path).sign(b"message") == bytes.fromhex(signer.sign(b"message").signature)
