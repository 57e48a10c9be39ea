"""The state line: the first thing to look at when paged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from treering.errors import EvidenceError
from treering.metrics.lines.line import LineState, RunLine
from treering_dashboard.frames import cached
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.foreign import figure, label, say
from treering_dashboard.panels.text import NOTHING, age, count, duration, number, percent, plural, reading

Colour = Literal["red", "orange", "blue", "green", "violet", "gray"]


@dataclass(frozen=True, slots=True)
class Sign:
    """A state as word, shape and colour, so that none of the three is needed alone.

    Attributes:
        word: for people.
        icon: shape as a Material symbol.
        glyph: the same as a character, where only text fits.
        colour: of the badge.
        advice: what to do in this state.
    """

    word: str
    icon: str
    glyph: str
    colour: Colour
    advice: str


_CELL: Final = 164
"""Pixels of a figure in the state line: seven beside each other on a desk, two on a phone."""

HUES: Final[dict[Colour, str]] = {
    "blue": "#0072B2",
    "green": "#009E73",
    "orange": "#E69F00",
    "red": "#D55E00",
    "violet": "#CC79A7",
    "gray": "#8C8C8C",
}
"""The badge's colours in Okabe and Ito's palette, for tables."""

SIGNS: Final[dict[LineState, Sign]] = {
    "running": Sign("running", ":material/play_circle:", "▶", "blue", ""),
    "stalled": Sign("stalled", ":material/hourglass_disabled:", "■", "red", "Its processes live, but no step comes."),
    "diverging": Sign(
        "diverging",
        ":material/trending_up:",
        "△",
        "red",
        "Its steps make the model worse. treering batch RUN STEP shows what it read.",
    ),
    "finished": Sign("finished", ":material/check_circle:", "✔", "green", ""),
    "interrupted": Sign(
        "interrupted", ":material/pause_circle:", "‖", "orange", "The same command goes on from its newest checkpoint."
    ),
    "failed": Sign(
        "failed", ":material/cancel:", "✖", "red", "Training ended with an error that a plain restart would repeat."
    ),
    "broken": Sign(
        "broken",
        ":material/heart_broken:",
        "⚡",
        "red",
        "Its processes died without a word. The same command goes on from the newest checkpoint.",
    ),
    "damaged": Sign(
        "evidence damaged",
        ":material/gpp_bad:",
        "⚠",
        "violet",
        "A record of this run was changed or is missing. What still holds is shown; nothing after the fault is.",
    ),
    "empty": Sign("empty", ":material/circle:", "○", "gray", "Resolved, but no attempt has started yet."),
}


def sign_text(state: LineState) -> str:
    """Shape and word, for a table's cell."""
    return f"{SIGNS[state].glyph} {SIGNS[state].word}"


def state_column(colours: Mapping[str, Colour], width: int) -> ColumnConfig:
    """A table's column of states, each cell a list with one text of shape and word, coloured as badges are.

    Args:
        colours: of each text.
        width: pixels.
    """
    hues = [HUES[colour] for colour in colours.values()]
    return st.column_config.MultiselectColumn(options=list(colours), color=hues, width=width)


def badge(state: LineState) -> None:
    """The state as a badge."""
    sign = SIGNS[state]
    st.badge(label(sign.word), icon=sign.icon, color=sign.colour)


def stall_banner() -> None:
    """Names the stalled and the diverging runs of the project; nothing if there are none. Above every page."""
    for line in (cached.summary(run) for run in cached.all_runs() if run.is_held):
        if line.state in {"stalled", "diverging"}:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                badge(line.state)
                say(f"Run {line.folder[:8]} {line.experiment}: {line.reason}")


def state_line(summary: RunLine) -> None:
    """Age of the last step, age of the last checkpoint, the cost of a crash now; then the progress."""
    of_all = f" of {count(summary.num_steps)}" if summary.num_steps else ""
    unit = "" if summary.recorded else "nat/token"
    speed = "not known" if summary.tokens_per_second is None else "tokens/s"
    saved = f"step {count(summary.checkpoint_step)}" if summary.checkpoint_step else "none yet"
    with st.container(horizontal=True, gap="small"):
        for title, value, below in (
            ("Last step", age(summary.age_s), f"step {count(summary.step)}{of_all}"),
            ("Last checkpoint", age(summary.checkpoint_age_s), saved),
            ("Work at risk", duration(summary.at_risk_s), plural(summary.at_risk_steps, "step")),
            ("Loss", reading(summary.loss), unit if summary.loss is not None else ""),
            ("Validation loss", reading(summary.validation_loss), unit),
            ("Throughput", number(summary.tokens_per_second), speed),
            _progress(summary),
        ):
            with st.container(width=_CELL):
                figure(title, value, below)


def _progress(summary: RunLine) -> tuple[str, str, str]:
    """Title, value and detail of how far a run is; of a trainer that reports no schedule, what it consumed."""
    tokens = number(summary.consumed_tokens)
    if not summary.train_tokens:
        read = "read so far" if summary.all_ranks else "of rank 0 alone"
        return "Tokens", tokens, "not reported" if summary.consumed_tokens is None else read
    done = f"{tokens} of {number(summary.train_tokens)} tokens"
    left = f" · {duration(summary.remaining_s)} to go" if summary.remaining_s is not None else ""
    return "Progress", NOTHING if summary.progress is None else f"{percent(summary.progress)} %", done + left


def problem_box(problems: tuple[EvidenceError, ...]) -> None:
    """Names the evidence that does not hold; each text once."""
    if not problems:
        return
    texts = dict.fromkeys(map(str, problems))
    error_box("The evidence of this run does not hold. The page shows the steps before the fault.", "\n".join(texts))
