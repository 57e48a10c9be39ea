"""Journals: append-only, chained records of what happens to a run besides its steps.

    runs/<id>/journal.jsonl               checkpoints saved, removed and set aside; attempts that ended
              evaluations/journal.jsonl   one entry for each evaluation

Each line is one entry in canonical JSON with `prev`, the digest of the entry before, and `digest`, its own. `prev` of
the first entry is the digest of the run's recipe. Training and evaluations have a journal each, so that training never
waits for an evaluation. A torn last line is removed before the next entry; several processes may append.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Self, get_args

from pydantic import Field, ValidationError

from treering.config.canonical import canonical_json, digest_json, parse_json, said_otherwise
from treering.config.model import Digest, PositiveInt, Section
from treering.errors import EvidenceError
from treering.files import last_lines, open_regular, read_bytes, reason
from treering.runlog.mirror import refuse_mirror

JOURNAL = "journal.jsonl"

_REMEDY = "restore the journal from a copy of the run; until then nothing is appended to it"


class CheckpointSaved(Section):
    """A checkpoint is complete. `found`: it was there before the journal began, from an earlier version."""

    kind: Literal["checkpoint_saved"] = "checkpoint_saved"
    at: float = Field(description="Unix seconds")
    step: PositiveInt
    attempt: PositiveInt
    checkpoint: Digest = Field(description="the manifest's digest")
    found: bool = False


class CheckpointRemoved(Section):
    """A checkpoint is about to be removed, since no rule of retention keeps it."""

    kind: Literal["checkpoint_removed"] = "checkpoint_removed"
    at: float
    step: PositiveInt
    checkpoint: Digest | None = Field(description="None where its manifest could not be read")
    reason: str


class CheckpointSetAside(Section):
    """A checkpoint moves to a `superseded-NNNN` folder, since a new attempt writes its step again."""

    kind: Literal["checkpoint_set_aside"] = "checkpoint_set_aside"
    at: float
    step: PositiveInt
    checkpoint: Digest | None
    folder: str


class AttemptEnded(Section):
    """An attempt is over: it wrote its end, or a later attempt found that it died without one."""

    kind: Literal["attempt_ended"] = "attempt_ended"
    at: float
    attempt: PositiveInt
    header: Digest
    rings: int = Field(ge=0, description="how many it has")
    last_ring: Digest | None = Field(description="None without rings")
    end: Digest | None = Field(description="digest of its end.json; None where it has none")


class Evaluated(Section):
    """A checkpoint was evaluated. `found`: the record was there before the journal began, from an earlier version."""

    kind: Literal["evaluated"] = "evaluated"
    at: float
    step: PositiveInt
    checkpoint: Digest
    evaluation: Digest = Field(description="digest of the record in evaluations/")
    harness: str
    tasks: dict[str, Digest]
    scores: Digest = Field(description="digest of the scores")
    items: Digest | None = Field(description="digest of the results by item; None where the record has none")
    found: bool = False


class Analysed(Section):
    """Something else than scores was recorded of a checkpoint: continuations, or a measurement of bias."""

    kind: Literal["analysed"] = "analysed"
    at: float
    step: PositiveInt
    checkpoint: Digest
    analysis: str = Field(description="the record's folder in evaluations/")
    record: Digest


class Scored(Section):
    """The trainer of a recorded run reported scores of the model after a step."""

    kind: Literal["scored"] = "scored"
    at: float
    step: PositiveInt
    task: str
    metrics: dict[str, float]


class Noted(Section):
    """A person wrote a note about the run."""

    kind: Literal["noted"] = "noted"
    at: float
    by: str = Field(description="the user's login name")
    text: str


class Tagged(Section):
    """A person gave the run tags, or took tags from it."""

    kind: Literal["tagged"] = "tagged"
    at: float
    by: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Promoted(Section):
    """A person gave a checkpoint an alias, such as `production`, after an audit of the checkpoint."""

    kind: Literal["promoted"] = "promoted"
    at: float
    by: str
    alias: str
    step: PositiveInt
    checkpoint: Digest
    level: str = Field(description="level of assurance that the audit reached")
    required: str = Field(description="level that the project's policy asks for")


class Archived(Section):
    """A person archived the run, so that lists leave it out, or took that back."""

    kind: Literal["archived"] = "archived"
    at: float
    by: str
    archived: bool = Field(description="False: the run is listed again")


Entry = (
    CheckpointSaved
    | CheckpointRemoved
    | CheckpointSetAside
    | AttemptEnded
    | Evaluated
    | Analysed
    | Scored
    | Noted
    | Tagged
    | Promoted
    | Archived
)
_ENTRIES: dict[str, type[Entry]] = {entry.model_fields["kind"].default: entry for entry in get_args(Entry)}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a journal.

    Attributes:
        number: of the line, from 1.
        entry: what it says.
        digest: its digest, which the next line names as `prev`.
    """

    number: int
    entry: Entry
    digest: str


def notes_and_tags(entries: Iterable[Entry]) -> tuple[list[Noted], list[str]]:
    """The notes of a journal in order, and the tags that are left, in the order in which they were given."""
    notes: list[Noted] = []
    tags: dict[str, None] = {}
    for entry in entries:
        if isinstance(entry, Noted):
            notes.append(entry)
        if isinstance(entry, Tagged):
            tags = {tag: None for tag in (*tags, *entry.added) if tag not in entry.removed}
    return notes, list(tags)


def login_name() -> str:
    """The login name of the person whose process this is, for notes and tags."""
    return os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())


class Journal:
    """One journal of a run.

    Args:
        path: its file; it need not exist.
        first: `prev` of its first entry: the digest of the run's recipe.
    """

    def __init__(self, path: Path, first: Digest) -> None:
        self.path = path
        self.first = first

    @classmethod
    def of(cls, folder: Path, recipe: Digest) -> Self:
        """The journal in a folder: of a run, or of a run's evaluations.

        Args:
            folder: the folder.
            recipe: digest of the run's recipe.
        """
        return cls(folder / JOURNAL, recipe)

    @property
    def exists(self) -> bool:
        """Whether there is such a file; runs of earlier versions have none."""
        return self.path.exists()

    def append(self, entry: Entry) -> str:
        """Adds an entry; it survives the machine when this returns.

        Several processes may append at once. A last line that a killed process did not finish is removed first.

        Returns:
            The entry's digest.

        Raises:
            EvidenceError: the last entry was changed.
            UserError: the run is a mirror.
            OSError: the entry could not be written.
        """
        for folder in self.path.parents[:2]:  # a journal of evaluations is one folder below the run's
            refuse_mirror(folder)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with os.fdopen(os.dup(descriptor), "r+b") as file:
                content = {**entry.model_dump(mode="json"), "prev": self._head(file)}
                whole = file.seek(0, os.SEEK_END) - len(last_lines(file, 0)[1])
                digest = digest_json(content)
                file.truncate(whole)
                file.seek(whole)
                file.write((canonical_json({**content, "digest": digest}) + "\n").encode())
                file.flush()
                os.fsync(descriptor)
            return digest
        finally:
            os.close(descriptor)

    def lines(self) -> list[Line]:
        """All entries in order, the chain checked; a torn last line is left out.

        Raises:
            EvidenceError: an entry was changed, removed or put in.
        """
        if not self.exists:
            return []
        found: list[Line] = []
        prev = self.first
        with _readable(self.path):
            written = read_bytes(self.path)
        for number, text in enumerate(written.split(b"\n")[:-1], 1):
            try:
                line = self._line(number, text, prev)
            except EvidenceError as error:
                error.at(self.path, number)
                raise
            found.append(line)
            prev = line.digest
        return found

    def _line(self, number: int, text: bytes, prev: str) -> Line:
        where = f"{self.path} line {number}"
        content, digest = _parse(text, where)
        found = content.pop("prev", None)
        if found != prev:
            before = "the run's recipe" if number == 1 else f"line {number - 1}"
            raise EvidenceError(
                f"{where}: prev is not {prev}, the digest of {before}: an entry was removed, put in or changed, "
                f"or the journal is another run's; {_REMEDY}",
                found=found,
                expected=prev,
                remedy=_REMEDY,
            )
        return Line(number, _entry(content, where), digest)

    def head(self) -> str:
        """Digest of the last entry; `first` where there is none. Reads the last line alone, and checks no chain.

        Raises:
            EvidenceError: the last entry was changed, or the file cannot be read.
        """
        if not self.exists:
            return self.first
        with _readable(self.path), open_regular(self.path) as file:
            return self._head(file)

    def _head(self, file: BinaryIO) -> str:
        lines, _rest = last_lines(file, 1)
        if not lines:
            return self.first
        try:
            return _parse(lines[0], f"{self.path}, last line")[1]
        except EvidenceError:  # only now is its number worth the reading of the whole file
            file.seek(0)
            number = sum(line.endswith(b"\n") for line in file)
            try:
                return _parse(lines[0], f"{self.path} line {number}")[1]
            except EvidenceError as error:
                error.at(self.path, number)
                raise

    def torn(self) -> int:
        """Bytes after the last whole line, which a killed process left.

        Raises:
            EvidenceError: the file cannot be read.
        """
        if not self.exists:
            return 0
        with _readable(self.path), open_regular(self.path) as file:
            return len(last_lines(file, 0)[1])


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EvidenceError(
            f"{path}: cannot be read ({error})", file=path, found=reason(error), expected="a readable file"
        ) from error


def _parse(text: bytes, where: str) -> tuple[dict[str, object], str]:
    """The content of a line without its digest, and the digest, which fits.

    Raises:
        EvidenceError: the line was changed.
    """
    try:
        content = parse_json(text)
        claimed = content.pop("digest")
        recomputed = digest_json(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(
            f"{where}: not an entry of a journal ({error}): the line was changed; {_REMEDY}",
            found=str(error),
            expected="an entry with its digest",
            remedy=_REMEDY,
        ) from error
    if claimed != recomputed:
        raise EvidenceError(
            f"{where}: digest {claimed} is written, {recomputed} recomputed: the entry was changed; {_REMEDY}",
            found=claimed,
            expected=recomputed,
            remedy=_REMEDY,
        )
    return content, recomputed


def _entry(content: dict[str, object], where: str) -> Entry:
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _ENTRIES:
        raise EvidenceError(
            f"{where}: kind is {kind!r}, expected {', '.join(_ENTRIES)}: not an entry of this version",
            found=kind,
            expected=", ".join(_ENTRIES),
        )
    try:
        entry = _ENTRIES[kind].model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise EvidenceError(
            f"{where}: {place}: {first['msg']}: not an entry of a journal of this version",
            found=first["input"],
            expected=f"{place}: {first['msg']}",
        ) from error
    for field, expected, found in said_otherwise(entry.model_dump(mode="json"), content):
        text = f"{where}: {field} is {found!r}, expected {expected!r}: a value of another type"
        raise EvidenceError(text, found=found, expected=expected)
    return entry
