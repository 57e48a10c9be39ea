"""Brings a project's data from a store to this machine: every byte is compared with its digest before it has its place.

Files grow in `.treering/pull`, so that an interrupted call goes on: of a corpus with the chunks of 4 MiB that it lacks.
"""

import hashlib
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

from treering.config.canonical import digest_bytes, digest_file, digest_json, parse_json
from treering.data.corpus.chunks import map_in_order
from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST
from treering.data.corpus.manifest import CHUNK_BYTES, read_manifest
from treering.data.corpus.ranged import RangedCorpus
from treering.data.stored.layout import (
    CURATED_FILES,
    Meter,
    Moved,
    corpus_base,
    curated_base,
    data_store,
    read_record,
    tokenizer_name,
    total_size,
)
from treering.errors import EvidenceError, UserError
from treering.files import read_bytes, replace_durably, write_durably
from treering.objects import ObjectStore
from treering.progress import Progress, quiet
from treering.project import Project

_FILES: Final = (BIN, IDX, DOCUMENTS)
_LIST_BYTES: Final = 1 << 30


def pull(project: Project, store: ObjectStore, *, curated: bool = False, progress: Progress = quiet) -> list[Moved]:
    """Brings the corpora, the tokenizer and the blend of a project as they were last pushed.

    Args:
        project: the project; what it has already is kept.
        store: where from.
        curated: whether the curated documents are brought too.
        progress: told the bytes of each thing that are here.

    Raises:
        NotFoundError: the store has no data of this project.
        UserError: the project has other data in a place.
        EvidenceError: something in the store is missing or does not have its digest.
        StoreError: the store does not answer; the next call goes on.
    """
    record = read_record(store, project)
    done = []
    for place, digest in record["corpora"].items():
        folder = project.corpora / place
        moved, manifest = 0, _corpus_here(folder, digest)
        if manifest is None:
            begun = _partial_corpus(project, store, digest)
            if begun is None:
                _refuse(
                    store, f"{corpus_base(digest)}/{MANIFEST}", "no such object", f"the manifest of corpus {digest}"
                )
            partial_folder, manifest = begun
            advance = Meter(progress, f"corpus {place}", total_size(manifest["files"]))
            moved = _bring_files(store, partial_folder, manifest, _FILES, advance)
            _place(partial_folder, folder)
        done.append(Moved(f"corpus {place}", digest, total_size(manifest["files"]), moved))
    done.append(_pull_tokenizer(project, store, record["tokenizer"]))
    if record.get("blend") is not None:
        _write_same(project.blend, record["blend"].encode())
    if curated:
        if record["curated"] is None:
            raise UserError(
                f"pull: {store.place} has no curated documents of project {project.name}; leave --curated out"
            )
        done.append(_pull_curated(project, store, record["curated"], progress))
    return done


def corpus_in_store(project: Project, digest: str) -> RangedCorpus | None:
    """A corpus of the store that the environment names, opened there: index and table are brought, tokens stay.

    Args:
        project: whose `.treering` keeps index and table.
        digest: of the corpus.

    Returns:
        The corpus; None where the store does not have it.

    Raises:
        UserError: the store cannot be opened.
        EvidenceError: what the store has does not have its digest.
        StoreError: the store does not answer.
    """
    store, base = data_store(None, "audit"), corpus_base(digest)
    begun = _partial_corpus(project, store, digest)
    if begun is None:
        return None
    folder, manifest = begun
    _bring_files(store, folder, manifest, (IDX, DOCUMENTS), Meter(quiet, "", 0))
    return RangedCorpus(folder, manifest, f"{store.place.rstrip('/')}/{base}", partial(store.read, f"{base}/{BIN}"))


def tokenizer_in_store(project: Project, digest: str) -> Path:
    """A copy of a tokenizer of the store that the environment names.

    Raises:
        EvidenceError: the store does not have it with its digest.
        StoreError: the store does not answer.
    """
    path = project.root / ".treering" / "pull" / tokenizer_name(digest)
    if not path.is_file() or digest_file(path) != digest:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, _tokenizer(data_store(None, "audit"), digest))
    return path


def _corpus_here(folder: Path, digest: str) -> dict[str, Any] | None:
    """The manifest of a corpus that is in its place.

    Raises:
        UserError: another corpus is there.
    """
    if not (folder / MANIFEST).is_file():
        return None
    manifest = read_manifest(folder / MANIFEST)
    whole = all((folder / name).is_file() for name in _FILES)
    if manifest["digest"] != digest or not whole:
        found = f"corpus {manifest['digest']}" if whole else "a corpus without all its files"
        raise UserError(f"pull: {folder}: found {found}, expected {digest}; move it away, or pull into an empty folder")
    return manifest


def _partial_corpus(project: Project, store: ObjectStore, digest: str) -> tuple[Path, dict[str, Any]] | None:
    """The folder in which a corpus grows, with its manifest; None where the store does not have the corpus.

    Raises:
        EvidenceError: the manifest does not have its digest.
    """
    base = corpus_base(digest)
    folder = project.root / ".treering" / "pull" / base
    if not (folder / MANIFEST).is_file():
        content = store.get(f"{base}/{MANIFEST}")
        if content is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        write_durably(folder / MANIFEST, content)
    try:
        manifest = read_manifest(folder / MANIFEST)
    except EvidenceError as error:
        (folder / MANIFEST).unlink()
        _refuse(store, f"{base}/{MANIFEST}", str(error), f"the manifest of corpus {digest}")
    if manifest["digest"] != digest or set(manifest["files"]) != set(_FILES):
        (folder / MANIFEST).unlink()
        _refuse(store, f"{base}/{MANIFEST}", f"corpus {manifest['digest']}", f"corpus {digest} of {', '.join(_FILES)}")
    return folder, manifest


def _bring_files(store: ObjectStore, folder: Path, manifest: dict[str, Any], names: Iterable[str], seen: Meter) -> int:
    """Brings the chunks of a corpus's files that are not here; returns the bytes that were brought.

    Args:
        store: where from.
        folder: in which the files grow.
        manifest: of the corpus.
        names: of the files.
        seen: told the bytes that are here.

    Raises:
        EvidenceError: a chunk does not have its digest.
    """
    base = corpus_base(manifest["digest"])
    return sum(_bring(store, f"{base}/{name}", folder / name, manifest["files"][name], seen) for name in names)


def _bring(store: ObjectStore, source: str, path: Path, described: dict[str, Any], seen: Meter) -> int:
    size, chunks = int(described["size"]), described["chunks"]
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(size)
        descriptor = file.fileno()

        def bring(number: int) -> int:
            start, length = number * CHUNK_BYTES, min(CHUNK_BYTES, size - number * CHUNK_BYTES)
            brought = 0
            if digest_bytes(os.pread(descriptor, length, start)) != chunks[number]:
                content = store.read(source, start, start + length)
                if digest_bytes(content) != chunks[number]:
                    _refuse(store, source, f"chunk {number} with digest {digest_bytes(content)}", chunks[number])
                brought = os.pwrite(descriptor, content, start)
            seen(length)
            return brought

        return sum(map_in_order(bring, range(len(chunks))))


def _pull_tokenizer(project: Project, store: ObjectStore, digest: str) -> Moved:
    """Brings the tokenizer.

    Raises:
        EvidenceError: the store does not have it with its digest.
    """
    if project.tokenizer.is_file() and digest_file(project.tokenizer) == digest:
        return Moved("tokenizer", digest, project.tokenizer.stat().st_size, 0)
    content = _tokenizer(store, digest)
    _write_same(project.tokenizer, content)
    return Moved("tokenizer", digest, len(content), len(content))


def _tokenizer(store: ObjectStore, digest: str) -> bytes:
    content = store.get(tokenizer_name(digest)) or b""
    if digest_bytes(content) != digest:
        _refuse(store, tokenizer_name(digest), f"digest {digest_bytes(content)}", digest)
    return content


def _write_same(path: Path, content: bytes) -> None:
    """Writes a file that is missing.

    Raises:
        UserError: another file is there.
    """
    if path.exists():
        if read_bytes(path) != content:
            raise UserError(f"pull: {path}: found another file, expected that of the store; move it away")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, content)


def _pull_curated(project: Project, store: ObjectStore, digest: str, progress: Progress) -> Moved:
    """Brings curated documents.

    Raises:
        UserError: the project has curated documents already.
        EvidenceError: the list or a file does not have its digest.
    """
    base = curated_base(digest)
    files = _curated_files(store, f"{base}/{CURATED_FILES}", digest)
    size = total_size(files)
    if project.curated.exists():
        here = {name: _described(project.curated / name) for name in files}
        if here != files:
            raise UserError(f"pull: {project.curated}: found other documents, expected {digest}; move the folder away")
        return Moved("curated documents", digest, size, 0)
    folder = project.root / ".treering" / "pull" / base
    moved, advance = 0, Meter(progress, "curated documents", size)
    for name, described in files.items():
        path = folder / name
        if _described(path) != described:
            path.parent.mkdir(parents=True, exist_ok=True)
            moved += _bring_whole(store, f"{base}/{name}", path, described)
        advance(described["size"])
    _place(folder, project.curated)
    return Moved("curated documents", digest, size, moved)


def _curated_files(store: ObjectStore, name: str, digest: str) -> dict[str, dict[str, Any]]:
    content = store.get(name) or b""
    try:
        files: dict[str, dict[str, Any]] = parse_json(content)
        found = digest_json(files)
        inside = all(".." not in PurePosixPath(each).parts and not each.startswith("/") for each in files)
    except (ValueError, TypeError, AttributeError) as error:
        _refuse(store, name, f"no list ({error})", digest)
    if found != digest or not inside:
        _refuse(store, name, f"a list with digest {found}", digest)
    return files


def _described(path: Path) -> dict[str, Any] | None:
    return {"size": path.stat().st_size, "sha256": digest_file(path)} if path.is_file() else None


def _bring_whole(store: ObjectStore, name: str, path: Path, described: dict[str, Any]) -> int:
    size, state = int(described["size"]), hashlib.sha256()

    def read(start: int) -> bytes:
        return store.read(name, start, min(start + CHUNK_BYTES, size))

    with path.open("wb") as file:
        blocks: Iterable[bytes] = map_in_order(read, range(0, size, CHUNK_BYTES))
        for block in blocks:
            state.update(block)
            file.write(block)
    found = f"sha256:{state.hexdigest()}"
    if found != described["sha256"]:
        _refuse(store, name, f"digest {found}", described["sha256"])
    return size


def _place(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(folder, target)


def _refuse(store: ObjectStore, name: str, found: str, expected: str) -> NoReturn:
    folder, _, last = f"{store.place.rstrip('/')}/{name}".rpartition("/")
    raise EvidenceError(
        f"{folder}/{last}: found {found}, expected {expected}: the store has lost or changed it; remove {folder}, and "
        "`treering push` where the data is",
        found=found,
        expected=expected,
        remedy="`treering push`",
    )
