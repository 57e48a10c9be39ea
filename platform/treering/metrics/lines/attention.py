"""Which run needs attention: the order of every list of runs, with the reason for each place.

A list puts the level that comes first in `LEVELS` first, and inside a level the run with the newest step. Archived runs
come last.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from treering.metrics.lines.line import RunLine

OLD_S: Final = 3 * 86_400.0
"""After this time nobody waits for a run that ended without finishing: longer than a weekend."""
ALARM_STEPS: Final = 100
"""An alarm concerns a running run for so many steps."""
LATE_SAVES: Final = 2
"""Work is at risk when a crash would cost more steps than lie between so many saves: one save was missed then."""


@dataclass(frozen=True, slots=True)
class Level:
    """How much attention a run needs.

    Attributes:
        name: of the level.
        why: why the level has its place.
    """

    name: str
    why: str


STALLED: Final = Level("stalled", "no step comes, and all its devices wait: every minute costs the whole cluster")
DIVERGING: Final = Level("diverging", "every further step is lost, and good checkpoints may be removed meanwhile")
BROKEN: Final = Level("broken", "its processes died without a record: nothing trains until somebody starts it again")
FAILED: Final = Level("failed", "its error would come again: somebody must change something")
DAMAGED: Final = Level("damaged", "nothing proves its numbers from the fault on")
INTERRUPTED: Final = Level("interrupted", "the same command continues it")
AT_RISK: Final = Level("at risk", f"a crash now costs more steps than {LATE_SAVES} saves are apart")
ALARMED: Final = Level("alarmed", f"a rule of health raised an alarm within its newest {ALARM_STEPS} steps")
RUNNING: Final = Level("running", "it trains, and nothing is wrong")
OLD: Final = Level("ended long ago", f"it did not finish, {OLD_S / 86_400:.0f} days ago or more: nobody waits for it")
EMPTY: Final = Level("empty", "no attempt has started yet")
FINISHED: Final = Level("finished", "nothing is left to do")

LEVELS: Final = (
    STALLED, DIVERGING, BROKEN, FAILED, DAMAGED, INTERRUPTED, AT_RISK, ALARMED, RUNNING, OLD, EMPTY, FINISHED,
)  # fmt: skip
"""All levels, the one that needs most attention first."""

_BY_STATE: Final = {
    level.name: level for level in (STALLED, DIVERGING, BROKEN, FAILED, DAMAGED, INTERRUPTED, EMPTY, FINISHED)
}


def level_of(line: "RunLine") -> Level:
    """How much attention a run needs."""
    if line.state == "running":
        return _of_running(line)
    age_s = line.age_s
    if line.state in {"broken", "failed", "damaged", "interrupted"} and age_s is not None and age_s >= OLD_S:
        return OLD
    return _BY_STATE[line.state]


def needs_attention(line: "RunLine") -> bool:
    """Whether somebody should look at the run now."""
    return LEVELS.index(level_of(line)) < LEVELS.index(RUNNING)


def neediest_first(lines: Iterable["RunLine"]) -> list["RunLine"]:
    """The lines in the order of the attention that their runs need."""
    return sorted(lines, key=place_of)


def place_of(line: "RunLine") -> tuple[bool, int, float, str]:
    """What lines are sorted by."""
    return line.archived, LEVELS.index(level_of(line)), -(line.ended_at or -math.inf), line.folder


def _of_running(line: "RunLine") -> Level:
    if line.problems:
        return DAMAGED
    if is_late(line):
        return AT_RISK
    if line.last_alarm_step is not None and line.last_alarm_step > line.step - ALARM_STEPS:
        return ALARMED
    return RUNNING


def is_late(line: "RunLine") -> bool:
    """Whether more work is at risk than the interval of the saves explains."""
    return line.checkpoint_every is not None and line.at_risk_steps > LATE_SAVES * line.checkpoint_every
