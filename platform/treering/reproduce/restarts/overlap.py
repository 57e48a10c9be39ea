"""Steps that were done twice: by an attempt that was abandoned, and again by a later one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from treering.reproduce.numbers import FieldDifference, NumbersComparison, compare_numbers
from treering.reproduce.restarts.border import Aspect
from treering.runlog.columns.path import PathColumns
from treering.runlog.metric_catalog import METRICS

_RATE: Final = "optim/learning_rate"


@dataclass(frozen=True, slots=True)
class Repeated:
    """Steps of one abandoned attempt that another attempt did again.

    Attributes:
        earlier: number of the attempt that did them first.
        is_proof: whether that attempt did them without this restart. One that began where the attempt begins may have
            lost the same state, so that equal numbers prove nothing.
        steps: the steps.
        numbers: what both computed.
    """

    earlier: int
    is_proof: bool
    steps: range
    numbers: NumbersComparison


def repeated(
    resumed: PathColumns, after_step: int, earlier: Sequence[tuple[int, PathColumns]], *, resumes: bool
) -> list[Repeated]:
    """Compares the steps that an attempt did again, each with the newest earlier attempt that had done it.

    Attempts that did them without this restart come first.

    Args:
        resumed: columns of the attempt alone.
        after_step: the step that it goes on from.
        earlier: number and columns of the attempts before it, oldest first.
        resumes: whether it went on with the run; else it began the run again.

    Returns:
        Stretches of steps in their order, none twice.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    found: list[Repeated] = []
    left = [range(after_step + 1, resumed.last_step + 1)]
    begun = [(number, columns, _first_step(columns)) for number, columns in reversed(earlier)]
    over = [each for each in begun if not resumes or each[2] <= after_step]
    for number, columns, first in over + [each for each in begun if each not in over]:
        did = range(first, columns.last_step + 1)
        still: list[range] = []
        for steps in left:
            both = range(max(steps.start, did.start), min(steps.stop, did.stop))
            numbers = compare_numbers(columns, resumed, both) if both else None
            if numbers is None or not numbers.compared_steps:
                still.append(steps)
                continue
            found.append(Repeated(number, (number, columns, first) in over, both, numbers))
            still += [each for each in (range(steps.start, both.start), range(both.stop, steps.stop)) if each]
        left = still
    return sorted(found, key=lambda each: each.steps.start)


def _first_step(columns: PathColumns) -> int:
    """The first step of an attempt alone."""
    return min((part.first_step for each, _ in columns.stretches for part in each.head().parts), default=1)


def overlap_of(found: Sequence[Repeated]) -> tuple[int, int] | None:
    """First and last of the steps that were done twice."""
    return (found[0].steps.start, found[-1].steps.stop - 1) if found else None


def numbers_aspect(found: Sequence[Repeated], run: str, after_step: int) -> Aspect:
    """Whether the steps that were done twice came out the same.

    Args:
        found: these steps.
        run: the run's id.
        after_step: the step after which the attempt goes on.
    """
    for each in found:
        if (step := each.numbers.first_step) is not None:
            values = "; ".join(map(_said, each.numbers.at_first))
            text = f"step {step:,} differs from the same step of attempt {each.earlier}: {values}"
            return Aspect("numbers", "changed", text, step)
    proof = [each for each in found if each.is_proof]
    if not proof:
        begun = ", ".join(map(str, sorted({each.earlier for each in found})))
        text = f"attempt {begun} began there too, and may have lost the same" if found else "no step was done twice"
        first = max(after_step, 1)
        remedy = f"`treering reproduce {run} --steps {first}:{first + 1}` trains over the border without a restart"
        return Aspect("numbers", "not seen", text, remedy=remedy)
    count, done = sum(each.numbers.result_steps for each in proof), sum(len(each.steps) for each in proof)
    if not count:
        text = "steps that were done twice report no number that the weights decide"
        return Aspect("numbers", "not seen", text, remedy="report the loss of every step to run.step")
    whom = ", ".join(map(str, sorted({each.earlier for each in proof})))
    text = f"{count:,} steps are equal to those of attempt {whom} to the last bit"
    if count < done:
        text = f"equal to attempt {whom} to the last bit at {count:,} of {done:,} steps; the others report no number "
        text += "that the weights decide"
    return Aspect("numbers", "proven", text)


def rate_aspect(found: Sequence[Repeated]) -> Aspect | None:
    """Whether the steps that were done twice had the same learning rate; None where that was not compared."""
    for each in found:
        if field := next((field for field in each.numbers.fields if field.name == _RATE), None):
            text = f"step {field.step:,} was done at {field.first!r}, then at {field.second!r}"
            return Aspect("learning rate", "changed", text, field.step)
    if any(_RATE in each.numbers.compared for each in found if each.is_proof):
        return Aspect("learning rate", "proven", "steps that were done twice had the same rate")
    return None


def _said(field: FieldDifference) -> str:
    title = METRICS[field.name].title.lower() if field.name in METRICS else field.name
    return f"{title} {field.first!r}, then {field.second!r}"
