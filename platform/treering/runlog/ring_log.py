"""Reads an attempt's rings from disk: the one reader of `rings.jsonl`, compressed or not.

A last line without newline is a torn write of a process that died: it was never acknowledged and is not a ring.
Standard library only, as the rings' writer.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from treering.errors import EvidenceError
from treering.files import last_lines
from treering.runlog.ring_file import open_rings

_UNFINISHED_BYTES = 1 << 20


class ChainedRing(Protocol):
    """What every kind of ring has."""

    consecutive: ClassVar[bool]
    """Whether each step must follow the step before it by one."""

    @property
    def step(self) -> int:
        """The step that the ring is of."""

    @property
    def prev(self) -> str:
        """Digest of the ring before, or of the attempt's header."""

    @property
    def digest(self) -> str:
        """Digest of the ring."""

    @classmethod
    def sealed(cls, **values: Any) -> tuple[Self, str]:
        """Builds a ring from all fields but `digest`; returns the ring and its line without the newline."""

    @classmethod
    def from_line(cls, line: str, where: str) -> Self:
        """Parses a line and checks its digest; `where` names it in errors."""


R = TypeVar("R", bound=ChainedRing)


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two lines of an attempt's rings.

    Attributes:
        prev: digest that the next ring must name as `prev`.
        step: step of the ring before, None at the beginning.
        lines: how many lines are before it.
        offset: how many bytes are before it.
    """

    prev: str
    step: int | None = None
    lines: int = 0
    offset: int = 0


class RingLog(Generic[R]):
    """The rings of one attempt. A file that is missing has no rings.

    Args:
        path: `rings.jsonl`, or the compressed file in its place; where one is missing, the other is read.
        kind: the kind of its rings.
    """

    def __init__(self, path: Path, kind: type[R]) -> None:
        self.path = path
        self.kind = kind

    def rings(self, prev: str | None = None) -> Iterator[R]:
        """All durable rings in order, the chain checked.

        Args:
            prev: digest that the first ring must carry as `prev` (the header's). None: whatever came before the first
                ring is not known, and the chain is checked from that ring on.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        if prev is None:
            first = self.first()
            if first is None:
                return
            prev = first.prev
        for ring, _place in self.after(Place(prev)):
            yield ring

    def after(self, place: Place) -> Iterator[tuple[R, Place]]:
        """The durable rings after a place, each with the place after it, where a later look goes on.

        Raises:
            EvidenceError: a ring was changed, removed or put in; the text names the line.
        """
        with open_rings(self.path) as file:
            file.seek(place.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                try:
                    ring = self._follower(place, line[:-1])
                except EvidenceError as error:
                    error.at(self.path, place.lines + 1, None if place.step is None else place.step + 1)
                    raise
                place = Place(ring.digest, ring.step, place.lines + 1, place.offset + len(line))
                yield ring, place

    def _follower(self, place: Place, line: bytes) -> R:
        where = f"{self.path} line {place.lines + 1}"
        ring = self._ring(line, where)
        if ring.prev != place.prev:
            raise EvidenceError(
                f"{where}: ring of step {ring.step} follows {ring.prev}, but {place.prev} is before it: "
                "a ring was removed, put in or changed",
                found=ring.prev,
                expected=place.prev,
            )
        if place.step is not None and not self._follows(ring.step, place.step):
            raise EvidenceError(
                f"{where}: step {ring.step} follows step {place.step}", found=ring.step, expected=place.step + 1
            )
        return ring

    def _follows(self, step: int, before: int) -> bool:
        return step == before + 1 if self.kind.consecutive else step > before

    def first(self) -> R | None:
        """The first ring that is there, None where there is none; whether it is the attempt's first is not checked.

        Raises:
            EvidenceError: it was changed.
        """
        with open_rings(self.path) as file:
            line = next(file, b"")
        if not line.endswith(b"\n"):
            return None
        try:
            return self._ring(line[:-1], f"{self.path} line 1")
        except EvidenceError as error:
            error.at(self.path, 1)
            raise

    def last(self) -> R | None:
        """The last durable ring, None where there is none; costs the same however long the file is.

        Raises:
            EvidenceError: it was changed.
        """
        rings = self.newest(1)
        return rings[-1] if rings else None

    def newest(self, count: int) -> list[R]:
        """The last durable rings, at most `count`, oldest first; read from the end, no chain checked.

        Raises:
            EvidenceError: one of them was changed.
        """
        with open_rings(self.path) as file:
            lines, _torn = last_lines(file, count)
        return [
            self._ring(
                line, f"{self.path}, last line" if before == 0 else f"{self.path}, line {before} before the last"
            )
            for before, line in zip(range(len(lines) - 1, -1, -1), lines, strict=True)
        ]

    def num_lines(self) -> int:
        """How many whole lines there are, rings or not."""
        with open_rings(self.path) as file:
            return sum(line.endswith(b"\n") for line in file)

    def texts(self) -> Iterator[tuple[int, str]]:
        """Number (from 1) and text of every line, a torn one as well; nothing is parsed or checked."""
        with open_rings(self.path) as file, io.TextIOWrapper(file, "utf-8", errors="replace", newline="\n") as text:
            yield from enumerate(text, 1)

    def unfinished(self) -> bytes:
        """What follows the last newline, at most the last MiB of it."""
        with open_rings(self.path) as file:
            return last_lines(file, 0, _UNFINISHED_BYTES)[1]

    def _ring(self, line: bytes, where: str) -> R:
        """Bytes that are no UTF-8 stay in the text as what no digest fits; a carriage return ends no line."""
        return self.kind.from_line(line.decode(errors="surrogateescape"), where)
