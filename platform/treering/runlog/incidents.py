"""What went wrong in an attempt without ending it: `incidents.jsonl`, a line of canonical JSON each."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from treering.config.canonical import canonical_json, parse_json
from treering.config.model import Section
from treering.errors import EvidenceError

INCIDENTS_FILE = "incidents.jsonl"
_TITLES = {"checkpoint_failed": "no checkpoint, training goes on"}


class Incident(Section):
    """One thing that went wrong; no part of the chain of rings, for nothing is proven by it."""

    step: int = Field(ge=0, description="last step with a ring when it happened")
    kind: Literal["checkpoint_failed"]
    text: str = Field(description="what failed and where, as the system said it")
    at: float = Field(description="Unix seconds")

    @property
    def title(self) -> str:
        """The kind in words."""
        return _TITLES[self.kind]


def append_incident(attempt: Path, incident: Incident) -> None:
    """Adds one to an attempt's record, on disk when this returns.

    Raises:
        OSError: it could not be written.
    """
    line = (canonical_json(incident.model_dump(mode="json")) + "\n").encode()
    descriptor = os.open(attempt / INCIDENTS_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_incidents(attempt: Path) -> list[Incident]:
    """The incidents of an attempt in order; a torn last line is left out.

    Raises:
        EvidenceError: a line is no incident.
    """
    path = attempt / INCIDENTS_FILE
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            found.append(Incident.model_validate(parse_json(line)))
        except (ValueError, ValidationError) as error:
            raise EvidenceError(f"{path} line {number}: not an incident ({error}): the line was changed") from error
    return found
