"""The keys: ed25519 in PEM files, PKCS #8 for the private one, SubjectPublicKeyInfo for the public one.

What `openssl genpkey -algorithm ed25519` writes is taken as it is. A key's id is the sha256 of its public part in DER.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from treering.errors import NotFoundError, UserError
from treering.files import read_bytes, write_durably

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError:
    raise UserError(
        "signatures need the package cryptography, which is not installed: `pip install 'treering[attestation]'`"
    ) from None

PASSPHRASE_VARIABLE = "TREERING_KEY_PASSPHRASE"  # noqa: S105 - the variable's name


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that is trusted.

    Attributes:
        id: sha256 of the key in DER, hex.
    """

    id: str
    _key: Ed25519PublicKey

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> "PublicKey":
        """Gives a key its id."""
        der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return cls(hashlib.sha256(der).hexdigest(), key)

    @classmethod
    def read(cls, path: Path) -> "PublicKey":
        """Reads a public key.

        Raises:
            NotFoundError: the file does not exist.
            UserError: it holds something else.
        """
        try:
            key = serialization.load_pem_public_key(_read(path))
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UserError(
                f"{path}: no public key in PEM ({error}); `openssl pkey -in KEY.pem -pubout` writes one"
            ) from None
        if not isinstance(key, Ed25519PublicKey):
            raise UserError(f"{path}: {type(key).__name__}, expected an ed25519 key")
        return cls.of(key)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the private part of this key signed the message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def to_pem(self) -> bytes:
        """The key as a file holds it."""
        pem: bytes = self._key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return pem


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs.

    Attributes:
        public: what others check its signatures with.
    """

    public: PublicKey
    _key: Ed25519PrivateKey

    @classmethod
    def read(cls, path: Path) -> "PrivateKey":
        """Reads a private key; the passphrase of an encrypted key is in `TREERING_KEY_PASSPHRASE`.

        Raises:
            NotFoundError: the file does not exist.
            UserError: it holds something else, or the passphrase is missing or wrong.
        """
        passphrase = os.environ.get(PASSPHRASE_VARIABLE)
        try:
            key = serialization.load_pem_private_key(_read(path), None if passphrase is None else passphrase.encode())
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UserError(
                f"{path}: no private key in PEM that opens ({error}); `treering keygen` makes one; the passphrase of "
                f"an encrypted one is taken from {PASSPHRASE_VARIABLE}, which must be unset for a plain one"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise UserError(f"{path}: {type(key).__name__}, expected an ed25519 key")
        return cls(PublicKey.of(key.public_key()), key)

    @property
    def id(self) -> str:
        """The key's id."""
        return self.public.id

    def sign(self, message: bytes) -> bytes:
        """An ed25519 signature: 64 bytes."""
        return self._key.sign(message)


def generate(path: Path) -> tuple[PrivateKey, Path]:
    """Makes a key pair: the private part in `path`, readable by its owner alone, the public one in `<stem>.pub.pem`.

    Returns:
        The key and the file of its public part.

    Raises:
        UserError: one of the files is there already.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder, expected a new file for the key; `treering keygen {path}/signer.pem`")
    public_path = path.with_name(f"{path.stem}.pub.pem")
    for file in (path, public_path):
        if file.exists():
            raise UserError(f"{file} exists, expected a new file: a key is never replaced; name another one")
    raw = Ed25519PrivateKey.generate()
    key = PrivateKey(PublicKey.of(raw.public_key()), raw)
    pem = raw.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(pem)
    write_durably(public_path, key.public.to_pem())
    return key, public_path


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise NotFoundError(f"{path}: no key there ({error.strerror}); `treering keygen` makes one") from None
