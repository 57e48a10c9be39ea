"""Sends a project's curated documents and corpora to a store: only what is not there yet, and only what has its digest.

A large file goes up in parts. An upload that was killed goes on with the parts that it lacks.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from treering.config.canonical import digest_bytes, digest_file, digest_json
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.data.corpus.manifest import CHUNK_BYTES
from treering.data.stored.layout import (
    CURATED_FILES,
    Meter,
    Moved,
    corpus_base,
    curated_base,
    project_name,
    tokenizer_name,
    total_size,
)
from treering.errors import EvidenceError, NotFoundError
from treering.files import open_regular, read_bytes
from treering.objects import ObjectStore
from treering.progress import Progress, quiet
from treering.project import Project

PART_BYTES: Final = 16 * CHUNK_BYTES
_MOST_PARTS: Final = 10_000
"""Of one object. Source: Amazon S3, multipart upload limits."""


def push(project: Project, store: ObjectStore, progress: Progress = quiet) -> list[Moved]:
    """Sends corpora, tokenizer and curated documents of a project, then the record that names them.

    Args:
        project: the project.
        store: where to.
        progress: told the bytes of each thing that were read.

    Raises:
        NotFoundError: the project has no corpus.
        EvidenceError: a file is not what its manifest says; nothing of it is named.
        StoreError: the store does not answer; the next push goes on.
    """
    corpora = [Corpus.open(path.parent) for path in sorted(project.corpora.glob(f"*/*/{MANIFEST}"))]
    if not corpora:
        raise NotFoundError(f"push: {project.corpora} holds no corpus, expected the corpora of stage `tokenize`")
    done = [_push_corpus(corpus, store, progress) for corpus in corpora]
    tokenizer = digest_file(project.tokenizer)
    content = read_bytes(project.tokenizer)
    sent = 0 if store.size(tokenizer_name(tokenizer)) == len(content) else len(content)
    if sent:
        store.put(tokenizer_name(tokenizer), content)
    done.append(Moved("tokenizer", tokenizer, len(content), sent))
    curated = _push_curated(project, store, progress) if project.curated.is_dir() else None
    done += [curated] if curated else []
    record = {
        "corpora": {str(each.directory.relative_to(project.corpora)): each.digest for each in corpora},
        "tokenizer": tokenizer,
        "curated": curated.digest if curated else None,
        "blend": read_bytes(project.blend).decode() if project.blend.is_file() else None,
    }
    store.put(project_name(project), json.dumps(record, indent=1, sort_keys=True).encode())
    return done


def _push_corpus(corpus: Corpus, store: ObjectStore, progress: Progress) -> Moved:
    base, files = corpus_base(corpus.digest), corpus.manifest["files"]
    what, size, sent = f"corpus {corpus.name} ({corpus.manifest['split']})", total_size(files), 0
    if store.size(f"{base}/{MANIFEST}") is None:
        advance = Meter(progress, what, size)
        for name, described in files.items():
            path = corpus.directory / name

            def seen(start: int, content: bytes, path: Path = path, chunks: list[str] = described["chunks"]) -> None:
                _check_chunks(path, chunks, start, content)
                advance(len(content))

            sent += _send(store, f"{base}/{name}", path, described["size"], seen)
        store.put(f"{base}/{MANIFEST}", read_bytes(corpus.directory / MANIFEST))
    return Moved(what, corpus.digest, size, sent)


def _push_curated(project: Project, store: ObjectStore, progress: Progress) -> Moved:
    """Sends curated documents; their digest is that of the list of their files."""
    files: dict[str, dict[str, Any]] = {
        path.relative_to(project.curated).as_posix(): {"size": path.stat().st_size, "sha256": digest_file(path)}
        for path in sorted(project.curated.rglob("*"))
        if path.is_file()
    }
    digest, size, sent = digest_json(files), total_size(files), 0
    base, advance = curated_base(digest), Meter(progress, "curated documents", size)
    if store.size(f"{base}/{CURATED_FILES}") is None:
        for name, described in files.items():

            def seen(_start: int, content: bytes) -> None:
                advance(len(content))

            sent += _send(store, f"{base}/{name}", project.curated / name, described["size"], seen)
        store.put(f"{base}/{CURATED_FILES}", json.dumps(files, indent=1, sort_keys=True).encode())
    return Moved("curated documents", digest, size, sent)


def _send(store: ObjectStore, name: str, path: Path, size: int, seen: Callable[[int, bytes], None]) -> int:
    """Sends a file that the store does not have in that size; returns the bytes that were sent.

    Args:
        store: where to.
        name: of the object.
        path: the file.
        size: its bytes.
        seen: is called with the place and the content of each part before it is sent.
    """
    if store.size(name) == size:
        return 0
    part_bytes = PART_BYTES * (1 + size // (PART_BYTES * _MOST_PARTS))

    def read(start: int) -> bytes:
        with open_regular(path) as file:
            file.seek(start)
            content = file.read(min(part_bytes, size - start))
        seen(start, content)
        return content

    return store.upload(name, [partial(read, start) for start in range(0, max(size, 1), part_bytes)])


def _check_chunks(path: Path, chunks: Sequence[str], start: int, content: bytes) -> None:
    """Compares a part of a file with the manifest.

    Raises:
        EvidenceError: a chunk differs.
    """
    for offset in range(0, len(content), CHUNK_BYTES):
        number = (start + offset) // CHUNK_BYTES
        found = digest_bytes(content[offset : offset + CHUNK_BYTES])
        if found != chunks[number]:
            raise EvidenceError(
                f"push: {path}: chunk {number} has digest {found}, expected {chunks[number]} by the manifest: it was "
                "changed; `dvc checkout` restores it",
                file=path,
                found=found,
                expected=chunks[number],
                remedy="`dvc checkout`",
            )
