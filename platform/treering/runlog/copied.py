"""Which files of a run's folder are copied to a store, in which order, and what a copy says about them.

Copied are the records: config, headers, rings, journals, ends, incidents, evaluations, telemetry, the manifests of
checkpoints. Not copied are weights, in any form; what ranks print (`logs/`); columns, which readers derive; locks; and
of a reproduction all but its record.

A log grows at its end: of it whole lines are copied. Every other file is written once, or replaced whole.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from pydantic import Field

from treering.config.model import Digest, Section
from treering.runlog.directory import MANIFEST_FILE, UNIVERSAL
from treering.runlog.folders import CHECKPOINTS, TELEMETRY
from treering.runlog.journal import JOURNAL
from treering.runlog.mirror import MIRROR_FILE
from treering.runlog.records import Record, RunState
from treering.runlog.reproductions import REPRODUCTION_FILE, REPRODUCTIONS
from treering.runlog.ring_file import COMPRESSED
from treering.runlog.telemetry.live import LIVE

Kind = Literal["log", "document"]

_LOG: Final = ".jsonl"
_DOCUMENTS: Final = {".json", COMPRESSED, ".parquet"}
_NOT_COPIED: Final = {"columns", "logs", UNIVERSAL}
_SUPERSEDED: Final = "superseded-"
_SETTLED_S: Final = 2.0


class Chunk(Section):
    """Bytes of a file in one object, which never changes."""

    offset: int = Field(ge=0)
    size: int = Field(ge=0, description="bytes")
    digest: Digest


class CopiedFile(Section):
    """What the store has of one file."""

    kind: Kind
    modified_ns: int = Field(description="when it was last changed, by the clock of its file system")
    rewritten: int = Field(0, ge=0, description="how often a log was found to differ from its copy, and copied again")
    chunks: tuple[Chunk, ...]

    @property
    def size(self) -> int:
        """Bytes that were copied."""
        return self.chunks[-1].offset + self.chunks[-1].size if self.chunks else 0


class CopiedRun(Record):
    """What the store has of one run: the last object that a pass writes."""

    schema_version: Literal[1] = 1
    project: str
    run: str = Field(description="name of the run's folder")
    state: RunState
    at: float = Field(default_factory=time.time, description="when it was written, Unix seconds")
    files: dict[str, CopiedFile] = Field(description="by path in the run's folder")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a run's folder as a pass finds it.

    Attributes:
        name: its path in the run's folder, with slashes.
        kind: whether it grows.
        size: bytes.
        modified_ns: when it was last changed.
        settled: False for a document that is younger than the look: the next look takes it.
    """

    name: str
    kind: Kind
    size: int
    modified_ns: int
    settled: bool = True


def kind_of(name: str) -> Kind | None:
    """What kind of file a path in a run's folder is, None where it is not copied."""
    path = PurePosixPath(name)
    parts = path.parts
    if not parts or path.is_absolute() or any(part.startswith(".") for part in parts) or parts[0] == MIRROR_FILE:
        return None
    if _NOT_COPIED & set(parts[:-1]) or (parts[0] == REPRODUCTIONS and parts[2:] != (REPRODUCTION_FILE,)):
        return None
    if _holds_weights(parts[0]) and len(parts) > 2 and path.name != MANIFEST_FILE:
        return None
    if path.suffix == _LOG:
        return "log"
    return "document" if path.suffix in _DOCUMENTS else None


def look(run: Path) -> list[Found]:
    """The files of a run that are copied, with their sizes at nearly one moment.

    The journals come first, then the other files; documents that are younger than the look are not settled. So no
    file that is found and settled names a record which is not.

    Args:
        run: the folder of the run.
    """
    journals = (run / JOURNAL, *run.glob(f"*/{JOURNAL}"))
    first = [each for path in journals for each in _found(run, path, "log")]
    known = {each.name for each in first}
    at_ns = time.time_ns()
    younger = range(at_ns, at_ns + round(_SETTLED_S * 1e9))  # beyond it, the clocks differ
    rest = [
        replace(each, settled=False) if each.kind == "document" and each.modified_ns in younger else each
        for each in _walk(run, run)
        if each.name not in known
    ]
    return first + rest


def look_settled(run: Path, state: RunState) -> list[Found]:
    """As `look`; of a running run without the newest readings of its sensors, which become parts within minutes.

    Args:
        run: the folder of the run.
        state: of the run, asked for before.
    """
    live = (TELEMETRY, LIVE) if state == "running" else None
    return [each for each in look(run) if PurePosixPath(each.name).parts[-3:-1] != live]


def may_vanish(name: str) -> bool:
    """Whether a file may be removed for good: records of checkpoints that no rule keeps, and telemetry."""
    parts = PurePosixPath(name).parts
    return _holds_weights(parts[0]) or TELEMETRY in parts[:-1]


def _walk(run: Path, folder: Path) -> Iterator[Found]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if entry.name in _NOT_COPIED or entry.name.startswith("."):
                continue
            manifest = path / MANIFEST_FILE
            if folder.name == REPRODUCTIONS and folder.parent == run:  # the new run and its code stay here
                yield from _found(run, path / REPRODUCTION_FILE, "document")
            elif _holds_weights(path.relative_to(run).parts[0]) and folder != run:  # thousands of shards are not listed
                yield from _found(run, manifest, "document")
            else:
                yield from _walk(run, path)
        elif entry.is_file(follow_symlinks=False):
            kind = kind_of(path.relative_to(run).as_posix())
            if kind is not None:
                yield from _found(run, path, kind)


def _found(run: Path, path: Path, kind: Kind) -> Iterator[Found]:
    with suppress(FileNotFoundError):  # removed meanwhile
        status = path.stat()
        yield Found(path.relative_to(run).as_posix(), kind, status.st_size, status.st_mtime_ns)


def _holds_weights(top: str) -> bool:
    return top == CHECKPOINTS or top.startswith(_SUPERSEDED)
