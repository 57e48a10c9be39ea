"""What the telemetry of a run says beside its readings: XID errors, readings that were lost, files that are damaged."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from treering.runlog.folders import AttemptFolder
from treering.runlog.telemetry.events import Events


def sensors(attempts: Sequence[AttemptFolder[Any]]) -> dict[str, Any]:
    """XID errors and lost readings of all attempts, and of the newest one why readings are missing, as JSON values."""
    xids, lost = [], 0
    events = Events()
    for attempt in attempts:
        events = attempt.telemetry.events()
        lost += events.lost
        xids += [
            {"attempt": attempt.number, **asdict(xid), "host": events.hosts.get(xid.node, "")} for xid in events.xids
        ]
    return {"lost_readings": lost, "xids": xids, "missing": events.reasons}
