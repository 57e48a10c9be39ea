"""Small JSON documents of the run log: written whole or not at all, each under its own digest."""

import json
from pathlib import Path
from typing import Any

from treering.config.canonical import digest_json, parse_json
from treering.errors import EvidenceError
from treering.files import read_bytes, reason, write_durably


def write_document(path: Path, content: dict[str, Any]) -> str:
    """Writes `content` with its digest beside it.

    Returns:
        The digest of the content.
    """
    text, digest = document_text(content)
    write_durably(path, text)
    return digest


def document_text(content: dict[str, Any]) -> tuple[str, str]:
    """The text of a document with its digest, and the digest."""
    digest = digest_json(content)
    return json.dumps({**content, "digest": digest}, indent=2, sort_keys=True) + "\n", digest


def read_document(path: Path) -> tuple[dict[str, Any], str]:
    """Reads what `write_document` wrote.

    Returns:
        The content without its digest, and the digest.

    Raises:
        EvidenceError: the file is missing, unreadable, or its content does not give its digest.
    """
    try:
        return parse_document(read_bytes(path), path)
    except OSError as error:
        raise EvidenceError(
            f"{path}: missing or no digested document ({error})",
            file=path,
            found=reason(error),
            expected="a document with its digest",
        ) from error


def parse_document(text: bytes, path: Path) -> tuple[dict[str, Any], str]:
    """Parses the text of a document.

    Args:
        text: what `document_text` made.
        path: where it is from, for errors.

    Returns:
        The content without its digest, and the digest.

    Raises:
        EvidenceError: it is no document, or its content does not give its digest.
    """
    try:
        content: dict[str, Any] = parse_json(text)
        claimed = content.pop("digest")
        recomputed = digest_json(content)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise EvidenceError(
            f"{path}: missing or no digested document ({error})",
            file=path,
            found=reason(error),
            expected="a document with its digest",
        ) from error
    if claimed != recomputed:
        raise EvidenceError(
            f"{path}: digest {claimed} is written, {recomputed} recomputed: the file was changed",
            file=path,
            found=claimed,
            expected=recomputed,
        )
    return content, recomputed
