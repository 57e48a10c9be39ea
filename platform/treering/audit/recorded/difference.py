"""The first step at which two recorded runs were fed different samples."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from treering.audit.recorded.feed import Feeds, StepFeed, reporting_ranks
from treering.errors import UserError
from treering.runlog.recorded_directory import RecordedRunDirectory, RecordedSegment


@dataclass(frozen=True, slots=True)
class RecordedDifference:
    """Where two runs were fed the same samples, and where not.

    Attributes:
        run: id of the first run.
        other: id of the second run.
        compared_steps: steps that both runs have and that report samples.
        equal_steps: how many of them come before the first one with different samples.
        first_difference: the first of them with different samples, None where there is none.
        different_steps: how many of them have different samples.
        other_order: steps with the same samples in another order or on other ranks.
        ranks: whose samples the first run reports, in words.
        other_ranks: the same of the second run.
        config: settings that differ, by dotted name: value in the first run and in the second.
        text: all of it in words.
    """

    run: str
    other: str
    compared_steps: int
    equal_steps: int
    first_difference: int | None
    different_steps: int
    other_order: int
    ranks: str
    other_ranks: str
    config: dict[str, tuple[Any, Any]]
    text: str

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def compare_recorded(
    run: RecordedRunDirectory, other: RecordedRunDirectory, *, steps: range | None = None
) -> RecordedDifference:
    """Compares what the steps of two runs were fed, along the path of each.

    Args:
        run: one run.
        other: the other run.
        steps: the steps that count; None: all that both have.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
        UserError: no step of both runs reports its samples.
    """
    path, other_path = run.path_to_end(), other.path_to_end()
    fed, fed_other = _fed(path), _fed(other_path)
    common = sorted(step for step in fed.keys() & fed_other.keys() if steps is None or step in steps)
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
    ranks, other_ranks = reporting_ranks(path), reporting_ranks(other_path)
    text += f" The samples are those of {ranks}" + (
        " in both." if ranks == other_ranks else f", against {other_ranks}."
    )
    if " of " in f"{ranks}{other_ranks}":
        text += " The samples of missing ranks were not compared; `treering audit RUN` names these ranks."
    return RecordedDifference(
        run=run.id,
        other=other.id,
        compared_steps=len(common),
        equal_steps=len(common) if first is None else common.index(first),
        first_difference=first,
        different_steps=len(different),
        other_order=reordered,
        ranks=ranks,
        other_ranks=other_ranks,
        config=_differing(run.record.config, other.record.config),
        text=text,
    )


def _fed(path: Sequence[RecordedSegment]) -> dict[int, StepFeed]:
    """What the steps of a path were fed, where they report it."""
    feeds = chain.from_iterable(Feeds().along(path))
    return {feed.step: feed for feed in feeds if feed.samples}


def _differing(one: Any, other: Any, name: str = "") -> dict[str, tuple[Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        found = {}
        for key in sorted(one.keys() | other.keys()):
            found.update(_differing(one.get(key), other.get(key), f"{name}.{key}" if name else key))
        return found
    return {} if one == other else {name: (one, other)}
