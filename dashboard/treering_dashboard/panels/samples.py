"""Samples of a batch: a page of them as a table, and what one of them holds."""

from collections.abc import Sequence
from typing import Final, TypeVar

import pandas as pd
import streamlit as st

from treering.audit.documents.batch import BatchDocument, BatchSample
from treering.audit.documents.spike import Reading, SpikeData, SuspectSample, SuspectStep
from treering_dashboard.panels.address import check_address, whole
from treering_dashboard.panels.foreign import block, say
from treering_dashboard.panels.tables import choose_row, table
from treering_dashboard.panels.text import count, known, plural, reading

PAGE_SIZE: Final = 32
"""Samples that are drawn at once; a step of a large run has thousands."""

_SHORT_TEXT: Final = 600  # characters that are shown unfolded
_SAMPLE_NUMBERS: Final = ("Sample", "Replica", "Micro-batch", "Epoch", "Index", "Parts")
_STEP_NUMBERS: Final = ("Step", "Attempt", "Loss", "Gradient norm", "Samples", "Read elsewhere")

_Item = TypeVar("_Item")


def sample_table(samples: Sequence[BatchSample]) -> BatchSample:
    """A page of samples, at least one, with its pager; the chosen one."""
    shown = _page(samples, "page")
    key = f"samples from {shown[0].g}"
    return shown[
        choose_row(samples_frame(shown), "Samples of the batch", key=key, numbers=_SAMPLE_NUMBERS, rows=PAGE_SIZE)
    ]


def samples_frame(samples: Sequence[BatchSample]) -> pd.DataFrame:
    """One row a sample."""
    return pd.DataFrame(
        [
            {
                "Sample": count(each.g),
                "Replica": known(each.replica),
                "Micro-batch": known(each.micro_batch),
                "Corpus": each.corpus,
                "Epoch": str(each.epoch),
                "Index": count(each.index),
                "Parts": str(len(each.documents)),
                "Documents": ", ".join(part.document for part in each.documents),
            }
            for each in samples
        ]
    )


def part_text(part: BatchDocument) -> None:
    """Where a part of a document comes from, and its text, folded where it is long."""
    span = f"tokens {count(part.start)} to {count(part.end)} of {count(part.num_tokens)}"
    say(part.source, f"{part.licence}  ·  {span}")
    label = f"Text of these {plural(part.end - part.start, 'token')}"
    if part.text is None:
        st.caption("The text is not available.")
        return
    with st.expander(label, expanded=len(part.text) <= _SHORT_TEXT):
        block(part.text)


def suspect_steps(data: SpikeData) -> SuspectStep:
    """The steps that led to one; the chosen one, at first the last."""
    key, last = f"steps before {data.step}", len(data.steps) - 1
    row = choose_row(steps_frame(data.steps), "The steps before", key=key, numbers=_STEP_NUMBERS, rows=12, default=last)
    return data.steps[row]


def steps_frame(steps: Sequence[SuspectStep]) -> pd.DataFrame:
    """One row a step."""
    return pd.DataFrame(
        [
            {
                "Step": count(each.step),
                "Attempt": known(each.attempt),
                "Loss": reading(each.loss),
                "Gradient norm": reading(each.grad_norm),
                "Samples": count(len(each.samples)),
                "Read elsewhere": count(sum(bool(sample.elsewhere) for sample in each.samples)),
            }
            for each in steps
        ]
    )


def suspect_table(run: str, attempt: int | None, samples: Sequence[SuspectSample]) -> None:
    """A page of what a step read, with the other readings of each sample.

    Args:
        run: id of the run.
        attempt: number of the attempt that did the step, None if no record names it.
        samples: at least one.
    """
    table(
        suspects_frame(run, attempt, _page(samples, "suspects")),
        "Samples of the step and the other steps that read them",
        numbers=("Sample", "Epoch"),
        rows=PAGE_SIZE,
        widths={"Also read at step": 210},
    )


def suspects_frame(run: str, attempt: int | None, samples: Sequence[SuspectSample]) -> pd.DataFrame:
    """One row a sample of a step of an attempt of a run."""
    return pd.DataFrame(
        [
            {
                "Sample": count(each.sample),
                "Corpus": each.corpus,
                "Epoch": str(each.epoch),
                "Also read at step": ", ".join(_reading(run, attempt, other) for other in each.elsewhere),
                "Documents": ", ".join(each.documents),
                "Sources": ", ".join(each.sources),
            }
            for each in samples
        ]
    )


def _reading(run: str, attempt: int | None, other: Reading) -> str:
    """Its step, and of whom, where it is another's."""
    if other.run != run:
        return f"{count(other.step)} (run {other.run[:8]}, attempt {other.attempt})"
    return count(other.step) + ("" if other.attempt == attempt else f" (attempt {other.attempt})")


def _page(items: Sequence[_Item], key: str) -> Sequence[_Item]:
    pages = -(-len(items) // PAGE_SIZE)
    check_address(**{key: whole(1, pages)})
    if pages <= 1:
        return items
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        first = (st.pagination(pages, key=key, bind="query-params") - 1) * PAGE_SIZE
        st.caption(
            f"{count(first + 1)} to {count(min(first + PAGE_SIZE, len(items)))} of {plural(len(items), 'sample')}"
        )
    return items[first : first + PAGE_SIZE]
