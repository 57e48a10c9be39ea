"""Whether two runs were fed the same data, and where not: by the digest that each step has of its batch.

Rings name a batch by the digest of its samples' digests, whichever trainer wrote them. So runs of different trainers
can be compared too, where one process of the other trainer reports whole batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc

from treering.errors import EvidenceError, UserError
from treering.runlog.columns.fed import Fed
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory


@dataclass(frozen=True, slots=True)
class DataDifference:
    """The first step at which two runs did not read the same.

    Attributes:
        step: that step.
        kind: `samples` where the sample numbers differ (another batch schedule or a skipped range), `tokens` where the
            numbers are equal and what was fed is not (another blend, or other bytes).
        left: samples [start, end) of the first run.
        right: samples [start, end) of the second.
    """

    step: int
    kind: Literal["samples", "tokens"]
    left: tuple[int, int]
    right: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DataComparison:
    """How far two runs read the same data.

    Attributes:
        compared_steps: steps that both have.
        equal_steps: leading steps whose batches are equal, token for token.
        first: where they part, None if they do not within the steps that both have.
    """

    compared_steps: int
    equal_steps: int
    first: DataDifference | None


@dataclass(frozen=True, slots=True)
class BatchComparison:
    """Runs of which at least one is another trainer's, compared batch by batch.

    Attributes:
        common_steps: number of steps whose whole batch both runs report.
        equal_steps: how many of them come before the first one with different batches.
        first: the first of these steps with different batches; None if all batches are equal.
    """

    common_steps: int
    equal_steps: int
    first: int | None


def compare_data(left: Fed, right: Fed) -> DataComparison:
    """Compares what two runs of Treering's trainer were fed, step by step; the shorter path ends the comparison."""
    common = min(len(left), len(right))
    samples = (left.starts[:common] != right.starts[:common]) | (left.ends[:common] != right.ends[:common])
    tokens = pc.not_equal(left.digests.slice(0, common), right.digests.slice(0, common)).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(samples | tokens)
    if not len(found):
        return DataComparison(common, common, None)
    at = int(found[0])
    ranges = [(int(each.starts[at]), int(each.ends[at])) for each in (left, right)]
    first = DataDifference(int(left.steps[at]), "samples" if samples[at] else "tokens", ranges[0], ranges[1])
    return DataComparison(common, at, first)


def compare_batches(left: Fed, right: Fed) -> BatchComparison:
    """Compares the batches of the steps that both runs report; a trainer need not report every step."""
    known = [each.steps[pc.is_valid(each.digests).to_numpy(zero_copy_only=False)] for each in (left, right)]
    steps = np.intersect1d(*known)
    batches = [each.digests.take(np.searchsorted(each.steps, steps)) for each in (left, right)]
    found = np.flatnonzero(pc.not_equal(*batches).to_numpy(zero_copy_only=False))
    if not len(found):
        return BatchComparison(len(steps), len(steps), None)
    return BatchComparison(len(steps), int(found[0]), int(steps[found[0]]))


def check_whole_batches(run: AnyRun) -> None:
    """Refuses a run in which no process saw a whole batch.

    Raises:
        UserError: several processes of another trainer reported parts of each batch.
    """
    if isinstance(run, RecordedRunDirectory) and any(
        segment.attempt.header.world_size > 1 for segment in run.path_to_end()
    ):
        raise UserError(f"run {run.id}: several processes reported parts of each batch, so no digest is of a whole one")


def data_sentence(first: AnyRun, second: AnyRun, read: Callable[[AnyRun], Fed]) -> tuple[int | None, str]:
    """Whether two runs were fed the same.

    Args:
        first: one of them.
        second: the other one.
        read: `fed_of`, perhaps with a memory.

    Returns:
        The number of equal steps, None where the data differ or nobody knows; and the same in a sentence.
    """
    try:
        for run in (first, second):
            check_whole_batches(run)
        feeds = read(first), read(second)
    except EvidenceError as error:
        return None, f"Whether they read the same data is not known: {error}."
    except UserError:
        return None, (
            "Whether they read the same data is not known here, since several processes reported parts of each batch; "
            f"`treering diff {first.id[:8]} {second.id[:8]}` compares the parts."
        )
    if isinstance(first, RunDirectory) and isinstance(second, RunDirectory):
        found = compare_data(*feeds)
        if found.first is not None:
            kind = "other tokens in the same samples" if found.first.kind == "tokens" else "other samples"
            orders = first.resolved.blend.seed != second.resolved.blend.seed
            seeds = ", the seeds of their data orders differ" if orders else ""
            return None, f"Their data differ from step {found.first.step} on ({kind}{seeds})."
        equal = found.equal_steps
    else:
        batches = compare_batches(*feeds)
        if batches.first is not None:
            return None, f"Their data differ from step {batches.first} on (other tokens, or the same in another order)."
        equal = batches.common_steps
    if not equal:
        return None, "Whether they read the same data is not known: no step of both says what it read."
    return equal, f"Both read the same data ({equal:,} common steps)."
