"""The mark of a mirrored run: its folder was brought here from a store, and only `treering mirror` writes to it."""

import time
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from treering.config.model import Section
from treering.errors import UserError
from treering.runlog.records import Record, RunState

MIRROR_FILE: Final = "mirror.json"
CAPSULE: Final = "capsule "
"""Begins the store of a run that was unpacked from a capsule; the zip file's name and digest follow."""
NOT_MIRRORED: Final = (
    "That nothing is missing here, and that the weights are those of the manifests: {}; weights stay there."
)
"""What an audit of a mirrored run leaves open; `{}` is the mirror's doubt."""


class Missing(Section):
    """A part of a file that the store no longer has, or has damaged."""

    file: str = Field(description="path in the run's folder")
    offset: int = Field(ge=0, description="bytes of the file before the part")
    size: int = Field(ge=0, description="bytes")
    problem: Literal["missing", "damaged"]


class Mirror(Record):
    """Where a mirrored run is from, and how much of it is here."""

    schema_version: Literal[1] = 1
    store: str = Field(description="URL of the store, without passwords")
    project: str
    state: RunState = Field(description="of the run, when its files were last copied")
    written_at: float = Field(description="when the run's files were last copied, Unix seconds of the machine that did")
    complete: bool = Field(description="False until all files were brought once")
    rewritten: dict[str, int] = Field(description="how often a growing file was begun again before its end, by path")
    missing: tuple[Missing, ...] = ()

    @property
    def from_capsule(self) -> bool:
        """Whether the run was unpacked from a zip file, and not brought from a store."""
        return self.store.startswith(CAPSULE)

    def doubt(self, now: float | None = None) -> str:
        """What may be missing here, in a sentence.

        Args:
            now: Unix seconds; default the clock's.
        """
        age_s = (time.time() if now is None else now) - self.written_at
        text = f"mirror of {self.store}, project {self.project}: last copied {_span(age_s)} ago"
        if self.state == "running":
            text += ", while it was running: what it wrote since is not here"
        if not self.complete:
            text += "; not all of it was brought yet: `treering mirror` goes on"
        if self.missing:
            first = self.missing[0]
            more = f" and {len(self.missing) - 1} more parts" if len(self.missing) > 1 else ""
            text += f"; {first.file} from byte {first.offset} on is {first.problem} in the store{more}"
        return text


def refuse_mirror(folder: Path) -> None:
    """Ends whatever is about to write to a mirrored run.

    Args:
        folder: of the run.

    Raises:
        UserError: it is a mirror.
    """
    if (folder / MIRROR_FILE).exists():
        raise UserError(
            f"{folder}: is a mirror of a run, which nothing but `treering mirror` writes to; expected the run's own "
            "folder: use the project that trains it"
        )


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
