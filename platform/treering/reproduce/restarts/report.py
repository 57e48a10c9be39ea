"""Answers for a run of any trainer whether its restarts changed anything."""

from dataclasses import asdict
from typing import Any

from treering.reproduce.restarts.border import RestartAudit
from treering.reproduce.restarts.own import own_borders
from treering.reproduce.restarts.recorded import recorded_borders
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun


def audit_restarts(run: AnyRun) -> RestartAudit:
    """Looks at the border before each attempt of a run, on the path and off it.

    Raises:
        EvidenceError: the config, a header or a ring is missing or was changed.
    """
    borders = own_borders(run) if isinstance(run, RunDirectory) else recorded_borders(run)
    return RestartAudit(run.id, tuple(borders))


def restarts_json(found: RestartAudit) -> dict[str, Any]:
    """The answer as JSON values."""
    borders = [{"proof": each.proof, "text": each.text, **asdict(each)} for each in found.borders]
    return {
        "run": found.run,
        "verdict": found.verdict,
        "holds": found.holds,
        "borders": borders,
        "remedies": found.remedies,
    }
