"""The environments of two runs side by side: packages, devices, drivers, variables."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from treering.metrics.environments import compare_environments
from treering_dashboard.panels.foreign import say
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import NOTHING, plural


def environments(first: tuple[str, Mapping[str, Any]], second: tuple[str, Mapping[str, Any]]) -> None:
    """Draws what differs between two environments, first what can move numbers.

    Args:
        first: name and environment.
        second: the same of the other.
    """
    found = compare_environments(first[1], second[1])
    numeric = sum(each.numeric for each in found.differences)
    if found.same_digest:
        st.caption("Everything that can move numbers is the same: a difference of the runs has another cause.")
    elif numeric:
        st.caption(f"{plural(numeric, 'thing')} that can move numbers differ: they may be a cause of other losses.")
    if found.differences:
        rows = [
            {
                "Kind": each.kind,
                "Name": each.name,
                first[0]: each.first or NOTHING,
                second[0]: each.second or NOTHING,
                "Can move numbers": "yes" if each.numeric else "no",
            }
            for each in found.differences
        ]
        table(pd.DataFrame(rows), "What differs between the environments", rows=14)
    else:
        st.caption("No difference was found.")
    for doubt in found.doubts:
        say(f"{doubt}.")
