"""Reproductions of a run: `reproductions/0001/reproduction.json` below the run's folder, and the new run beside it."""

import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from treering.config.model import Digest, GrowingSection, PositiveInt
from treering.errors import EvidenceError
from treering.runlog.folders import RunFolder
from treering.runlog.records import Record

REPRODUCTIONS: Final = "reproductions"
REPRODUCTION_FILE: Final = "reproduction.json"

OUTCOMES: Final = {True: "identical", False: "differs", None: "unknown"}
"""What came out of a reproduction that was compared, in a word."""

_NAME = re.compile(r"^\d{4,}$")


class Reproduction(Record, GrowingSection):
    """What was reproduced, how, and what came out; written before the training, after the comparison, at the end."""

    added = frozenset({"code"})

    schema_version: Literal[1] = 1
    run: Digest = Field(description="the run that is made again")
    started_at: float = Field(description="Unix seconds")
    ended_at: float | None = Field(description="None until the search for causes ended")
    first_step: PositiveInt
    last_step: PositiveInt
    from_step: int = Field(ge=0, description="the checkpoint of the original that it starts from, 0 for none")
    environment: Literal["present", "recorded"]
    code: Literal["recorded", "present"] = Field("recorded", description="present: the code that was here, by wish")
    plan: dict[str, Any] = Field(description="what could be rebuilt and what not, as it was said before the start")
    comparison: dict[str, Any] | None
    verdict: dict[str, Any] | None
    identical: bool | None = Field(description="None until it was compared, or where the evidence did not suffice")
    sentence: str = Field(description="the verdict in words, empty until it was compared")


class ReproductionFolder:
    """One reproduction of a run.

    Args:
        path: `reproductions/NNNN`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.name)

    @property
    def file(self) -> Path:
        """Its `reproduction.json`."""
        return self.path / REPRODUCTION_FILE

    @property
    def lock(self) -> Path:
        """Held by the process that makes it."""
        return self.path / "lock"

    @property
    def runs(self) -> Path:
        """The folder of the new run."""
        return self.path / "runs"

    def environment(self, number: int) -> Path:
        """The folder of a virtual environment, where one is made from the recorded versions."""
        return self.path / f"environment-{number}"

    @property
    def environments(self) -> list[Path]:
        """The folders of the virtual environments that were made, or begun."""
        return sorted(self.path.glob("environment-*"))

    @property
    def record(self) -> Reproduction:
        """What it is.

        Raises:
            EvidenceError: missing or changed.
        """
        return Reproduction.read(self.file)[0]


def reproductions_of(run: RunFolder) -> list[ReproductionFolder]:
    """The reproductions of a run, oldest first."""
    found = [path for path in (run.path / REPRODUCTIONS).glob("*") if _NAME.match(path.name)]
    return [ReproductionFolder(path) for path in sorted(found, key=lambda path: int(path.name))]


def reproduction_files(run: RunFolder) -> list[Path]:
    """The records of a run's reproductions, oldest first."""
    return [folder.file for folder in reproductions_of(run) if folder.file.exists()]


def reproduction_lines(run: RunFolder) -> list[dict[str, Any]]:
    """What lists and pages show of a run's reproductions, as JSON values; one that does not hold says so."""
    return [_line(folder) for folder in reproductions_of(run)]


def newest_reproduction_line(run: RunFolder) -> dict[str, Any] | None:
    """The line of the newest reproduction that was compared, else of the newest of all; None without any."""
    lines = (_line(folder) for folder in reversed(reproductions_of(run)))
    newest = next(lines, None)
    if newest is None or newest["compared"]:
        return newest
    return next((each for each in lines if each["compared"]), newest)


def _line(folder: ReproductionFolder) -> dict[str, Any]:
    try:
        record = folder.record
    except EvidenceError as error:
        return {"number": folder.number, "sentence": str(error), "identical": None, "at": None, "compared": False}
    steps = f"steps {record.first_step:,} to {record.last_step:,}"
    sentence = record.sentence or f"not compared yet ({steps}); the same command goes on"
    if record.ended_at is None and record.sentence:
        sentence += " The search for its cause has not ended; the same command goes on."
    return {
        "number": folder.number,
        "sentence": sentence,
        "identical": record.identical,
        "at": record.ended_at or record.started_at,
        "compared": record.comparison is not None,
    }
