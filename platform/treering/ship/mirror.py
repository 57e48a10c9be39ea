"""Brings copies of run folders back from a store: every file byte by byte as it was copied, each part verified.

A mirror is a project's folder whose `runs/` has runs of another one. `mirror.json` marks each of them; nothing else
writes to it. What was brought stays: a second pass fetches only what is new, and goes on after a kill.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from treering.config.canonical import digest_bytes
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.files import open_regular, replace_durably
from treering.objects import ObjectStore
from treering.project import Project
from treering.runlog.copied import Chunk, CopiedFile, CopiedRun, kind_of, look
from treering.runlog.folders import RunFolder
from treering.runlog.mirror import Mirror, Missing
from treering.ship.copy import part_name, read_index, run_base
from treering.ship.target import one_shipper

_RUN_NAME: Final = re.compile(r"[0-9a-f]{16}")
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What one pass over one run did.

    Attributes:
        run: the run's id in short.
        mirror: what is here now.
        files: files that were new or had grown.
        num_bytes: bytes that were written.
    """

    run: str
    mirror: Mirror
    files: int
    num_bytes: int


class MirrorOf:
    """The copies of one project in a store.

    Args:
        store: the store.
        project: the project's name there; default the only one.

    Raises:
        NotFoundError: the store has no such project, or several and none is named.
        StoreError: the store does not answer.
    """

    def __init__(self, store: ObjectStore, project: str | None = None) -> None:
        self._store = store
        found = store.folders()
        listed = ", ".join(found) or "none"
        if project is None and len(found) != 1:
            raise NotFoundError(f"{store.place}: holds these projects: {listed}; expected one, or `--project NAME`")
        if project is not None and project not in found:
            raise NotFoundError(f"{store.place}: has no project {project}, but: {listed}")
        self.project = project or found[0]

    def runs(self) -> list[str]:
        """The names of the runs' folders.

        Raises:
            StoreError: the store does not answer.
        """
        return [name for name in self._store.folders(self.project) if _RUN_NAME.fullmatch(name)]

    def bring(self, here: Project, name: str) -> MirrorReport:
        """Brings what is new of one run.

        Args:
            here: where to.
            name: of the run's folder.

        Raises:
            UserError: the run's folder here is no mirror, or one of another project.
            EvidenceError: `copied.json` was changed.
            StoreError: the store does not answer.
        """
        run = RunFolder(here.run(name))
        mark = run.mirror
        if mark is None and run.path.exists() and look(run.path):  # an empty folder is left by a killed pass
            raise UserError(f"{run.path}: is a run of this project, and no mirror; mirror into a folder of its own")
        if mark is not None and mark.project != self.project:
            raise UserError(f"{run.path}: is a mirror of project {mark.project}, and not of {self.project}")
        index = self._index(name)
        if mark is None:
            mark = self._mark(index, complete=False)
            run.path.mkdir(parents=True, exist_ok=True)
            mark.write(run.mirror_file)
        files = num_bytes = 0
        with one_shipper(run, "mirror"):
            for _try in range(_TRIES):
                pass_ = _Pass(self._store, run.path, index, mark)
                pass_.bring()
                files, num_bytes = files + pass_.files, num_bytes + pass_.num_bytes
                newer = self._index(name) if pass_.missing else index
                if newer == index:
                    break
                index = newer  # parts were replaced by a larger one meanwhile
            mark = self._mark(index, rewritten=pass_.rewritten, missing=pass_.missing)
            if mark != run.mirror:
                mark.write(run.mirror_file)
        return MirrorReport(name, mark, files, num_bytes)

    def _index(self, name: str) -> CopiedRun:
        index = read_index(self._store, run_base(self.project, name))
        if index is None or index.run != name or index.project != self.project:
            found = "nothing" if index is None else f"run {index.run} of project {index.project}"
            raise EvidenceError(f"{self._store.place}: found {found} as copied.json of run {name} of {self.project}")
        for file, copied in index.files.items():
            end = 0
            for chunk in copied.chunks:
                if chunk.offset != end:
                    raise EvidenceError(f"{self._store.place}: copied.json of run {name}: {file}: parts do not follow")
                end += chunk.size
            if kind_of(file) != copied.kind:
                raise EvidenceError(f"{self._store.place}: copied.json of run {name}: no run has a file {file!r}")
        return index

    def _mark(
        self,
        index: CopiedRun,
        *,
        complete: bool = True,
        rewritten: dict[str, int] | None = None,
        missing: list[Missing] | None = None,
    ) -> Mirror:
        return Mirror(
            store=self._store.place,
            project=self.project,
            state=index.state,
            written_at=index.at,
            complete=complete,
            rewritten=rewritten or {},
            missing=tuple(missing or ()),
        )


class _Pass:
    """One pass over one run: afterwards its files are as the index says, but for parts that are missing."""

    def __init__(self, store: ObjectStore, folder: Path, index: CopiedRun, mark: Mirror) -> None:
        self._store, self._folder, self._index = store, folder, index
        self._base = run_base(index.project, index.run)
        self._before = mark.rewritten
        self.rewritten = {name: file.rewritten for name, file in index.files.items() if file.rewritten}
        self.missing: list[Missing] = []
        self.files = self.num_bytes = 0

    def bring(self) -> None:
        for name, file in sorted(self._index.files.items(), key=lambda item: item[1].kind == "document"):
            path = self._folder / name
            status = path.stat() if path.exists() else None
            again = self._before.get(name, 0) != file.rewritten
            if status and not again and (status.st_size, status.st_mtime_ns) == (file.size, file.modified_ns):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            written = self.num_bytes
            if file.kind == "document" or again or status is None or not self._append(path, file, status.st_size):
                self._write(path, file)
            self.files += self.num_bytes > written
        for found in look(self._folder):
            if found.name not in self._index.files:
                (self._folder / found.name).unlink()

    def _append(self, path: Path, file: CopiedFile, size: int) -> bool:
        """Adds what is new in a log; False where what is here is not the beginning of the log."""
        if size > file.size:
            return False
        path.chmod(0o644)
        with _finished(path, file), open_regular(path) as there, path.open("ab") as log:
            for chunk in file.chunks:
                if chunk.offset + chunk.size <= size:
                    continue
                data = self._part(path, chunk)
                if data is None:
                    break
                begun = max(0, size - chunk.offset)
                if begun and not _is_at(there, chunk.offset, data[:begun]):
                    return False
                self.num_bytes += log.write(data[begun:])
        return True

    def _write(self, path: Path, file: CopiedFile) -> None:
        """Writes a file whole; of a log, what comes before a missing part."""
        parts = 0
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as target:
            for chunk in file.chunks:
                data = self._part(path, chunk)
                if data is None:
                    break
                self.num_bytes += target.write(data)
                parts += 1
        if parts == len(file.chunks) or (parts and file.kind == "log"):
            with _finished(path, file):
                replace_durably(temporary, path)
        else:
            temporary.unlink()

    def _part(self, path: Path, chunk: Chunk) -> bytes | None:
        """A part as it was copied, None where the store has lost or damaged it."""
        name = path.relative_to(self._folder).as_posix()
        data = self._store.get(part_name(self._base, name, chunk))
        if data is not None and len(data) == chunk.size and digest_bytes(data) == chunk.digest:
            return data
        problem = "missing" if data is None else "damaged"
        self.missing.append(Missing(file=name, offset=chunk.offset, size=chunk.size, problem=problem))
        return None


@contextmanager
def _finished(path: Path, file: CopiedFile) -> Iterator[None]:
    """Makes a file read-only when it was written, with the time of the file that it is a copy of."""
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            path.chmod(0o444)
            if path.stat().st_size == file.size:
                os.utime(path, ns=(file.modified_ns, file.modified_ns))


def _is_at(file: BinaryIO, offset: int, data: bytes) -> bool:
    file.seek(offset)
    return file.read(len(data)) == data
