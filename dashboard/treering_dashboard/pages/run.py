"""One run: its state line, training health beside evaluation on one x, throughput, checkpoints, what ran."""

import math

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from treering.errors import EvidenceError
from treering.metrics.lines.line import RunLine
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.buckets import MAX_BUCKETS
from treering_dashboard.frames.rings import RunFrames
from treering_dashboard.frames.scores import perplexity_frame, reported_frame, score_frame
from treering_dashboard.frames.smoothing import WEIGHT
from treering_dashboard.panels.address import SWITCH, check_address
from treering_dashboard.panels.answer import error_box
from treering_dashboard.panels.axis import Placement, XAxis, choose_axis, choose_window
from treering_dashboard.panels.charts import Marks, Panel, draw_stack
from treering_dashboard.panels.choice import all_runs_or_stop, choose_run
from treering_dashboard.panels.foreign import block, say
from treering_dashboard.panels.notes import note_table, tag_badges
from treering_dashboard.panels.recorded import attempt_table, newest_metrics, recorded_checkpoints, settings_table
from treering_dashboard.panels.sensors import energy_figures, sensor_charts
from treering_dashboard.panels.state import SIGNS, badge, problem_box, state_line
from treering_dashboard.panels.tables import alarm_table, checkpoint_table, incident_table, kernel_table, layout_facts
from treering_dashboard.panels.text import count, number, plural
from treering_dashboard.panels.training import (
    HEALTH,
    incident_marks,
    metric_panels,
    other_panels,
    restart_marks,
    score_panels,
    throughput_panels,
    validation_panel,
)

REFRESH_S = 5


def page() -> None:
    """Draws the page; the part below the controls looks again by itself while the run is alive."""
    runs = all_runs_or_stop()
    check_address(replaced=SWITCH, smooth=SWITCH)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        run = choose_run(runs)
        axis = choose_axis([cached.frames(run)])
        window = choose_window()
        show_replaced = len(cached.frames(run).replaced) > 0 and st.toggle(
            "Replaced steps", key="replaced", bind="query-params", help="Steps that a restart went back behind, in grey"
        )
        smoothed = st.toggle(
            "Smoothed",
            key="smooth",
            bind="query-params",
            help=f"Loss and gradient norm: time-weighted moving average, weight {WEIGHT}, over the faint curve",
        )
    alive = cached.summary(run).alive
    live = st.fragment(_live, run_every=REFRESH_S if alive else None, key="live")
    live(run, axis, was_alive=alive, window=window, show_replaced=show_replaced, smoothed=smoothed)


def _live(
    run: AnyRun, axis: XAxis, *, was_alive: bool, window: int | None, show_replaced: bool, smoothed: bool
) -> None:
    summary, frames = cached.whole_summary(run), cached.frames(run)
    if summary.alive != was_alive:
        st.rerun()
    _head(summary)
    problem_box(summary.problems)
    if summary.missing:
        error_box("The run that this one starts from is missing.", summary.missing)
    shown = frames if window is None else frames.last(window)
    if frames.num_steps:
        _charts(run, shown, axis, show_replaced=show_replaced, smoothed=smoothed)
        _stretches(shown)
    elif summary.state == "empty":
        st.info(
            "No step yet. `treering train` with this run's experiment starts it.", icon=":material/hourglass_empty:"
        )
    elif summary.recorded:
        st.info("No step was reported yet. `run.step(loss=…)` reports one.", icon=":material/hourglass_empty:")
    if isinstance(run, RecordedRunDirectory):
        _recorded_details(run, summary, frames, shown, axis)
    else:
        _details(run, summary, frames, shown, axis)


def _head(summary: RunLine) -> None:
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


def _charts(run: AnyRun, frames: RunFrames, axis: XAxis, *, show_replaced: bool, smoothed: bool) -> None:
    x = Placement.of(axis, [frames.path, frames.replaced] if show_replaced else [frames.path])
    marks = Marks(restart_marks(frames, x), incident_marks(frames, x))
    health, evaluation, throughput = st.columns(3, gap="medium")
    with health:
        st.markdown("###### Training health")
        panels = metric_panels(frames, HEALTH, x, show_replaced=show_replaced, smoothed=smoothed)
        if panels:
            draw_stack(panels, x, marks, key="health", alt_text=_described("Training health", frames))
        else:
            st.info("No loss was reported. `run.step(loss=…)` reports it.", icon=":material/show_chart:")
    with evaluation:
        st.markdown("###### Evaluation over training")
        _evaluation(run, frames, x, marks)
    with throughput:
        st.markdown("###### Throughput")
        panels = throughput_panels(frames, x, show_replaced=show_replaced)
        if panels:
            draw_stack(panels, x, marks, key="throughput", alt_text=_described("Throughput", frames))
        else:
            st.caption("Two reported steps are needed.")
    if frames.recorded:
        _others(frames, x, marks, show_replaced=show_replaced)


def _others(frames: RunFrames, x: Placement, marks: Marks, *, show_replaced: bool) -> None:
    """Metrics of another trainer that are not in the catalog."""
    panels, left = other_panels(frames, x, show_replaced=show_replaced)
    if panels:
        st.markdown("###### Other metrics")
        for column, cell in enumerate(st.columns(3, gap="medium")):
            if own := panels[column::3]:
                with cell:
                    alt_text = _described(", ".join(panel.title for panel in own), frames)
                    draw_stack(own, x, marks, key=f"others-{column}", alt_text=alt_text)
    if left:
        newest_metrics(frames, left)


def _evaluation(run: AnyRun, frames: RunFrames, x: Placement, marks: Marks) -> None:
    panels: list[Panel] = []
    if isinstance(run, RecordedRunDirectory):
        scored, problem = cached.scored(run)
        panels += score_panels(reported_frame(scored), perplexity_frame([]), frames, x)
        nothing = "No score was reported. `run.score(STEP, TASK, {…})` reports one:"
        example = 'run.score(run.last_step, "hellaswag", {"acc": 0.81, "acc_stderr": 0.004})'
    else:
        evaluations, problem = cached.evaluations(run)
        panels += score_panels(score_frame(evaluations), perplexity_frame(evaluations), frames, x)
        nothing = "" if evaluations else "No checkpoint has been evaluated yet; this scores them:"
        example = f"treering evaluate --run {run.path.name[:8]}"
    if problem:
        error_box("An evaluation's record does not hold.", problem)
    drawn = panels + validation_panel(frames, x)
    if drawn:
        draw_stack(drawn, x, marks, key="evaluation", alt_text=_described("Scores of the checkpoints", frames))
    if not panels and nothing and not problem:
        st.info(nothing, icon=":material/quiz:")
        block(example, "python" if frames.recorded else "bash")


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


def _details(run: RunDirectory, summary: RunLine, frames: RunFrames, shown: RunFrames, axis: XAxis) -> None:
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
        _what_ran(run, frames, middle, wide)
    with right:
        if shown.num_steps:
            st.markdown("###### Sensors")
            sensor_charts(cached.telemetry(run), shown, axis)
        energy_figures(run)
        st.markdown("###### Notes")
        note_table(summary.notes, run.path.name)


def _recorded_details(
    run: RecordedRunDirectory, summary: RunLine, frames: RunFrames, shown: RunFrames, axis: XAxis
) -> None:
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
            sensor_charts(cached.telemetry(run), shown, axis)
        energy_figures(run)
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
