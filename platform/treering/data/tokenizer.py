"""The tokenizer of a run: its place leads to a file, only the digest says whether it is the one."""

import json
from pathlib import Path

from treering.config.canonical import digest_file, short
from treering.config.model import Digest
from treering.errors import EvidenceError, UserError


def check_tokenizer(path: Path, digest: Digest | None, run: str) -> None:
    """Refuses a tokenizer that is not the one that a run was trained with.

    Args:
        path: `tokenizer.json`.
        digest: what the run says of its tokenizer.
        run: the run's id, for the error.

    Raises:
        EvidenceError: it is missing, or another one.
    """
    found = digest_file(path) if path.is_file() else None
    if found is None or found != digest:
        raise EvidenceError(
            f"{path}: tokenizer {short(found) if found else 'missing'}, but run {run} was trained with "
            f"{short(digest or 'none')}; `dvc checkout` or `dvc repro tokenize`"
        )


def end_of_document(path: Path) -> tuple[str, int]:
    """Text and number of the token that ends every document: the one special token that stage `tokenize` makes.

    Raises:
        UserError: it has none, or several.
    """
    special = [token for token in json.loads(path.read_bytes())["added_tokens"] if token["special"]]
    if len(special) != 1:
        found = ", ".join(repr(token["content"]) for token in special) or "none"
        raise UserError(f"{path}: special tokens {found}, expected the one that ends a document")
    return special[0]["content"], special[0]["id"]
