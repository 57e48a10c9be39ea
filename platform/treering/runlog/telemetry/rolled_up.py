"""Parts whose single readings `treering gc` deleted: their roll-up, the energy and the events remain.

The names are written before the parts are deleted, so a reader of the roll-up tells them from what a killed collector
left, and what is left out is counted.
"""

import json
from pathlib import Path

from treering.files import read_text, write_durably
from treering.runlog.telemetry.minutes import read_minutes
from treering.runlog.telemetry.parts import DamagedPartError, PartName, part_names
from treering.runlog.telemetry.totals import ROLLED_UP_FILE, Totals


def rolled_up(folder: Path) -> list[PartName]:
    """The parts of an attempt's `telemetry/` whose readings were deleted; none where the file does not hold."""
    try:
        names = json.loads(read_text(folder / ROLLED_UP_FILE))["parts"]
        return [name for each in names if (name := PartName.parse(each)) is not None]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def not_rolled_up(folder: Path) -> str:
    """Why the parts must stay, in words; empty where roll-up and energy have all of them."""
    names = part_names(folder)
    for name in names:
        try:
            read_minutes(folder, name)
        except (DamagedPartError, OSError):
            return f"the roll-up of {name} is missing or damaged"
    if names and Totals.read(folder)[1] < names[-1].last:
        return "the energy of the newest readings is not in totals.json yet"
    return ""


def record_rolled_up(folder: Path) -> None:
    """Records that the readings of all parts will be deleted.

    Raises:
        OSError: the file cannot be written.
    """
    names = dict.fromkeys([*rolled_up(folder), *part_names(folder)])
    write_durably(folder / ROLLED_UP_FILE, json.dumps({"parts": [str(name) for name in names]}))
