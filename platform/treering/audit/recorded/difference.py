"""The first step at which two recorded runs were fed different samples."""

from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from treering.audit.recorded.feed import StepFeed, feeds_along
from treering.errors import UserError
from treering.runlog.recorded_directory import RecordedRunDirectory


@dataclass(frozen=True, slots=True)
class RecordedDifference:
    """Where two runs were fed the same samples, and where not.

    Attributes:
        run: id of the first run.
        other: id of the second run.
        compared_steps: steps that both runs have and that report samples.
        first_difference: the first of them with different samples, None where there is none.
        different_steps: how many of them have different samples.
        other_order: steps with the same samples in another order or on other ranks.
        config: settings that differ, by dotted name: value in the first run and in the second.
        text: all of it in words.
    """

    run: str
    other: str
    compared_steps: int
    first_difference: int | None
    different_steps: int
    other_order: int
    config: dict[str, tuple[Any, Any]]
    text: str

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def compare_recorded(run: RecordedRunDirectory, other: RecordedRunDirectory) -> RecordedDifference:
    """Compares what the steps of two runs were fed, along the path of each.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
        UserError: no step of both runs reports its samples.
    """
    fed, fed_other = _fed(run), _fed(other)
    common = sorted(fed.keys() & fed_other.keys())
    if not common:
        raise UserError(
            f"runs {run.id} and {other.id}: found no step whose samples both runs report, expected at least one; "
            "pass tokens= to run.step"
        )
    different = [step for step in common if not fed[step].same_samples(fed_other[step])]
    reordered = sum(fed[step].samples != fed_other[step].samples for step in common) - len(different)
    first = different[0] if different else None
    if first is None:
        text = f"Both runs were fed the same samples in all {len(common):,} steps that both report."
    else:
        text = f"Step {first:,} is the first that was fed different samples, of {len(common):,} that both runs report; "
        text += f"{len(different):,} differ."
    config = _differing(run.record.config, other.record.config)
    return RecordedDifference(run.id, other.id, len(common), first, len(different), reordered, config, text)


def _fed(run: RecordedRunDirectory) -> dict[int, StepFeed]:
    """What the steps on a run's path were fed, where they report it."""
    feeds = chain.from_iterable(feeds_along(run.path_to_end()))
    return {feed.step: feed for feed in feeds if feed.samples}


def _differing(one: Any, other: Any, name: str = "") -> dict[str, tuple[Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        found = {}
        for key in sorted(one.keys() | other.keys()):
            found.update(_differing(one.get(key), other.get(key), f"{name}.{key}" if name else key))
        return found
    return {} if one == other else {name: (one, other)}
