"""Where the data of runs differ, in words."""

from dataclasses import dataclass

from treering.audit.recorded.difference import RecordedDifference
from treering.errors import TreeringError
from treering.metrics.same_data import DataComparison
from treering.runlog.find import AnyRun
from treering_dashboard.frames.reads import compare_reads
from treering_dashboard.panels.text import count, plural


@dataclass(frozen=True, slots=True)
class Reading:
    """How the data of two runs compare.

    Attributes:
        first: the first step that was fed other data, None where there is none.
        where: the same in words.
        how: what differs, or how many steps are equal.
    """

    first: int | None
    where: str
    how: str


def read_both(a: AnyRun, b: AnyRun) -> Reading:
    """How the data of two runs compare; what cannot be compared says why."""
    try:
        found = compare_reads(a, b)
    except TreeringError as error:
        return Reading(None, "not comparable", str(error))
    if isinstance(found, DataComparison):
        return _of_own(found)
    if isinstance(found, RecordedDifference):
        order = f"; {plural(found.other_order, 'step')} in another order" if found.other_order else ""
        compared = plural(found.compared_steps, "step")
        differ = f"{count(found.different_steps)} of {compared} were fed other samples{order}"
        return _reading(found.first_difference, f"the same samples in {compared}{order}", differ)
    same = f"the same batches in {plural(found.common_steps, 'common step')}"
    return _reading(found.first, same, "other tokens, or the same in another order")


def _reading(first: int | None, same: str, differ: str) -> Reading:
    return Reading(None, "nowhere", same) if first is None else Reading(first, f"step {count(first)}", differ)


def _of_own(found: DataComparison) -> Reading:
    same = f"token for token the same in {plural(found.equal_steps, 'common step')}"
    if found.first is None:
        return _reading(None, same, "")
    left, right = (f"{count(a)} to {count(b)}" for a, b in (found.first.left, found.first.right))
    tokens = found.first.kind == "tokens"
    how = f"other tokens in the same samples {left}" if tokens else f"samples {left} against {right}"
    return _reading(found.first.step, same, how)
