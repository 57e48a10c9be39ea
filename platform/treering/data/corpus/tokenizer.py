"""The tokenizer of a run: a path leads to a file, and the digest decides whether that file is the run's tokenizer."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from treering.config.canonical import digest_file, short
from treering.config.model import Digest
from treering.errors import EvidenceError, UserError
from treering.files import read_bytes, read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def check_tokenizer(path: Path, digest: Digest | None, run: str) -> None:
    """Refuses a tokenizer that is not the one that a run was trained with.

    Args:
        path: `tokenizer.json`.
        digest: digest of the tokenizer that the run records.
        run: the run's id, for the error.

    Raises:
        EvidenceError: the tokenizer is missing, or is another one.
    """
    found = digest_file(path) if path.is_file() else None
    if found is None or found != digest:
        raise EvidenceError(
            f"{path}: tokenizer {short(found) if found else 'missing'}, but run {run} was trained with "
            f"{short(digest or 'none')}; `dvc checkout` or `dvc repro tokenize`",
            file=path,
            found=found,
            expected=digest,
            remedy="`dvc checkout` or `dvc repro tokenize`",
        )


def open_tokenizer(path: Path) -> "Tokenizer":
    """Reads a tokenizer.

    Raises:
        EvidenceError: it is not a readable `tokenizer.json`.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - heavy, and only needed for text

    try:
        return Tokenizer.from_str(read_text(path))
    except Exception as error:  # noqa: BLE001 - the library raises plain exceptions
        raise EvidenceError(
            f"{path}: not a readable tokenizer ({error}), expected a tokenizer.json; `treering tokenize` makes it anew",
            file=path,
            found=str(error),
            expected="a tokenizer.json",
            remedy="`treering tokenize`",
        ) from None


def end_of_document(path: Path) -> tuple[str, int]:
    """Text and number of the token that ends every document: the only special token that stage `tokenize` makes.

    Raises:
        UserError: the tokenizer has no special token, or several.
    """
    special = [token for token in json.loads(read_bytes(path))["added_tokens"] if token["special"]]
    if len(special) != 1:
        found = ", ".join(repr(token["content"]) for token in special) or "none"
        raise UserError(f"{path}: found special tokens {found}, expected one, which ends a document")
    return special[0]["content"], special[0]["id"]
