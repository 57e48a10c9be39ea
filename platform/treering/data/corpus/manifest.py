"""Manifests: what a corpus is, by content.

The digest of a manifest covers all of it but `digest` and `name`: the same bytes under another name, folder or date are
the same corpus.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from treering.config.canonical import digest_json, parse_json
from treering.errors import EvidenceError
from treering.files import open_regular, read_bytes, write_durably

CHUNK_BYTES = 4 << 20
SCHEMA_VERSION = 1
_NOT_CONTENT = ("digest", "name")


def describe_file(path: Path) -> dict[str, Any]:
    """Size, sha256, sha256 of every chunk of 4 MiB, and the md5 by which DVC knows the file."""
    whole, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    chunks, size = [], 0
    with open_regular(path) as file:
        while block := file.read(CHUNK_BYTES):
            whole.update(block)
            md5.update(block)
            chunks.append(f"sha256:{hashlib.sha256(block).hexdigest()}")
            size += len(block)
    return {"size": size, "sha256": f"sha256:{whole.hexdigest()}", "chunks": chunks, "dvc_md5": md5.hexdigest()}


def manifest_digest(manifest: dict[str, Any]) -> str:
    """The corpus's identity."""
    return digest_json({key: value for key, value in manifest.items() if key not in _NOT_CONTENT})


def write_manifest(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Completes a manifest with its digest and writes it."""
    complete = {**manifest, "digest": manifest_digest(manifest)}
    write_durably(path, json.dumps(complete, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return complete


def read_manifest(path: Path) -> dict[str, Any]:
    """Reads a manifest and checks its digest.

    Raises:
        EvidenceError: the manifest is missing, unreadable, of another schema, or its content does not have its digest.
    """
    try:
        manifest = parse_json(read_bytes(path))
    except FileNotFoundError:
        _refuse(path, "no such file")
    except (OSError, ValueError) as error:
        _refuse(path, f"unreadable ({error})")
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or version != SCHEMA_VERSION:
        raise EvidenceError(
            f"{path}: found schema version {version!r}, expected a corpus's manifest of schema version {SCHEMA_VERSION}"
            "; run `dvc repro tokenize`",
            file=path,
            found=version,
            expected=SCHEMA_VERSION,
            remedy="`dvc repro tokenize`",
        )
    found, expected = manifest_digest(manifest), manifest.get("digest")
    if found != expected:
        raise EvidenceError(
            f"{path}: content has digest {found}, the manifest says {expected}: it was changed after it was written;"
            " `dvc checkout` restores it",
            file=path,
            found=found,
            expected=expected,
            remedy="`dvc checkout`",
        )
    for field, value, wanted in _wrong_fields(manifest):
        raise EvidenceError(
            f"{path}: {field} is {value!r}, expected {wanted}; `dvc checkout` restores it",
            file=path,
            found=value,
            expected=wanted,
            remedy="`dvc checkout`",
        )
    return manifest


def _refuse(path: Path, problem: str) -> NoReturn:
    raise EvidenceError(
        f"{path}: {problem}, expected a corpus's manifest; run `dvc repro tokenize`",
        file=path,
        found=problem,
        expected="a corpus's manifest",
        remedy="`dvc repro tokenize`",
    ) from None


def _wrong_fields(manifest: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Fields that readers rely on and that have a wrong value: name, value, what was expected."""
    for name in ("num_tokens", "num_documents"):
        if type(manifest.get(name)) is not int or manifest[name] < 0:
            yield name, manifest.get(name), "a number that is not negative"
    if manifest.get("token_width_bytes") not in {1, 2, 4, 8}:
        yield "token_width_bytes", manifest.get("token_width_bytes"), "1, 2, 4 or 8"
    for name in ("name", "licence", "split"):
        if not isinstance(manifest.get(name, ""), str):
            yield name, manifest[name], "a text"
    tokenizer = manifest.get("tokenizer", {"digest": "", "end_of_document": 0})
    if not isinstance(tokenizer, dict):
        yield "tokenizer", tokenizer, "digest and end_of_document"
    elif not isinstance(tokenizer.get("digest"), str) or type(tokenizer.get("end_of_document")) is not int:
        yield "tokenizer", tokenizer, "a digest and a number end_of_document"
    files = manifest.get("files")
    if not isinstance(files, dict):
        yield "files", files, "size and digests of each file"
        return
    for name, record in files.items():
        yield from _wrong_record(f"files.{name}", record)


def _wrong_record(field: str, record: Any) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(record, dict):
        yield field, record, "size, sha256, chunks and dvc_md5"
        return
    size, chunks = record.get("size"), record.get("chunks")
    if type(size) is not int or not 0 <= size < 1 << 62:
        yield f"{field}.size", size, "a number of bytes"
        return
    if not isinstance(chunks, list) or not all(isinstance(each, str) for each in chunks):
        yield f"{field}.chunks", chunks, "a digest of each chunk"
    elif len(chunks) != -(-size // CHUNK_BYTES):
        yield f"{field}.chunks", len(chunks), f"{-(-size // CHUNK_BYTES)} digests for {size} bytes"
    for name in ("sha256", "dvc_md5"):
        if not isinstance(record.get(name), str):
            yield f"{field}.{name}", record.get(name), "a digest"
