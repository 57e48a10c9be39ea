"""Runs folded into groups by a key: configuration without seeds, experiment, tags, or the value of a tag with a key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from treering.config.canonical import digest_json
from treering.errors import UserError
from treering.metrics.lines.attention import neediest_first, place_of
from treering.metrics.lines.line import LineState, RunLine
from treering.metrics.lines.settings import set_apart
from treering.store.ledger.search.folders import FolderFacts, tag_values

KEYS: Final = ("configuration", "experiment", "tags")
"""What runs can be folded by, beside `tag.KEY`."""

ALIKE: Final = "one configuration"
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Fold:
    """A group of runs.

    Attributes:
        name: what its runs share.
        lines: its runs, the one that needs most attention first.
    """

    name: str
    lines: tuple[RunLine, ...]

    @property
    def losses(self) -> tuple[float, float] | None:
        """The lowest and the highest of the newest losses; None where no run has one."""
        known = [line.loss for line in self.lines if line.loss is not None]
        return (min(known), max(known)) if known else None

    @property
    def states(self) -> dict[LineState, int]:
        """How many runs are in each state, the state of the neediest run first."""
        found: dict[LineState, int] = {}
        for line in self.lines:
            found[line.state] = found.get(line.state, 0) + 1
        return found

    def to_json(self) -> dict[str, Any]:
        """The group as JSON values."""
        return {"group": self.name, "states": self.states, "runs": [line.to_json() for line in self.lines]}


def folded(by: str, lines: Sequence[RunLine], facts: Sequence[FolderFacts]) -> list[Fold]:
    """The groups of some runs, the one with the neediest run first.

    Args:
        by: one of `KEYS`, or `tag.KEY`.
        lines: the runs.
        facts: of each.

    Raises:
        UserError: there is no such key.
    """
    groups: dict[str, list[RunLine]] = {}
    for name, line in zip(_names(by, lines, facts), lines, strict=True):
        groups.setdefault(name, []).append(line)
    folds = [Fold(name, tuple(neediest_first(members))) for name, members in groups.items()]
    return sorted(folds, key=lambda fold: place_of(fold.lines[0]))


def keys_of(lines: Sequence[RunLine]) -> list[str]:
    """What some runs can be folded by."""
    keys = {tag.partition("=")[0] for line in lines for tag in line.tags if "=" in tag}
    return [*KEYS, *(f"tag.{key}" for key in sorted(keys))]


def _names(by: str, lines: Sequence[RunLine], facts: Sequence[FolderFacts]) -> list[str]:
    if by == "configuration":
        return _configurations([each.configuration for each in facts])
    if by == "experiment":
        return [line.experiment or NONE for line in lines]
    if by == "tags":
        return [", ".join(sorted(line.tags)) or NONE for line in lines]
    if by.startswith("tag.") and by != "tag.":
        return [", ".join(tag_values(line.tags, by.removeprefix("tag."))) or NONE for line in lines]
    raise UserError(f"a key to group by: found {by!r}, expected one of {', '.join(KEYS)}, tag.KEY")


def _configurations(configurations: Sequence[dict[str, Any]]) -> list[str]:
    """A name for each configuration: what tells it from the others, with a digest where that is not enough."""
    digests = [digest_json(each) for each in configurations]
    different = dict(zip(digests, configurations, strict=True))
    said = dict(zip(different, set_apart(list(different.values())), strict=True))
    names = {}
    for digest, text in said.items():
        clear = bool(text) and sum(each == text for each in said.values()) == 1
        names[digest] = text if clear else f"{text or ALIKE} {digest[7:13]}" if len(said) > 1 else ALIKE
    return [names[digest] for digest in digests]
