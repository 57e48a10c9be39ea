"""Incidents of an attempt, such as a lost rank or a failed save: `incidents.jsonl`, a line of canonical JSON each.

Written by rank 0 while the attempt lives, by the ranks' launcher about a rank that is dead or stuck, and by the
evaluation beside the training.

- `checkpoint_failed`: a checkpoint could not be saved, training continued; written by rank 0.
- `rank_killed`: a signal killed a rank's process; by the launcher.
- `rank_stuck`: a rank had no heartbeat for too long and all were ended; by the launcher.
- `evaluation_failed`: a checkpoint could not be scored beside the training; by the process that scores it.
- `contact_lost`: a rank lost another one, whose state is unknown; by rank 0 under an outer launcher, else the launcher.
"""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from treering.config.canonical import canonical_json, parse_json
from treering.config.model import Section
from treering.errors import EvidenceError
from treering.files import read_bytes

INCIDENTS_FILE = "incidents.jsonl"
IncidentKind = Literal["checkpoint_failed", "rank_killed", "rank_stuck", "contact_lost", "evaluation_failed"]

_TITLES: dict[IncidentKind, str] = {
    "checkpoint_failed": "no checkpoint, training goes on",
    "rank_killed": "a rank was killed",
    "rank_stuck": "a rank was stuck",
    "contact_lost": "contact with another rank was lost",
    "evaluation_failed": "a checkpoint was not scored, training goes on",
}


class Incident(Section):
    """One thing that went wrong; not part of the chain of rings, since it proves nothing."""

    step: int = Field(ge=0, description="last step with a ring when it happened")
    kind: IncidentKind
    text: str = Field(description="what failed and where, as the system said it")
    at: float = Field(description="Unix seconds")
    rank: int | None = Field(None, ge=0, description="the rank concerned; None if it is unknown or there are several")
    host: str | None = Field(None, description="the node of that rank")

    @property
    def title(self) -> str:
        """The kind in words."""
        return _TITLES[self.kind]


def append_incident(attempt: Path, incident: Incident) -> None:
    """Appends an incident to an attempt's record; it is on disk when this returns.

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
        EvidenceError: a line is not an incident.
    """
    path = attempt / INCIDENTS_FILE
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], 1):
        try:
            found.append(Incident.model_validate(parse_json(line)))
        except (ValueError, ValidationError) as error:
            text = f"{path} line {number}: not an incident ({error}): the line was changed"
            raise EvidenceError(text, file=path, line=number, found=line.decode(errors="replace")) from error
    return found
