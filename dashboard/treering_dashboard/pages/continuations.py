"""The continuations of the kept prompts, side by side across the checkpoints of a run."""

from typing import Final

import streamlit as st

from treering.metrics.continuations import SideBySide, side_by_side
from treering.runlog.directory import checkpoint_name
from treering_dashboard.frames import cached
from treering_dashboard.panels.address import among, check_all, gone
from treering_dashboard.panels.answer import command, open_ends
from treering_dashboard.panels.choice import choose_run, keep_choice, runs_or_stop
from treering_dashboard.panels.foreign import block, say
from treering_dashboard.panels.text import count, plural

_MOST: Final = 6
_CONFIG: Final = """\
evaluation:
  prompts: {file: prompts.txt, max_tokens: 64}
"""


def page() -> None:
    """Draws the page."""
    runs = runs_or_stop()
    controls = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    with controls:
        run = choose_run(runs)
    found = side_by_side(run)
    if not found.steps:
        st.info(
            "No checkpoint of this run has continuations. Name a file of prompts in the experiment, one prompt a line; "
            "`treering evaluate` continues them with every checkpoint.",
            icon=":material/notes:",
        )
        block(_CONFIG, "yaml")
        open_ends("Limits", [doubt.line for doubt in found.doubts])
        return
    with controls:
        chosen = _choose_steps(found)
    say(f"{plural(len(found.prompts), 'prompt')}: {found.how}")
    for prompt in found.prompts:
        with st.container(border=True):
            say(f"{prompt.id}:  {prompt.text}")
            for column, step in zip(st.columns(max(1, len(chosen))), chosen, strict=False):
                with column:
                    st.caption(f"step {count(step)}")
                    made = prompt.by_step.get(step)
                    block("" if made is None else made.text)
    open_ends("Limits", [doubt.line for doubt in found.doubts])
    command(f"treering continuations {cached.named(run.path.name)}")


def _choose_steps(found: SideBySide) -> list[int]:
    """Checkpoints in the address; the first, the middle and the last where it names none."""
    steps = {checkpoint_name(step): step for step in found.steps}
    names, key = list(steps), "checkpoints"
    check_all(key, among(names, "checkpoint"), _MOST)
    if lost := [name for name in st.session_state.get(key, ()) if name not in steps]:
        gone("checkpoint", lost[0], names)
    keep_choice(key, list(dict.fromkeys((names[0], names[len(names) // 2], names[-1]))))
    chosen = st.multiselect("Checkpoints", names, key=key, bind="query-params", max_selections=_MOST)
    return sorted(steps[name] for name in chosen)
