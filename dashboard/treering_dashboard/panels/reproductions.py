"""The reproductions of a run: what came out of each, and the command that makes one."""

import time

import pandas as pd
import streamlit as st

from treering.runlog.find import AnyRun
from treering.runlog.reproductions import reproduction_lines
from treering_dashboard.frames import cached
from treering_dashboard.panels.foreign import block
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, age

_RESULTS = {True: "identical", False: "differs", None: "not known"}


def reproduction_table(run: AnyRun) -> None:
    """The reproductions of a run, newest first, and the command that makes another one."""
    found = reproduction_lines(run)
    if found:
        now = time.time()
        rows = [
            {
                "Result": _RESULTS[each["identical"]],
                "Verdict": each["sentence"],
                "When": age(now - each["at"]) if each["at"] else NOTHING,
            }
            for each in reversed(found)
        ]
        table(pd.DataFrame(rows), "Reproductions, newest first", rows=5, widths={"Result": 90, "When": 100})
    else:
        st.caption("None yet. This makes the run again and compares every step:")
    block(f"treering reproduce {cached.named(run.path.name)}", "bash")
