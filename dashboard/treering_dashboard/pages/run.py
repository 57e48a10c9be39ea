"""One run: its state line, training health beside evaluation on one x, throughput, checkpoints, what ran."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from treering.errors import ConfigError, EvidenceError
from treering.metrics.lines.line import RunLine
from treering.metrics.references import Reference, read_references
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.buckets import MAX_BUCKETS
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.frames.scores import perplexity_frame, reported_frame, score_frame
from treering_dashboard.frames.smoothing import WEIGHT
from treering_dashboard.panels.address import SWITCH, check_address
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.axis import Placement, XAxis, choose_axis, choose_window
from treering_dashboard.panels.board import draw_board, send_whole
from treering_dashboard.panels.charts import Board, Marks, Panel
from treering_dashboard.panels.choice import all_runs_or_stop, choose_run
from treering_dashboard.panels.definitions import definition_table
from treering_dashboard.panels.download import download_menu
from treering_dashboard.panels.foreign import block, say
from treering_dashboard.panels.notes import note_table, tag_badges
from treering_dashboard.panels.panel_files import downloads
from treering_dashboard.panels.recipe import recipe_text
from treering_dashboard.panels.recorded import attempt_table, newest_metrics, recorded_checkpoints, settings_table
from treering_dashboard.panels.reproductions import reproduction_table
from treering_dashboard.panels.rewind import rewind_button
from treering_dashboard.panels.scores import score_panels, validation_panel
from treering_dashboard.panels.sensors import energy_figures, sensor_notes
from treering_dashboard.panels.state import SIGNS, badge, problem_box, state_line
from treering_dashboard.panels.step import step_panel
from treering_dashboard.panels.tables import alarm_table, checkpoint_table, incident_table, kernel_table, layout_facts
from treering_dashboard.panels.text import count, number, plural
from treering_dashboard.panels.training import (
    HEALTH,
    MOST_OTHERS,
    incident_marks,
    metric_panels,
    other_metrics,
    other_panels,
    overview_line,
    restart_marks,
    sensor_panels,
    throughput_panels,
)
from treering_dashboard.panels.window import answers, window_of

REFRESH_S = 2


def page() -> None:
    """Draws the page; state and curves look again by themselves while the run is alive, the rest when it changed."""
    runs = all_runs_or_stop()
    check_address(replaced=SWITCH, smooth=SWITCH, robust=SWITCH)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        run = choose_run(runs)
        frames = cached.frames(run)
        axis = choose_axis([frames])
        newest = choose_window()
        show_replaced = len(frames.replaced) > 0 and st.toggle(
            "Replaced steps", key="replaced", bind="query-params", help="Steps that a restart went back behind, in grey"
        )
        smoothed = st.toggle(
            "Smoothed",
            key="smooth",
            bind="query-params",
            help=f"Loss and gradient norm: time-weighted moving average, weight {WEIGHT}, over the faint curve",
        )
        robust = st.toggle(
            "Robust axes",
            key="robust",
            bind="query-params",
            help="The y axes leave out the most extreme hundredths, and each panel says how many points those are",
        )
    summary = cached.whole_summary(run)
    view = View(axis, newest, show_replaced=show_replaced, smoothed=smoothed, robust=robust)
    send_whole("board")
    live = st.fragment(_live, run_every=REFRESH_S if summary.alive else None, key="live")
    live(run, view, beside=_beside(run, summary))
    if frames.num_steps:
        _unreported(run, frames)
    if isinstance(run, RecordedRunDirectory):
        _recorded_details(run, summary, frames)
    else:
        _details(run, summary, frames)


@dataclass(frozen=True, slots=True)
class View:
    """What the controls say.

    Attributes:
        axis: the page's x.
        newest: how many of the newest steps are drawn, None for all.
        show_replaced: whether steps that a restart did again are drawn.
        smoothed: whether noisy metrics have a moving average.
        robust: whether the y axes leave out the most extreme values.
    """

    axis: XAxis
    newest: int | None
    show_replaced: bool
    smoothed: bool
    robust: bool


def _beside(run: AnyRun, summary: RunLine) -> tuple[object, ...]:
    """What the rest of the page shows; it is drawn again when this changes, and every minute."""
    minute = int(time.time() / 60) if summary.alive else 0
    return (cached.version_beside(run), summary.state, repr(summary.alarms), minute)


def _live(run: AnyRun, view: View, *, beside: tuple[object, ...]) -> None:
    summary, frames = cached.whole_summary(run), cached.frames(run)
    if _beside(run, summary) != beside:
        st.rerun()
    _head(run, summary)
    problem_box(summary.problems)
    if summary.missing:
        error_box("The run that this one starts from is missing.", summary.missing)
    if frames.num_steps:
        _board(run, frames, view)
    elif summary.state == "empty":
        st.info(
            "No step yet. `treering train` with this run's experiment starts it.", icon=":material/hourglass_empty:"
        )
    elif summary.recorded:
        st.info("No step was reported yet. `run.step(loss=…)` reports one.", icon=":material/hourglass_empty:")


def _head(run: AnyRun, summary: RunLine) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        badge(summary.state)
        if summary.archived:
            st.badge("archived", icon=":material/inventory_2:", color="gray")
        if summary.mirror:
            st.badge("mirror", icon=":material/content_copy:", color="violet")
        if summary.recorded:
            st.badge("recorded", icon=":material/edit_note:", color="gray", help="Another trainer reported this run.")
        tag_badges(summary.tags)
        facts = [summary.experiment or "unknown experiment", plural(summary.attempts, "attempt"), *summary.overrides]
        say("  ·  ".join(facts))
        advice = SIGNS[summary.state].advice
        if summary.reason and summary.state != "damaged":  # the box below names all that does not hold
            say(summary.reason)
        if advice and summary.state != "failed":
            say(advice)
    if summary.mirror:
        say(summary.mirror)
    if summary.step:
        state_line(summary)
    if isinstance(run, RunDirectory):
        with suppress(EvidenceError):  # the page names what does not hold
            say(recipe_text(run.resolved))


def _board(run: AnyRun, frames: RunFrames, view: View) -> None:
    """All panels of the run, and the step that was clicked."""
    window = window_of(run, frames.path.last_step)
    whole = frames if view.newest is None else frames.last(view.newest)
    shown = whole if window.steps is None else whole.between(*window.steps)
    if not shown.num_steps:
        shown = whole
    references = cached.file_version(cached.project().references, "*.yaml")
    read = (str(run.path), cached.version_along(run), cached.telemetry_version(run), references)
    board, x = _composed(read, astuple(view), window.steps, run, whole, shown, view)
    step = frames.path.at([window.at], [x.column]) if window.at is not None else None
    board = replace(
        board,
        groups={title: [window.scaled(panel) for panel in panels] for title, panels in board.groups.items()},
        rest=f"Steps {count(shown.path.after + 1)} to {count(shown.path.last_drawn)}" if window.steps else "",
        at=float(x.place(step).iloc[0]) if step is not None and len(step) else None,
    )
    if board.panels:
        draw_board(board, x, key="board", answers=answers(frames, x))
        _stretches(shown)
        download_menu(run.path.name[:8], downloads(board, x))
    if window.at is not None:
        step_panel(run, frames, window.at, links.step_button)


@st.cache_resource(max_entries=32, show_spinner=False)
def _composed(
    read: tuple[object, ...],
    choices: tuple[object, ...],
    steps: tuple[int, int] | None,
    _run: AnyRun,
    _whole: RunFrames,
    _shown: RunFrames,
    _view: View,
) -> tuple[Board, Placement]:
    """The panels, made once for all who look at the same.

    Args:
        read: names the run and what was written of it.
        choices: those of the controls.
        steps: first and last step, None for all.
        _run: that is drawn.
        _whole: its frames.
        _shown: the part of them that is drawn.
        _view: the choices of the controls.
    """
    del read, choices  # part of the key alone
    x = Placement.of(_view.axis, _placed(_whole, _view))
    x = x if steps is None else x.within(_placed(_shown, _view))
    board = Board(
        {title: panels for title, panels in _groups(_run, _shown, x, _view).items() if panels},
        Marks(restart_marks(_shown, x), incident_marks(_shown, x)),
        alt=_described("Training health, evaluation and throughput", _shown),
        robust=_view.robust,
        overview=None if steps is None else overview_line(_whole, x),
    )
    return board, x


def _placed(frames: RunFrames, view: View) -> list[Curves]:
    return [frames.path, frames.replaced] if view.show_replaced else [frames.path]


def _groups(run: AnyRun, frames: RunFrames, x: Placement, view: View) -> dict[str, list[Panel]]:
    """The panels by the title over them."""
    return {
        "Training health": metric_panels(frames, HEALTH, x, show_replaced=view.show_replaced, smoothed=view.smoothed),
        "Evaluation over training": _evaluation(run, frames, x),
        "Throughput": throughput_panels(frames, x, show_replaced=view.show_replaced),
        "Other metrics": other_panels(frames, x, show_replaced=view.show_replaced) if frames.recorded else [],
        "Sensors": sensor_panels(cached.telemetry(run), frames.path, x),
    }


def _evaluation(run: AnyRun, frames: RunFrames, x: Placement) -> list[Panel]:
    references: Sequence[Reference] = ()
    if isinstance(run, RecordedRunDirectory):
        scored, _ = cached.scored(run)
        panels = score_panels(reported_frame(scored), perplexity_frame([]), frames, x)
    else:
        evaluations, _ = cached.evaluations(run)
        with suppress(ConfigError):  # the page Scaling names what does not hold
            references = read_references(cached.project().references)
        panels = score_panels(score_frame(evaluations), perplexity_frame(evaluations), frames, x, references)
    return panels + validation_panel(frames, x)


def _unreported(run: AnyRun, frames: RunFrames) -> None:
    """Says what reports losses and scores, where there are none, and names a record that does not hold."""
    if not any(key in frames.path for key in HEALTH):
        st.info("No loss was reported. `run.step(loss=…)` reports it.", icon=":material/show_chart:")
    if isinstance(run, RecordedRunDirectory):
        found: tuple[Sequence[object], EvidenceError | None] = cached.scored(run)
        nothing = "No score was reported. `run.score(STEP, TASK, {…})` reports one:"
        example = 'run.score(run.last_step, "hellaswag", {"acc": 0.81, "acc_stderr": 0.004})'
    else:
        found = cached.evaluations(run)
        nothing = "No checkpoint has been evaluated yet; this scores them:"
        example = f"treering evaluate --run {cached.named(run.path.name)}"
    scores, problem = found
    if problem:
        error_box("An evaluation's record does not hold.", problem)
    elif not scores:
        st.info(nothing, icon=":material/quiz:")
        block(example, "python" if isinstance(run, RecordedRunDirectory) else "bash")


def _stretches(frames: RunFrames) -> None:
    """Shows how many steps a point of the curves covers, if more than one."""
    if frames.num_steps > MAX_BUCKETS:
        st.caption(
            f"{plural(frames.num_steps, 'step')} in {count(MAX_BUCKETS)} stretches: the line is the last value of "
            "each, the band goes from its lowest to its highest."
        )


def _described(what: str, frames: RunFrames) -> str:
    loss = frames.path.latest("train/loss")
    unit = frames.path.describe("train/loss").unit if "train/loss" in frames.path else ""
    last = "" if math.isnan(loss) else f"; the last loss is {number(loss, unit.replace('nat/token', 'nats a token'))}"
    return f"{what} over {frames.num_steps} steps{last}"


def _details(run: RunDirectory, summary: RunLine, frames: RunFrames) -> None:
    wide, right = st.columns([2, 1], gap="medium")
    with wide:
        st.markdown("###### Incidents")
        incident_table(frames)
        left, middle = st.columns(2, gap="medium")
        with left:
            st.markdown("###### Alarms")
            links.open_spike(run, alarm_table(run, frames))
            st.markdown("###### Checkpoints")
            links.open_checkpoint(checkpoint_table(run))
            if newest := cached.evaluations(run)[0][-1:]:
                st.markdown("###### Tasks of the newest scores")
                definition_table([("", newest[0])])
        _what_ran(run, frames, middle, wide)
    with right:
        if frames.num_steps:
            st.markdown("###### Sensors")
            sensor_notes(cached.telemetry(run))
        energy_figures(run)
        if frames.num_steps:
            st.markdown("###### Rewind")
            rewind_button(run, frames)
        st.markdown("###### Notes")
        note_table(summary.notes, run.path.name)
        st.markdown("###### Reproductions")
        reproduction_table(run)


def _recorded_details(run: RecordedRunDirectory, summary: RunLine, frames: RunFrames) -> None:
    if more := other_metrics(frames)[MOST_OTHERS:]:
        newest_metrics(frames, more)
    st.markdown("###### Attempts")
    attempt_table(run, frames)
    if frames.restarts:
        links.audit_link(run, f"What {plural(len(frames.restarts), 'restart')} repeated or skipped")
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("###### Checkpoints")
        links.open_recorded(run, recorded_checkpoints(run))
        st.markdown("###### Notes")
        note_table(summary.notes, run.path.name)
        if len(cached.telemetry(run).keys):
            st.markdown("###### Sensors")
            sensor_notes(cached.telemetry(run))
        energy_figures(run)
        st.markdown("###### Reproductions")
        reproduction_table(run)
    with right:
        st.markdown("###### Settings")
        settings_table(run)


def _what_ran(run: RunDirectory, frames: RunFrames, middle: DeltaGenerator, wide: DeltaGenerator) -> None:
    with middle:
        st.markdown("###### What ran")
        try:
            attempts = run.attempts()
            header = attempts[-1].header if attempts else None
        except EvidenceError:
            st.caption("The newest attempt's header does not hold.")
            return
        if header is None:
            st.caption("No attempt has started.")
            return
        layout_facts(header, frames.flops_formula)
    if header.kernels:
        with wide:
            st.markdown("###### Kernels")
            kernel_table(header)
