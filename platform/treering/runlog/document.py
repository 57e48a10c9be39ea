"""Small JSON documents of the run log: written whole or not at all, each under its own digest."""

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from treering.config.canonical import digest_json, parse_json
from treering.errors import EvidenceError
from treering.files import read_bytes


def write_durably(path: Path, text: str) -> None:
    """Writes a small file whole or not at all: temporary name, fsync, rename, fsync of the folder.

    A pipe or a device, such as `/dev/stdout`, is written to and stays what it is.

    Raises:
        OSError: it cannot be written, or is a folder; with the file's own name.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        return
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes renames and new names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_document(path: Path, content: dict[str, Any]) -> str:
    """Writes `content` with its digest beside it.

    Returns:
        The digest of the content.
    """
    digest = digest_json(content)
    write_durably(path, json.dumps({**content, "digest": digest}, indent=2, sort_keys=True) + "\n")
    return digest


def read_document(path: Path) -> tuple[dict[str, Any], str]:
    """Reads what `write_document` wrote.

    Returns:
        The content without its digest, and the digest.

    Raises:
        EvidenceError: the file is missing, unreadable, or its content does not give its digest.
    """
    try:
        content: dict[str, Any] = parse_json(read_bytes(path))
        claimed = content.pop("digest")
        recomputed = digest_json(content)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise EvidenceError(f"{path}: missing or no digested document ({error})") from error
    if claimed != recomputed:
        raise EvidenceError(f"{path}: digest {claimed} is written, {recomputed} recomputed: the file was changed")
    return content, recomputed
