"""The envelope: DSSE v1 around an in-toto Statement.

Source: https://github.com/secure-systems-lab/dsse, protocol.md and envelope.md (v1.0.2). The reader is stricter than
the protocol where it leaves room for two texts of one envelope (unknown fields, a second signature, base64 with stray
bits), so that a file that was changed anywhere but in its white space is refused. securesystemslib's `Envelope` takes
all of these, and looks a key up by the id that the envelope claims; so the reader is ours, and a test checks that
securesystemslib verifies what we sign, and that we read what it signs.

Refused are an envelope with other fields, a second signature, another key id than the signer's, and base64 with stray
bits.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treering.config.canonical import parse_json
from treering.errors import EvidenceError, NotFoundError
from treering.files import read_bytes

if TYPE_CHECKING:  # reading an envelope needs no cryptography
    from treering.audit.attestation.keys import PrivateKey, PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of an envelope.

    Attributes:
        key: id of the key that is said to have made it; nothing is proven by it.
        value: the signature's bytes.
    """

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with its signature, not checked yet.

    DSSE allows several signatures; here each signer writes an envelope, so that none of it is left unchecked.

    Attributes:
        payload: the signed bytes.
        signature: the signature.
        source: the file it was read from, for errors.
    """

    payload: bytes
    signature: Signature
    source: str

    @classmethod
    def sign(cls, payload: bytes, key: "PrivateKey") -> "Envelope":
        """Signs a payload."""
        return cls(payload, Signature(key.id, key.sign(encode(payload))), "")

    @classmethod
    def read(cls, path: Path) -> "Envelope":
        """Reads an envelope.

        Raises:
            NotFoundError: the file does not exist.
            EvidenceError: it is not a DSSE envelope of an in-toto Statement.
        """
        try:
            document = parse_json(read_bytes(path))
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no attestation there; `treering attest` writes one") from None
        except (OSError, ValueError) as error:
            raise EvidenceError(
                f"{path}: unreadable ({error}), expected a DSSE envelope", file=path, expected="a DSSE envelope"
            ) from None
        source = str(path)
        fields = _fields(document, {"payload", "payloadType", "signatures"}, source)
        if fields["payloadType"] != PAYLOAD_TYPE:
            raise EvidenceError(
                f"{path}: payloadType is {fields['payloadType']!r}, expected {PAYLOAD_TYPE!r}",
                file=path,
                found=fields["payloadType"],
                expected=PAYLOAD_TYPE,
            )
        entries = fields["signatures"]
        if not isinstance(entries, list) or len(entries) != 1:
            raise EvidenceError(
                f"{path}: signatures is {entries!r}, expected a list of one",
                file=path,
                found=entries,
                expected="a list of one",
            )
        entry = _fields(entries[0], {"keyid", "sig"}, source, "signatures[0]: ")
        signature = Signature(str(entry["keyid"]), _decode(entry["sig"], "sig", source))
        return cls(_decode(fields["payload"], "payload", source), signature, source)

    def to_text(self) -> str:
        """The file's content."""
        document = {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [{"keyid": self.signature.key, "sig": base64.b64encode(self.signature.value).decode()}],
        }
        return json.dumps(document, indent=1) + "\n"

    def signer(self, trusted: Sequence["PublicKey"]) -> "PublicKey":
        """The trusted key that signed the payload.

        Raises:
            EvidenceError: none of them did, or the envelope names another key for its signature.
        """
        claimed, message = self.signature.key, encode(self.payload)
        key = next((key for key in trusted if key.verifies(self.signature.value, message)), None)
        if key is not None and key.id == claimed:
            return key
        if key is not None:
            raise EvidenceError(
                f"{self.source}: keyid is {claimed!r}, but key {key.id} made the signature: the envelope was edited",
                file=Path(self.source),
                found=claimed,
                expected=key.id,
            )
        if claimed in {key.id for key in trusted}:
            raise EvidenceError(
                f"{self.source}: the signature of key {claimed} does not hold: payload or signature was changed after "
                "signing",
                file=Path(self.source),
            )
        wanted = ", ".join(key.id for key in trusted)
        raise EvidenceError(
            f"{self.source}: signed by key {claimed}, expected a signature of {wanted}",
            file=Path(self.source),
            found=claimed,
            expected=wanted,
        )


def encode(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are really signed."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _fields(value: Any, expected: set[str], source: str, place: str = "") -> dict[str, Any]:
    """A JSON object with exactly the expected fields.

    Raises:
        EvidenceError: the value is something else.
    """
    if not isinstance(value, dict) or value.keys() != expected:
        found = sorted(value) if isinstance(value, dict) else value
        raise EvidenceError(
            f"{source}: {place}found {found!r}, expected the fields {sorted(expected)} of a DSSE envelope",
            file=Path(source),
            found=found,
            expected=sorted(expected),
        )
    return value


def _decode(text: Any, name: str, source: str) -> bytes:
    """Decodes base64 in its only canonical text: without stray characters, and with zeros in the unused bits.

    Raises:
        EvidenceError: the text is not base64, or not canonical.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (ValueError, TypeError, binascii.Error) as error:
        raise EvidenceError(
            f"{source}: {name} is not base64 ({error})", file=Path(source), found=text, expected="base64"
        ) from None
    if base64.b64encode(raw).decode() != text:
        raise EvidenceError(
            f"{source}: {name} is not base64 as it was written: the envelope was edited", file=Path(source), found=text
        )
    return raw
