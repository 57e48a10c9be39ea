"""Choosing a run and a checkpoint, and what a page shows if there is none."""

from collections.abc import Collection, Sequence
from typing import Final, NoReturn, TypeVar

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from treering.errors import EvidenceError
from treering.metrics.run_summary import unlisted_runs
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint
from treering_dashboard.frames import cached
from treering_dashboard.panels.address import among, check_address, complete, gone
from treering_dashboard.panels.foreign import block, say

R = TypeVar("R", RunDirectory, AnyRun)

_FIRST_STEPS: Final = """\
make demo                               # the whole pipeline, then this dashboard
treering train experiments/demo.yaml    # training alone, once the data is made
treering record -- COMMAND              # a training of your own; `treering.start` records more of it
"""

WHOLE_RUN: Final = "whole run"

_CARRIED: Final = "carried"
_SETTLED: Final = "settled"
_LAST_RUN: Final = "last_run"
_CHECKPOINT_OF: Final = "checkpoint_of"


def runs_or_stop() -> list[RunDirectory]:
    """All runs of Treering's trainer, newest first. Without one the page says what to do, and ends."""
    runs = cached.runs()
    if not runs:
        if cached.all_runs():
            st.info(
                "The recorded runs of this project have no documents to show: what the samples held is not on record. "
                "*Audit* says what each restart repeated, *Compare* where two runs differ.",
                icon=":material/info:",
            )
        else:
            _show_first_steps()
        st.stop()
    return runs


def all_runs_or_stop() -> list[AnyRun]:
    """All runs, recorded ones too, newest first. Without a run the page shows the commands that make one, and ends."""
    runs = cached.all_runs()
    if not runs:
        _show_first_steps()
        st.stop()
    return runs


def _show_first_steps() -> None:
    st.markdown("#### No runs yet")
    say("A run appears here as soon as its first attempt starts.")
    block(_FIRST_STEPS, "bash")
    say("Looked in")
    block(str(cached.project().runs))
    unlisted()


def unlisted() -> None:
    """Names the runs that no list shows."""
    lines = unlisted_runs(cached.project().runs)
    if lines:
        say(*lines)


def run_label(run: AnyRun) -> str:
    """Short id and experiment; the id alone where the config does not hold."""
    return f"{run.path.name[:8]} {experiment_of(run)}".rstrip()


def experiment_of(run: AnyRun) -> str:
    """Name of a run's experiment; empty where the config does not hold."""
    try:
        return (run.record if isinstance(run, RecordedRunDirectory) else run.resolved).experiment
    except EvidenceError:
        return ""


def go_to(page: StreamlitPage, **choices: str | int) -> None:
    """Goes to another page with choices made.

    Streamlit takes no value from an address for a box whose name a box of the page left has as well, as most pages
    have one for a run: such choices go with the session, for `keep_choice`.
    """
    st.session_state[_CARRIED] = {key: value for key, value in choices.items() if key in st.session_state}
    rest = {key: str(value) for key, value in choices.items() if key not in st.session_state}
    st.switch_page(page, query_params=rest)


def keep_choice(key: str, value: str | int | Sequence[str], options: Collection[str] | None = None) -> None:
    """Chooses `value` where neither `go_to`, nor the URL, nor the visitor has chosen, and writes it into the URL.

    A widget's default would not be in the URL, and a shared link would change its meaning when newer runs arrive.

    Args:
        key: of the widget, which is bound to the URL.
        value: what is chosen.
        options: what there is to choose; a visitor's choice that is not among it, as of another run's checkpoint,
            counts as none. What an address asks for is checked before, by `check_address`.
    """
    carried = st.session_state.get(_CARRIED, {})
    if key in carried:
        st.session_state[key] = carried.pop(key)
    elif key in st.session_state:
        # Said again, or a page that is reached from another with the same box would show an empty one.
        chosen = st.session_state[key]
        st.session_state[key] = chosen if options is None or chosen in options else value
    elif key not in st.query_params:
        st.query_params[key] = str(value) if isinstance(value, int) else value
        st.session_state[key] = value


def _settle(key: str) -> None:
    """Runs the page once more if the address has no value for its box: only then Streamlit writes it there.

    That is a page reached from another with the same box.
    """
    page, settled = st.context.url, st.session_state.setdefault(_SETTLED, {})
    if key in st.query_params:
        settled.pop(key, None)
    elif page and settled.get(key) != page:
        settled[key] = page
        st.rerun()


def choose_run(runs: Sequence[R], side: str = "") -> R:
    """A box with all runs, newest first, and the run's name beside it; the URL holds the chosen run's id.

    Args:
        runs: at least one.
        side: prefix of the name in the URL; a run without a prefix is chosen for the other pages too.
    """
    by_name, key = {run.path.name: run for run in runs}, f"{side}run"
    complete(key, by_name)
    check_address(**{key: among(by_name, "run")})
    asked = st.session_state.get(_CARRIED, {}).get(key) or st.session_state.get(key)
    if asked is not None and asked not in by_name:
        gone("run", str(asked), by_name)
    last = st.session_state.get(_LAST_RUN)
    preferred = last if last in by_name else next(iter(by_name))
    keep_choice(key, preferred, by_name)
    name = _box("Run", by_name, key) or preferred
    if not side:
        st.session_state[_LAST_RUN] = name
    say(experiment_of(by_name[name]) or "experiment not known")
    return by_name[name]


def choose_checkpoint(runs: Sequence[RunDirectory], side: str = "") -> CheckpointDirectory | None:
    """Two boxes, a run's and that of its complete checkpoints, newest first.

    Args:
        runs: at least one.
        side: prefix of both names in the URL, if a page is about two checkpoints.

    Returns:
        The checkpoint, None where the run has none.
    """
    return checkpoint_of(choose_run(runs, side), side)


def checkpoint_of(run: RunDirectory, side: str = "") -> CheckpointDirectory | None:
    """A box with the complete checkpoints of a run, newest first; None where the run has none."""
    checkpoints = {checkpoint.path.name: checkpoint for checkpoint in reversed(run.checkpoints())}
    return checkpoints[_choose_of(run, list(checkpoints), side)] if checkpoints else None


def recorded_checkpoint_of(run: RecordedRunDirectory) -> RecordedCheckpoint | None:
    """A box with the whole run and its reported checkpoints, newest first; None for the whole run.

    Raises:
        EvidenceError: the record of the chosen checkpoint was changed.
    """
    files = {file.stem: file for file in reversed(run.checkpoint_files())}
    name = _choose_of(run, [WHOLE_RUN, *files], "")
    return None if name == WHOLE_RUN else RecordedCheckpoint.read(files[name])[0]


def _choose_of(run: AnyRun, names: Sequence[str], side: str) -> str:
    """The chosen one of the checkpoints of a run."""
    key, of = f"{side}checkpoint", f"{side}{_CHECKPOINT_OF}"
    check_address(**{key: among(names, "checkpoint")})
    asked = st.session_state.get(_CARRIED, {}).get(key)
    if asked is None and st.session_state.get(of) == run.path:
        asked = st.session_state.get(key)
    if asked is not None and asked not in names:
        gone("checkpoint", str(asked), names)
    st.session_state[of] = run.path
    keep_choice(key, names[0], names)
    return _box("Checkpoint", names, key) or names[0]


def _box(label: str, names: Collection[str], key: str) -> str | None:
    """A box whose choice is in the URL; None until the visitor's browser has answered."""
    name = st.selectbox(
        label,
        list(names),
        index=None,
        required=True,
        key=key,
        bind="query-params",
        label_visibility="collapsed",
        width=190,
    )
    _settle(key)
    return name


def checkpoint_or_stop() -> CheckpointDirectory:
    """The checkpoint chosen in two boxes. Without a run or a complete checkpoint the page says so, and ends."""
    runs = runs_or_stop()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        checkpoint = choose_checkpoint(runs)
    return checkpoint if checkpoint is not None else stop_without_checkpoint()


def stop_without_checkpoint() -> NoReturn:
    """Says that a run has no complete checkpoint, and ends the page."""
    st.info(
        "This run has no complete checkpoint yet, so there is nothing to audit; `checkpoint.every_steps` of its config "
        "says after how many steps one is saved.",
        icon=":material/hourglass_empty:",
    )
    st.stop()
