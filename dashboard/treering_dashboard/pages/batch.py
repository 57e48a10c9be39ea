"""What was in a batch: its samples with documents and text; and of a spike, what was read before it and where else."""

import math
from collections import Counter
from typing import Final

import streamlit as st

from treering.audit.documents.batch import BatchSample, StepBatch
from treering.errors import NotFoundError, TreeringError
from treering.runlog.directory import RunDirectory
from treering.runlog.metric_catalog import describe
from treering_dashboard import links
from treering_dashboard.frames import answers, cached
from treering_dashboard.panels.address import SWITCH, among, check_address, whole
from treering_dashboard.panels.answer import command, error_box, open_ends
from treering_dashboard.panels.choice import choose_run, keep_choice, runs_or_stop
from treering_dashboard.panels.foreign import block, label, say
from treering_dashboard.panels.samples import part_text, sample_table, suspect_steps, suspect_table
from treering_dashboard.panels.text import count, number, plural, reading

SAMPLES: Final = "samples"


def page() -> None:
    """Draws the batch of the chosen step, or what the steps up to it read."""
    runs = runs_or_stop()
    controls = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    with controls:
        run = choose_run(runs)
    newest = cached.summary(run).step
    if not newest:
        st.info("No step yet, so there is no batch.", icon=":material/hourglass_empty:")
        return
    check_address(
        step=whole(1),
        view=among((SAMPLES, links.STEPS_BEFORE)),
        before=whole(0, 50),
        rank=whole(0),
        replica=whole(0),
        micro_batch=whole(0),
        alone=SWITCH,
    )
    with controls:
        keep_choice("step", newest)
        step = st.number_input("Step", min_value=1, step=1, key="step", bind="query-params", width=130)
        view = st.segmented_control(
            "Show", (SAMPLES, links.STEPS_BEFORE), default=SAMPLES, required=True, key="view", bind="query-params"
        )
    _alarms(run, step)
    if view == links.STEPS_BEFORE:
        with controls:
            before = st.number_input(
                "Steps before", min_value=0, max_value=50, value=5, step=1, key="before", bind="query-params", width=130
            )
        _before(run, step, before)
        return
    with controls:
        rank = _place("Rank", "rank")
        replica = _place("Replica", "replica", disabled=rank is not None)
        micro_batch = _place("Micro-batch", "micro_batch")
    _batch(run, step, rank, replica, micro_batch)


def _place(label: str, key: str, *, disabled: bool = False) -> int | None:
    """A number in the URL, None for all."""
    return st.number_input(
        label,
        min_value=0,
        value=None,
        step=1,
        placeholder="all",
        key=key,
        bind="query-params",
        disabled=disabled,
        width=120,
    )


def _alarms(run: RunDirectory, step: int) -> None:
    for alarm in cached.frames(run).alarms:
        if alarm.step == step:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.badge(label(alarm.rule), icon=":material/change_history:", color="orange")
                score = "" if alarm.z is None else f", z {number(alarm.z)}"
                title = describe(alarm.metric).title
                side = "under" if alarm.value < alarm.background else "over"
                side = "against" if math.isnan(alarm.value) else side
                against = "" if math.isnan(alarm.background) else f" {side} {number(alarm.background)}"
                say(f"{title} {reading(alarm.value)}{against}{score}")


def _batch(run: RunDirectory, step: int, rank: int | None, replica: int | None, micro_batch: int | None) -> None:
    try:
        found = answers.batch_of(run, step, rank)
    except TreeringError as error:
        error_box("No such step." if isinstance(error, NotFoundError) else "The batch cannot be shown.", error)
        return
    _verdict(found)
    samples = [
        each
        for each in found.samples
        if (rank is not None or replica in (None, each.replica)) and micro_batch in (None, each.micro_batch)
    ]
    if samples:
        _samples(samples)
    else:
        last = [max(getattr(each, name) or 0 for each in found.samples) for name in ("replica", "micro_batch")]
        st.info(
            f"None there: replicas 0 to {count(last[0])}, micro-batches 0 to {count(last[1])}.",
            icon=":material/filter_alt:",
        )
    command(f"treering batch {found.run} {step}{'' if rank is None else f' --rank {rank}'}")


def _verdict(found: StepBatch) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if found.content_bound:
            st.badge("content-bound", icon=":material/verified:", color="green")
            say(f"attempt {found.attempt}; the corpora give the ring's batch digest, {found.recorded_digest}")
        elif found.recorded_digest is None or found.recomputed_digest is None:
            st.badge(label(found.level.value), icon=":material/help:", color="orange")
            say("something is missing, so the batch digest could not be compared")
        else:
            st.badge("does not hold", icon=":material/gpp_bad:", color="red")
            say(f"attempt {found.attempt}; the corpora give another batch digest than the ring's")
    open_ends("What is missing, and what is answered without it", [each.text for each in found.gaps])
    if found.recomputed_digest is not None and not found.content_bound:
        texts = (f"in the ring        {found.recorded_digest}", f"from the corpora   {found.recomputed_digest}")
        block("\n".join(texts))


def _samples(samples: list[BatchSample]) -> None:
    left, right = st.columns([3, 2], gap="medium")
    with left:
        corpora = Counter(each.corpus for each in samples).most_common()
        st.markdown("###### Samples")
        say(f"{plural(len(samples), 'sample')}: {', '.join(f'{count(held)} {corpus}' for corpus, held in corpora)}")
        chosen = sample_table(samples)
    with right:
        st.markdown("###### The chosen sample")
        say(f"{count(chosen.g)}  ·  {chosen.corpus}, epoch {chosen.epoch}, index {count(chosen.index)}")
        for part in chosen.documents:
            name = f"{part.corpus}:{part.document}"
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                say(name, stretch=True)
                links.document_link(name)
            part_text(part)


def _show_samples(step: int) -> None:
    """A link to this very page would not change what its widgets hold."""
    st.session_state["step"], st.session_state["view"] = step, SAMPLES


def _before(run: RunDirectory, step: int, before: int) -> None:
    try:
        found = answers.spike_of(run, step, before)
    except TreeringError as error:
        missing = isinstance(error, NotFoundError)
        error_box("No such step." if missing else "What was read before cannot be shown.", error)
        return
    open_ends("What is missing, and what is answered without it", [each.text for each in found.gaps])
    left, right = st.columns([1, 2], gap="medium")
    with left:
        st.markdown(f"###### Step {count(step)} and {plural(len(found.steps) - 1, 'step')} before")
        chosen = suspect_steps(found)
        caption = f"Batch of step {count(chosen.step)}, with its text"
        st.button(caption, icon=":material/stacks:", type="tertiary", on_click=_show_samples, args=(chosen.step,))
    with right:
        st.markdown(f"###### What step {count(chosen.step)} read")
        alone = st.toggle("Only what no other step read", key="alone", bind="query-params")
        samples = [each for each in chosen.samples if not (alone and each.elsewhere)]
        if samples:
            suspect_table(found.run, chosen.attempt, samples)
        else:
            st.caption("Every sample was read elsewhere as well.")
    command(f"treering spikes {found.run} {step}{'' if before == 5 else f' --before {before}'}")
