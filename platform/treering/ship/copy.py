"""Copies of run folders in a store, a folder or S3: what a run is, without its weights, for people elsewhere.

    <store>/<project>/<run>/copied.json                           what the copy consists of; written last in each pass
                            files/<path>/<offset>-<digest>        a part of a file, which never changes

`copied.json` is replaced whole, so a reader finds the state after one pass, and every part that it names is there. A
pass that was killed left parts that nothing names. The next pass reads `copied.json`, and goes on with each file at
the place where the copy ends; it first compares the last part with the file. Many small parts of a log are replaced by
a larger one. `treering.ship.mirror` brings the copies back.

Which files these are, and which stay here: `treering.runlog.copied`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from treering.config.canonical import DIGEST_PREFIX, digest_bytes, digest_file
from treering.errors import EvidenceError, StoreError
from treering.files import open_regular
from treering.objects import ObjectStore
from treering.runlog.copied import Chunk, CopiedFile, CopiedRun, Found, look_settled, may_vanish
from treering.runlog.folders import HEADER_FILE, RunFolder
from treering.runlog.ring_file import COMPRESSED
from treering.ship.target import ShipReport, one_shipper

TARGET: Final = "copies"
LARGE: Final = 16 << 20
"""Bytes of a part that is never made larger."""

_INDEX: Final = "copied.json"
_SMALL: Final = 1 << 20
_MANY: Final = 32


def run_base(project: str, run: str) -> str:
    """Where a run is in a store."""
    return f"{project}/{run}"


def part_name(base: str, file: str, chunk: Chunk) -> str:
    """The name of a part of a file.

    Args:
        base: of the run, by `run_base`.
        file: path in the run's folder.
        chunk: the part.
    """
    return f"{base}/files/{file}/{chunk.offset:012d}-{chunk.digest.removeprefix(DIGEST_PREFIX)}"


def read_index(store: ObjectStore, base: str) -> CopiedRun | None:
    """What a store has of a run, None if it has nothing.

    Raises:
        StoreError: the store does not answer.
        EvidenceError: `copied.json` was changed.
    """
    text = store.get(f"{base}/{_INDEX}")
    return None if text is None else CopiedRun.parse(text, Path(store.place, base, _INDEX))


def write_index(store: ObjectStore, index: CopiedRun) -> None:
    """Writes what a store has of a run.

    Raises:
        StoreError: the store does not answer.
    """
    store.put(f"{run_base(index.project, index.run)}/{_INDEX}", index.text()[0].encode())


def refuse_another(run: RunFolder, store: ObjectStore, copied: CopiedRun) -> None:
    """Ends where two projects of one name train the same recipe: each would replace the other's copy.

    Raises:
        EvidenceError: the first attempts differ.
    """
    header = run.attempt_folder(1) / HEADER_FILE
    there = copied.files.get(header.relative_to(run.path).as_posix())
    if there is None or not header.exists():
        return
    found = digest_file(header)
    if [found] != [chunk.digest for chunk in there.chunks]:
        raise EvidenceError(
            f"{store.place}: {run_base(copied.project, copied.run)} is the copy of another training: its first attempt "
            f"is not that of {run.path}; give this project another name by TREERING_PROJECT, or remove that copy",
            file=header,
            found=found,
            expected=there.chunks[0].digest if there.chunks else None,
        )


class RunCopier:
    """Copies one run, again and again.

    Args:
        run: the run.
        store: where to.
        project: the project's name in the store.
    """

    def __init__(self, run: RunFolder, store: ObjectStore, project: str) -> None:
        self._run = run
        self._store = store
        self._project = project
        self._base = run_base(project, run.path.name)
        self._done: tuple[str, list[Found]] | None = None
        self._compared: set[str] = set()
        self._replaced: list[str] = []

    def ship(self) -> ShipReport:
        """One pass: everything that is durable now.

        Raises:
            StoreError: the store does not answer; the next pass goes on from what it holds.
            EvidenceError: the store has a copy of another run under this name.
            OSError: the folder cannot be read, or is being removed.
        """
        with one_shipper(self._run, TARGET):
            try:
                return self._ship()
            except (StoreError, EvidenceError, OSError):
                self._done = None
                raise

    def _ship(self) -> ShipReport:
        state = self._run.state()  # first: a run that ends now is copied as running, and the next pass sees its end
        found = look_settled(self._run.path, state)
        report = ShipReport(TARGET, self._run.path.name, state, self._base)
        if self._done == (state, found):
            return report
        before = read_index(self._store, self._base)
        if before and self._done is None:
            refuse_another(self._run, self._store, before)
        self._replaced = []
        known = before.files if before else {}
        files = {name: file for name, file in known.items() if not may_vanish(name)}
        for each in found:
            copied = self._copied(each, known.get(each.name))
            if copied:
                files[each.name] = copied
        for name in known.keys() - {each.name for each in found}:
            if f"{name}{COMPRESSED}" in files:  # it is copied, and replaces the plain file
                files.pop(name, None)
        gone = known.keys() - files.keys()
        self._replaced += [part_name(self._base, name, chunk) for name in gone for chunk in known[name].chunks]
        changed = [name for name, file in files.items() if known.get(name) != file]
        if before is None or changed or gone or before.state != state:
            write_index(
                self._store, CopiedRun(project=self._project, run=self._run.path.name, state=state, files=files)
            )
            self._store.remove(self._replaced)
        if all(each.settled for each in found):
            self._done = (state, found)
        again = [name for name in changed if name in known and known[name].rewritten < files[name].rewritten]
        note = f"{', '.join(again)} differed from the copy, and was copied again" if again else ""
        return ShipReport(TARGET, self._run.path.name, state, self._base, {"file": len(changed)}, note)

    def _copied(self, found: Found, before: CopiedFile | None) -> CopiedFile | None:
        """Copies what is new in a file; None where there is nothing to copy yet."""
        if not found.settled:
            return before
        if before and (found.size, found.modified_ns) == (before.size, before.modified_ns):
            return before
        with open_regular(self._run.path / found.name) as file:
            return (self._log if found.kind == "log" else self._document)(file, found, before)

    def _document(self, file: BinaryIO, found: Found, before: CopiedFile | None) -> CopiedFile:
        known = set(before.chunks) if before else set()
        chunks = [self._put(found.name, offset, data, known) for offset, data in _pieces(file, 0, None)]
        self._replaced += [part_name(self._base, found.name, chunk) for chunk in known - set(chunks)]
        return CopiedFile(kind="document", modified_ns=found.modified_ns, chunks=tuple(chunks))

    def _log(self, file: BinaryIO, found: Found, before: CopiedFile | None) -> CopiedFile | None:
        chunks = list(before.chunks) if before else []
        rewritten = before.rewritten if before else 0
        if found.name not in self._compared or (before and found.size < before.size):
            kept = _still_there(file, chunks)
            rewritten += len(kept) < len(chunks)  # what is no longer in the file stays in the store, unnamed
            chunks = kept
            self._compared.add(found.name)
        start = _end(chunks)
        for offset, data in _pieces(file, start, found.size):
            whole = data if offset + len(data) < found.size else data[: data.rfind(b"\n") + 1]
            if whole:
                chunks.append(self._put(found.name, offset, whole, set()))
        if before is None and not chunks:
            return None
        if _end(chunks) > start:
            chunks = self._merged(file, found.name, chunks, _SMALL, most=_MANY)
            chunks = self._merged(file, found.name, chunks, LARGE, most=LARGE // _SMALL + _MANY)
        return CopiedFile(kind="log", modified_ns=found.modified_ns, rewritten=rewritten, chunks=tuple(chunks))

    def _merged(self, file: BinaryIO, name: str, chunks: list[Chunk], limit: int, *, most: int) -> list[Chunk]:
        """Replaces the last parts that are smaller than a limit by one, where they are `most` or that large together.

        A part that differs from the file now is evidence: nothing is merged then.
        """
        first = len(chunks)
        while first and chunks[first - 1].size < limit:
            first -= 1
        small = chunks[first:]
        total = sum(chunk.size for chunk in small)
        if len(small) < 2 or (total < limit and len(small) < most) or not all(_holds(file, each) for each in small):
            return chunks
        file.seek(small[0].offset)
        merged = [self._put(name, small[0].offset, file.read(total), set())]
        self._replaced += [part_name(self._base, name, chunk) for chunk in small]
        return chunks[:first] + merged

    def _put(self, name: str, offset: int, data: bytes, known: set[Chunk]) -> Chunk:
        chunk = Chunk(offset=offset, size=len(data), digest=digest_bytes(data))
        if chunk not in known:
            self._store.put(part_name(self._base, name, chunk), data)
        return chunk


def _pieces(file: BinaryIO, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """The bytes of a file from a place on, in pieces, each with its offset."""
    file.seek(start)
    while data := file.read(LARGE if end is None else min(LARGE, end - start)):
        yield start, data
        start += len(data)


def _end(chunks: list[Chunk]) -> int:
    return chunks[-1].offset + chunks[-1].size if chunks else 0


def _still_there(file: BinaryIO, chunks: list[Chunk]) -> list[Chunk]:
    """The parts up to the last one that is in the file as it was copied.

    A power cut may take lines that were copied. It takes them from the end, so parts before an equal one are equal.
    """
    count = len(chunks)
    while count and not _holds(file, chunks[count - 1]):
        count -= 1
    return chunks[:count]


def _holds(file: BinaryIO, chunk: Chunk) -> bool:
    file.seek(chunk.offset)
    return digest_bytes(file.read(chunk.size)) == chunk.digest
