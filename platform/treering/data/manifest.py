"""Manifests: what a corpus is, by content.

The digest of a manifest covers all of it but `digest` and `name`: the same bytes under another name, folder or date are
the same corpus.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from treering.config.canonical import digest_json, parse_json
from treering.errors import EvidenceError
from treering.files import open_regular, read_bytes

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
    path.write_text(json.dumps(complete, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    return complete


def read_manifest(path: Path) -> dict[str, Any]:
    """Reads a manifest and checks its digest.

    Raises:
        EvidenceError: missing, unreadable, of another schema, or its content does not have its digest.
    """
    try:
        manifest = parse_json(read_bytes(path))
    except FileNotFoundError:
        raise EvidenceError(f"{path}: no such file, expected a corpus's manifest; run `dvc repro tokenize`") from None
    except (OSError, ValueError) as error:
        raise EvidenceError(
            f"{path}: unreadable ({error}), expected a corpus's manifest; run `dvc repro tokenize`"
        ) from None
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
        raise EvidenceError(f"{path}: expected a corpus's manifest of schema version {SCHEMA_VERSION}")
    found, expected = manifest_digest(manifest), manifest.get("digest")
    if found != expected:
        raise EvidenceError(
            f"{path}: content has digest {found}, the manifest says {expected}: it was changed after it was written;"
            " `dvc checkout` restores it"
        )
    return manifest
