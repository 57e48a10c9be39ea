"""Compares a run's copy in a store with the run's folder, object by object, and mends it from the folder.

A file that the folder has lost, and the copy still has, is no difference: the copy keeps it.
"""

from treering.config.canonical import digest_bytes
from treering.errors import EvidenceError
from treering.files import open_regular
from treering.objects import ObjectStore
from treering.runlog.copied import Chunk, CopiedFile, CopiedRun, Found, look_settled
from treering.runlog.folders import RunFolder
from treering.ship.copy import TARGET, RunCopier, part_name, read_index, refuse_another, run_base, write_index
from treering.ship.target import Difference, one_shipper


class CopyCheck:
    """The copy of one run.

    Args:
        run: the run.
        store: where the copy is.
        project: the project's name in the store.
    """

    def __init__(self, run: RunFolder, store: ObjectStore, project: str) -> None:
        self._run, self._store, self._project = run, store, project
        self._base = run_base(project, run.path.name)

    def difference(self) -> Difference | None:
        """The first part that is missing, damaged or not what the folder has; else what was not copied yet.

        Raises:
            StoreError: the store does not answer.
            EvidenceError: the store has a copy of another run under this name.
        """
        state = self._run.state()
        try:
            index = read_index(self._store, self._base)
        except EvidenceError as error:
            return Difference(str(error), behind=False)
        if index is None:
            return Difference("the store has no copy of the run", behind=True)
        refuse_another(self._run, self._store, index)
        for name, file in index.files.items():
            for chunk in file.chunks:
                if not self._is_stored(name, chunk):
                    where = f"bytes {chunk.offset:,} to {chunk.offset + chunk.size:,}"
                    return Difference(f"{name}: {where} are missing or damaged in the store", behind=False)
                if not self._is_here(name, file, chunk):
                    where = f"bytes {chunk.offset:,} to {chunk.offset + chunk.size:,}"
                    return Difference(f"{name}: {where} differ from the copy", behind=False)
        for found in look_settled(self._run.path, state):
            if self._has_news(found, index.files.get(found.name)):
                return Difference(f"{found.name}: not all of it was copied yet", behind=True)
        return None if index.state == state else Difference(f"the copy says {index.state}, not {state}", behind=True)

    def _has_news(self, found: Found, known: CopiedFile | None) -> bool:
        if known is not None and (known.size, known.modified_ns) == (found.size, found.modified_ns):
            return False
        if found.kind == "document":
            return True
        with open_regular(self._run.path / found.name) as file:  # a torn line is not copied
            file.seek(known.size if known else 0)
            return any(b"\n" in block for block in iter(lambda: file.read(1 << 20), b""))

    def mend(self) -> str:
        """Puts lost and damaged parts again, and copies again what differs from the folder.

        Returns:
            What became of parts that differ; empty where there were none.

        Raises:
            StoreError: the store does not answer.
            EvidenceError: the store has a copy of another run under this name.
        """
        with one_shipper(self._run, TARGET):
            state = self._run.state()
            try:
                index = read_index(self._store, self._base)
            except EvidenceError:
                index = None
            if index:
                refuse_another(self._run, self._store, index)
            files: dict[str, CopiedFile] = {}
            differ = 0
            for name, file in index.files.items() if index else ():
                kept = self._kept(name, file)
                differ += len(file.chunks) - len(kept)
                if len(kept) == len(file.chunks):
                    files[name] = file
                elif file.kind == "log":
                    files[name] = file.model_copy(update={"chunks": kept, "rewritten": file.rewritten + 1})
            write_index(
                self._store, CopiedRun(project=self._project, run=self._run.path.name, state=state, files=files)
            )
        RunCopier(self._run, self._store, self._project).ship()
        return f"{differ} parts that differ from the folder stay in the store, unnamed" if differ else ""

    def _kept(self, name: str, file: CopiedFile) -> tuple[Chunk, ...]:
        """The parts before the first one that the folder has otherwise; those that the store lost are put again."""
        for number, chunk in enumerate(file.chunks):
            if not self._is_here(name, file, chunk):
                return file.chunks[:number]
            if not self._is_stored(name, chunk):
                data = self._here(name, chunk)
                if data is None:
                    return file.chunks[:number]
                self._store.put(part_name(self._base, name, chunk), data)
        return file.chunks

    def _is_stored(self, name: str, chunk: Chunk) -> bool:
        data = self._store.get(part_name(self._base, name, chunk))
        return data is not None and digest_bytes(data) == chunk.digest

    def _is_here(self, name: str, file: CopiedFile, chunk: Chunk) -> bool:
        """Whether the folder has a part as it was copied, or has no such file, or a newer document."""
        path = self._run.path / name
        newer = file.kind == "document" and path.exists() and path.stat().st_mtime_ns != file.modified_ns
        data = self._here(name, chunk)
        return newer or data is None or digest_bytes(data) == chunk.digest

    def _here(self, name: str, chunk: Chunk) -> bytes | None:
        path = self._run.path / name
        if not path.exists():
            return None
        with open_regular(path) as file:
            file.seek(chunk.offset)
            return file.read(chunk.size)
