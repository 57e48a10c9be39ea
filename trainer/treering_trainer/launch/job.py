"""What every rank of an attempt is given, and the record of how the attempt ended.

Imports neither torch nor DeepSpeed.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from treering.config.resolved import Resolved
from treering.errors import EvidenceError
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.chronicle import record_end
from treering.runlog.directory import RunDirectory
from treering.runlog.incidents import Incident, IncidentKind, append_incident
from treering.runlog.records import AttemptEnd, AttemptLayout
from treering_trainer.checkpointing.plan import Plan


class Mode(Enum):
    """What a start does with the checkpoints of earlier attempts."""

    RESUME = "continue from the newest checkpoint; start over where code, environment or layout changed"
    CONTINUE_CHANGED = "continue from the newest checkpoint, whatever changed"
    START_OVER = "set them aside and train from the first step again"


@dataclass(frozen=True, slots=True)
class Until:
    """When an attempt stops by itself, as if by a signal.

    Attributes:
        deadline: Unix seconds, None for no limit.
        step: the last step of the attempt, None for the last step of the schedule.
    """

    deadline: float | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What every rank of an attempt is given.

    Attributes:
        project: where the data is.
        run: the run's directory.
        resolved: its config.
        plan: where the attempt begins.
        layout: sizes, device and backend.
        code, environment, devices: what the header records.
        upstream: digest of the pipeline's stages above, None outside DVC.
        corpora: digest of each corpus by name, recomputed from its bytes.
        until: when the attempt stops by itself.
        nodes: what the header records of each node, empty where we started all ranks on this one.
        launch: what the header records of an outer launcher, None without one.
    """

    project: Path
    run: Path
    resolved: Resolved
    plan: Plan
    layout: AttemptLayout
    code: Mapping[str, Any]
    environment: Mapping[str, Any]
    devices: tuple[Mapping[str, Any], ...]
    upstream: str | None
    corpora: Mapping[str, str]
    until: Until = Until()
    nodes: tuple[Mapping[str, Any], ...] = ()
    launch: Mapping[str, Any] | None = None

    @property
    def attempt(self) -> Path:
        """The attempt's directory."""
        return RunDirectory(self.run).attempt_folder(self.plan.attempt)


def write_end(attempt: Path, status: Literal["finished", "interrupted", "failed"], reason: str) -> None:
    """Writes how an attempt ended; does nothing where the end is recorded already."""
    directory = AttemptDirectory(attempt)
    if directory.end_file.exists() or not directory.started:
        return
    end = AttemptEnd(status=status, reason=reason, step=_last_step(directory), ended_at=time.time())
    end.write(directory.end_file)
    with suppress(EvidenceError):  # the journal was changed: the next start reports that
        record_end(directory)


def write_incident(attempt: Path, kind: IncidentKind, text: str, rank: int | None) -> None:
    """Adds an incident after an attempt's last ring, if there is an attempt.

    Args:
        attempt: its directory.
        kind: of the incident.
        text: what happened.
        rank: the rank that it happened to, None where several ranks are concerned.
    """
    directory = AttemptDirectory(attempt)
    if directory.started:
        host = os.uname().nodename
        incident = Incident(step=_last_step(directory), kind=kind, text=text, at=time.time(), rank=rank, host=host)
        append_incident(attempt, incident)


def _last_step(attempt: AttemptDirectory) -> int:
    parent = attempt.header.parent
    return attempt.last_step() or (parent.step if parent else 0)
