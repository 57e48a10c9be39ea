"""The command that goes back behind a step and skips what led to it; the dashboard only shows the command."""

import streamlit as st

from treering.metrics.rewind import Rewind, rewind_behind
from treering.runlog.find import AnyRun
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.panels.foreign import block, say
from treering_dashboard.panels.text import count


def rewind_button(run: AnyRun, frames: RunFrames) -> None:
    """A button that shows the command for the newest alarm, or for the newest steps of a run without alarms.

    Nothing is trained from a mirror: there the page says where the run can be rewound.
    """
    if mirror := run.mirror_doubt:
        say(f"Rewind the run in the project that trains it. This folder: {mirror}")
        return
    alarm = max((alarm.step for alarm in frames.alarms), default=None)
    found = rewind_behind(run, frames.path.last_step if alarm is None else alarm)
    if found is None:
        st.caption("No checkpoint is early enough to go back to.")
        return
    with st.popover("Rewind", icon=":material/undo:"):
        rewind_command(found, "" if alarm is None else f"around the alarm at step {count(alarm)}")


def rewind_command(rewind: Rewind, around: str) -> None:
    """The command with what it does.

    Args:
        rewind: its arguments.
        around: what it goes around, in words; may be empty.
    """
    skipped = f"steps {count(rewind.to + 1)} to {count(rewind.to + rewind.skip)}"
    words = f" {around}" if around else ""
    say(f"Back to step {count(rewind.to)}{words}, over the batches of {skipped}. This run stays as it is.")
    block(rewind.command, "bash")
