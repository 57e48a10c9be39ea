"""The table of runs: one row a run, the columns that a person on call needs first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from treering.metrics.lines.attention import LEVELS
from treering.metrics.lines.diverging import MEANING
from treering.metrics.lines.line import STATES, RunLine
from treering.store.ledger.search.folds import Fold
from treering_dashboard.panels.foreign import say, shown_frame
from treering_dashboard.panels.state import SIGNS, sign_text, state_column
from treering_dashboard.panels.tables import ROW_HEIGHT, clicked_row, height
from treering_dashboard.panels.text import NOTHING, age, count, duration, number, percent, reading

WHY: Final = "Why"

_ROW: Final = ROW_HEIGHT + 4
_MOST_ROWS: Final = 20
_RARE: Final = (
    WHY, "Curve", "To go", "MFU", "Validation loss", "Set", "Tags", "Incidents", "Alarms", "Trainer", "Archived",
    "Mirror",
)  # fmt: skip
"""Columns that are there only where a run has something in them."""
_NUMBERS: Final = (
    "Loss", "To go", "Grad norm", "MFU", "At risk", "Checkpoint", "Last step", "Validation loss", "Step", "Tokens",
    "Throughput", "Attempts", "Incidents",
)  # fmt: skip
_NARROW: Final = {
    "Loss": 64, "Run": 150, WHY: 330, "Grad norm": 80, "MFU": 60, "To go": 70, "At risk": 100, "Last step": 95,
    "Set": 150,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """What a visitor chose in the table.

    Attributes:
        ticked: the ticked rows.
        clicked: the row and the column of the cell that was clicked just now.
    """

    ticked: tuple[RunLine, ...]
    clicked: tuple[RunLine, str] | None


def choose_of(lines: Sequence[RunLine], apart: Sequence[str]) -> Choice:
    """Draws the table.

    Args:
        lines: in the order of the rows.
        apart: what was set of each run, in short.
    """
    event = st.dataframe(
        shown_frame(runs_frame(lines, apart)),
        hide_index=True,
        row_height=_ROW,
        height=height(min(len(lines), _MOST_ROWS), _ROW),
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        key="runs",
        alt="All runs, the one that needs most attention first",
        column_config={
            **{
                name: st.column_config.TextColumn(
                    width=_NARROW.get(name), alignment="right" if name in _NUMBERS else None
                )
                for name in {*_NUMBERS, *_NARROW}
            },
            "State": state_column({sign_text(state): SIGNS[state].colour for state in STATES}, 116),
            "Curve": st.column_config.LineChartColumn(
                width=90, help="The largest loss of each of at most 24 stretches of the run, so that spikes are seen"
            ),
            "Tags": st.column_config.ListColumn(width=140),
            "Progress": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, width=110),
        },
    )
    selection = event["selection"]
    cell = selection["cells"][0] if selection["cells"] and selection["cells"][0][0] < len(lines) else None
    return Choice(
        tuple(lines[row] for row in selection["rows"] if row < len(lines)),
        None if cell is None else (lines[cell[0]], cell[1]),
    )


def choose_fold(folds: Sequence[Fold]) -> Fold | None:
    """Draws one row a group; the group that was clicked just now."""
    rows = [
        {
            "Group": fold.name,
            "Runs": count(len(fold.lines)),
            "States": ", ".join(f"{number} {SIGNS[state].word}" for state, number in fold.states.items()),
            "Loss": _span(fold.losses),
            WHY: f"{fold.lines[0].folder[:8]}: {fold.lines[0].reason}" if fold.lines[0].reason else "",
        }
        for fold in folds
    ]
    alt = "Groups of runs, the one with the neediest run first"
    chosen = clicked_row(pd.DataFrame(rows), alt, key="folds", numbers=("Runs", "Loss"), rows=_MOST_ROWS)
    return None if chosen is None else folds[chosen]


def _span(losses: tuple[float, float] | None) -> str:
    """The lowest and the highest loss of a group."""
    if losses is None:
        return NOTHING
    low, high = map(reading, losses)
    return low if low == high else f"{low} to {high}"


def runs_frame(lines: Sequence[RunLine], apart: Sequence[str]) -> pd.DataFrame:
    """One row a run; columns in which no run has anything are left out."""
    frame = pd.DataFrame([_row(line, said) for line, said in zip(lines, apart, strict=True)])
    return frame.drop(columns=[name for name in _RARE if not frame[name].astype(bool).any()])


def _row(line: RunLine, apart: str) -> dict[str, object]:
    of_rank_0 = "" if line.all_ranks or line.consumed_tokens is None else "of rank 0"
    return {
        "State": [sign_text(line.state)],
        "Loss": reading(line.loss),
        "Run": f"{line.folder[:8]} {line.experiment}".strip(),
        WHY: line.reason,
        "Curve": [each for each in line.loss_curve if math.isfinite(each)],
        "Set": apart,
        "Progress": None if line.progress is None else percent(line.progress) / 100 if line.step else 0.0,
        "To go": duration(line.remaining_s) if line.remaining_s is not None else "",
        "Grad norm": reading(line.grad_norm),
        "MFU": "" if line.mfu is None else f"{100 * line.mfu:.1f} %",
        "At risk": f"{line.at_risk_steps:,} ({duration(line.at_risk_s)})" if line.at_risk_steps else NOTHING,
        "Last step": age(line.age_s),
        "Devices": NOTHING if line.devices is None else f"{count(line.devices)} {line.device}",
        "Checkpoint": age(line.checkpoint_age_s),
        "Validation loss": "" if line.validation_loss is None else reading(line.validation_loss),
        "Step": f"{line.step} of {line.num_steps}" if line.num_steps else str(line.step),
        "Tokens": number(line.consumed_tokens, of_rank_0),
        "Throughput": NOTHING if line.tokens_per_second is None else number(line.tokens_per_second, "tokens/s"),
        "Attempts": str(line.attempts),
        "Incidents": str(line.incidents or ""),
        "Alarms": ", ".join(f"{each:,} {rule}" for rule, each in line.alarms.items()),
        "Tags": list(line.tags),
        "Trainer": "recorded" if line.recorded else "",
        "Archived": "archived" if line.archived else "",
        "Mirror": "" if not line.mirror else f"copied {age(line.mirror_age_s)}",
    }


def order_help() -> None:
    """What comes before what in the table and why, and when a run counts as diverging."""
    with st.popover("Order", icon=":material/sort:"):
        st.caption("The run that needs most attention is first; of equal ones, the one with the newest step.")
        say(*(f"{place}. {level.name}: {level.why}" for place, level in enumerate(LEVELS, 1)))
        st.caption("Diverging")
        say(*MEANING, stretch=True)
