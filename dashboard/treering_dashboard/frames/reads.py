"""Which data the steps of runs read, compared run by run.

Rings name a batch by the digest of its samples' digests, whichever trainer wrote them. So runs of different trainers
can be compared too, where one process of the other trainer reports whole batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import streamlit as st

from treering.audit.recorded.difference import RecordedDifference
from treering.errors import UserError
from treering.metrics.compare import DataComparison, compare_data
from treering.runlog.before_fault import rings_before_fault
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.ring import RINGS_FILE
from treering_dashboard.frames.audits import recorded_difference_of
from treering_dashboard.frames.cached import Version, version

COSTLY_BYTES: Final = 40_000_000
"""Bytes of rings that take about a second to read."""


@dataclass(frozen=True, slots=True)
class BatchComparison:
    """Runs of different trainers, compared batch by batch.

    Attributes:
        common_steps: number of steps whose whole batch both runs report.
        first: the first of these steps with different batches; None if all batches are equal.
    """

    common_steps: int
    first: int | None


@dataclass(frozen=True, slots=True)
class _Read:
    step: int
    sample_start: int
    sample_end: int
    batch_digest: str


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
        return compare_data(_reads(a), _reads(b))
    one, other = _batches(a), _batches(b)
    common = sorted(one.keys() & other.keys())
    if not common:
        raise UserError(
            f"runs {a.id} and {b.id}: found no step whose samples both runs report, expected at least one; pass "
            "tokens= to run.step in the recorded run"
        )
    return BatchComparison(len(common), next((step for step in common if one[step] != other[step]), None))


def _batches(run: AnyRun) -> dict[int, str]:
    """Digest of the whole batch of each step.

    Raises:
        UserError: no ring has the digest of a whole batch.
    """
    if isinstance(run, RunDirectory):
        return {read.step: read.batch_digest for read in _reads(run)}
    if any(segment.attempt.header.world_size > 1 for segment in run.path_to_end()):
        raise UserError(f"run {run.id}: several processes reported parts of each batch, so no digest is of a whole one")
    return _reported(run.path, version(run))


def _reads(run: RunDirectory) -> Iterator[_Read]:
    """What each ring on the path of a run read, up to the first that does not hold."""
    steps, starts, ends, digests = _own(str(run.path), version(run))
    for step, start, end, digest in zip(steps.tolist(), starts.tolist(), ends.tolist(), digests.tolist(), strict=True):
        yield _Read(step, start, end, digest.decode())


@st.cache_resource(max_entries=16, show_spinner="Reading what the steps were fed …")
def _own(path: str, version: Version) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    del version  # part of the key alone
    rings = list(chain.from_iterable(rings_before_fault(RunDirectory(Path(path)), [])[1]))
    numbers = np.array([(ring.step, ring.sample_start, ring.sample_end) for ring in rings], np.int64).reshape(-1, 3)
    return *numbers.T, np.array([ring.batch_digest for ring in rings], "S71")


@st.cache_resource(max_entries=16, show_spinner="Reading what the steps were fed …")
def _reported(path: Path, version: Version) -> dict[int, str]:
    del version  # part of the key alone
    rings = (ring for segment in RecordedRunDirectory(path).path_to_end() for ring in segment.rings())
    return {ring.step: ring.batch_digest for ring in rings if ring.batch_digest is not None}
