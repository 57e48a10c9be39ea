"""The head of an attempt's columns: up to which ring they go, what every metric is there, and which files hold them.

A list reads the head alone. It holds while the rings are those that it was made from: the file is unchanged, or has
grown behind the last ring that was verified. Standard library only, so that a list loads no Arrow.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from treering.config.canonical import canonical_json
from treering.files import read_text
from treering.runlog.ring_file import open_rings, state_of
from treering.runlog.ring_log import Place

HEAD_FILE: Final = "head.json"
VERSION: Final = 1
"""Of the columns' form: those of another one are built again."""

_TAIL_BYTES: Final = 1 << 16

Standing = Literal["current", "behind", "other"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One metric over all rings.

    Attributes:
        count: rings that have the metric.
        nans: those among them whose value is NaN.
        minimum: smallest value that is not NaN; None where there is none.
        min_step: its first step, 0 where there is none.
        maximum: largest value that is not NaN; None where there is none.
        max_step: its first step, 0 where there is none.
        last: the newest value.
        last_step: its step.
    """

    count: int
    nans: int
    minimum: float | None
    min_step: int
    maximum: float | None
    max_step: int
    last: float
    last_step: int

    def followed_by(self, other: "Summary") -> "Summary":
        """The summary of these rings and of those after them."""
        lower = other.minimum is not None and (self.minimum is None or other.minimum < self.minimum)
        higher = other.maximum is not None and (self.maximum is None or other.maximum > self.maximum)
        low, high = (other if lower else self), (other if higher else self)
        return Summary(
            self.count + other.count,
            self.nans + other.nans,
            low.minimum,
            low.min_step,
            high.maximum,
            high.max_step,
            other.last,
            other.last_step,
        )

    def is_same(self, other: "Summary | None") -> bool:
        """Whether another summary says the same; a newest value that is NaN is the same as NaN, and equals nothing."""
        if other is None:
            return False
        same = self.last == other.last or (math.isnan(self.last) and math.isnan(other.last))
        return same and replace(self, last=0.0) == replace(other, last=0.0)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of rows, with a pyramid beside it.

    Attributes:
        name: of the file of rows; it has the number of the first row, of the row after the last, and the digest of the
            last ring, which stands for all rings up to it.
        rows: how many there are.
        first_step: step of the first row.
        last_step: step of the last row.
    """

    name: str
    rows: int
    first_step: int
    last_step: int

    @property
    def pyramid(self) -> str:
        """Name of the file of buckets."""
        return f"pyramid-{self.name.removeprefix('rows-')}"


@dataclass(frozen=True, slots=True)
class Head:
    """What the columns hold.

    Attributes:
        begin: digest that the first ring names, the one of the attempt's header.
        place: the place behind the last ring that was verified.
        size: bytes of the rings' file before it was read last.
        modified_ns: when the file had been written last, at that time.
        tokens: of all rings: those consumed so far (Treering's trainer), or the sum of all steps (another trainer);
            None where no ring reports tokens.
        metrics: by name.
        parts: the files, oldest rings first.
    """

    begin: str
    place: Place
    size: int = 0
    modified_ns: int = 0
    tokens: int | None = None
    metrics: Mapping[str, Summary] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    @property
    def rings(self) -> int:
        """How many rings the columns hold."""
        return self.place.lines

    @property
    def last_step(self) -> int:
        """Step of the last of them, 0 where there is none."""
        return self.place.step or 0

    def to_text(self) -> str:
        """The content of `head.json`."""
        return canonical_json({"version": VERSION, **asdict(self)})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The head that `to_text` wrote.

        Raises:
            ValueError: it is no head of this version.
        """
        content = json.loads(text)
        try:
            if content.pop("version") != VERSION:
                raise ValueError(f"expected version {VERSION}")
            content["place"] = Place(**content["place"])
            content["metrics"] = {name: _summary(each) for name, each in content["metrics"].items()}
            content["parts"] = tuple(Part(**each) for each in content["parts"])
            return cls(**content)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no head of columns: {error}") from error

    def standing(self, rings: Path, begin: str) -> Standing:
        """How the columns stand to the rings.

        Args:
            rings: the attempt's `rings.jsonl`.
            begin: digest of the attempt's header.

        Returns:
            `current`: they hold every ring; `behind`: rings may have been appended; `other`: they are of other rings.
        """
        state = state_of(rings)
        if state == (0, 0):
            return "current" if not self.rings and self.begin == begin else "other"
        if self.begin != begin or state[0] < self.place.offset:
            return "other"
        if state[0] == self.size:
            return "current" if state[1] == self.modified_ns else "other"
        return "behind" if self.rings == 0 or _last_digest(rings, self.place.offset) == self.place.prev else "other"


def read_head(folder: Path) -> Head | None:
    """The head in a folder, None where there is none that can be read."""
    try:
        return Head.from_text(read_text(folder / HEAD_FILE))
    except (OSError, ValueError):
        return None


def _summary(content: dict[str, Any]) -> Summary:
    floats = {name: None if content[name] is None else float(content[name]) for name in ("minimum", "maximum", "last")}
    found = Summary(**(content | floats))
    if found.last is None or any(value is not None and math.isnan(value) for value in (found.minimum, found.maximum)):
        raise ValueError("no summary")
    return found


def _last_digest(rings: Path, offset: int) -> str | None:
    """The digest in the last line before an offset, recomputed from its bytes; None where it is another one."""
    size = _TAIL_BYTES
    with open_rings(rings) as file:
        while True:
            start = max(0, offset - size)
            file.seek(start)
            tail = file.read(offset - start)
            before = tail.rfind(b"\n", 0, len(tail) - 1)
            if before >= 0 or start == 0:
                break
            size *= 4
    line = tail[before + 1 : -1]
    mark = b',"digest":"'
    at = line.find(mark)
    digest = line[at + len(mark) : at + len(mark) + 71]
    content = line[:at] + line[at + len(mark) + 72 :]
    whole = tail.endswith(b"\n") and digest == f"sha256:{hashlib.sha256(content).hexdigest()}".encode()
    return digest.decode() if whole and at >= 0 else None
