"""Which data the steps of runs read, compared run by run, with what was read kept until a run changes."""

from itertools import chain
from pathlib import Path
from typing import Final

import streamlit as st

from treering.audit.recorded.difference import RecordedDifference
from treering.errors import EvidenceError, UserError
from treering.metrics.same_data import (
    BatchComparison,
    DataComparison,
    check_whole_batches,
    compare_batches,
    compare_data,
)
from treering.runlog.before_fault import rings_before_fault
from treering.runlog.columns.fed import Fed, fed_of
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.ring import RINGS_FILE
from treering_dashboard.frames.audits import recorded_difference_of
from treering_dashboard.frames.cached import Version, version_along

COSTLY_BYTES: Final = 300_000_000
"""Bytes of rings that take about a second to read."""


def ring_bytes(runs: list[AnyRun]) -> int:
    """Bytes of rings that a comparison reads."""
    return sum(file.stat().st_size for run in runs for file in run.path.glob(f"attempts/*/{RINGS_FILE}*"))


def compare_reads(a: AnyRun, b: AnyRun) -> DataComparison | RecordedDifference | BatchComparison:
    """How the data of two runs compare.

    Args:
        a: one of them.
        b: the other one.

    Raises:
        EvidenceError: a ring does not hold.
        UserError: they cannot be compared.
    """
    if isinstance(a, RecordedRunDirectory) and isinstance(b, RecordedRunDirectory):
        return recorded_difference_of(a, b)
    if isinstance(a, RunDirectory) and isinstance(b, RunDirectory):
        return compare_data(fed(a), fed(b))
    for run in (a, b):
        check_whole_batches(run)
    found = compare_batches(fed(a), fed(b))
    if not found.common_steps:
        raise UserError(
            f"runs {a.id} and {b.id}: found no step whose samples both runs report, expected at least one; pass "
            "tokens= to run.step in the recorded run"
        )
    return found


def fed(run: AnyRun) -> Fed:
    """What the steps of a run were fed; of Treering's trainer up to the first ring that does not hold."""
    return _fed(str(run.path), version_along(run), recorded=isinstance(run, RecordedRunDirectory))


@st.cache_resource(max_entries=16, show_spinner="Reading what the steps were fed …")
def _fed(path: str, version: Version, *, recorded: bool) -> Fed:
    del version  # part of the key alone
    if recorded:
        return fed_of(RecordedRunDirectory(Path(path)))
    run = RunDirectory(Path(path))
    try:
        return fed_of(run)
    except EvidenceError:
        return Fed.of_rings(chain.from_iterable(rings_before_fault(run, [])[1]))
