"""Tags and notes of a run, as people wrote them."""

import time
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from treering.runlog.journal import Noted
from treering_dashboard.frames import cached
from treering_dashboard.panels.foreign import block, label
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import age


def tag_badges(tags: Sequence[str]) -> None:
    """The tags of a run, in a row of badges."""
    for tag in tags:
        st.badge(label(tag), icon=":material/sell:", color="gray")


def note_table(notes: Sequence[Noted], run: str) -> None:
    """The notes of a run, newest first, and the command that adds one.

    Args:
        notes: oldest first.
        run: the run's id.
    """
    if notes:
        now = time.time()
        rows = [{"Note": each.text, "By": each.by, "When": age(now - each.at)} for each in reversed(notes)]
        table(pd.DataFrame(rows), "Notes, newest first", rows=5, widths={"By": 110, "When": 100})
    else:
        st.caption("None yet. This writes one:")
    block(f'treering note {cached.named(run)} "…" --tag TAG', "bash")
