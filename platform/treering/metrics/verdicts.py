"""Verdicts on two checkpoints: task by task, whether the second one answers better than the first beyond noise.

Results by item are compared in pairs. Where a record has none, or the items are not the same, two standard errors are
compared instead, which finds less; the verdict says so, and how to get a better one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from treering.metrics.compare import Score, headline_scores
from treering.metrics.effects import Effect, NoiseVerdict, holm, paired, unpaired
from treering.runlog.records import Evaluation

Items = Mapping[str, float]
"""Value by the id of the item."""

_EVALUATE_AGAIN: Final = "; score the checkpoints again with `treering evaluate`"


@dataclass(frozen=True, slots=True)
class TaskVerdict(NoiseVerdict):
    """The verdict on one score of two checkpoints.

    Attributes:
        first: the score of the first checkpoint.
        second: that of the second.
        effect: second minus first.
        adjusted: p-value after Holm's correction over all scores of the comparison.
        doubt: why the comparison is weaker than it could be, and the remedy; empty where it is not.
    """

    first: Score
    second: Score
    effect: Effect
    adjusted: float
    doubt: str = ""

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        score = self.first
        return {
            "task": score.task,
            "shots": score.shots,
            "metric": score.metric,
            "first": score.value,
            "second": self.second.value,
            "effect": asdict(self.effect),
            "adjusted_p": self.adjusted,
            "verdict": self.words,
            "doubt": self.doubt,
        }


def judge_evaluations(first: Evaluation, second: Evaluation) -> list[TaskVerdict]:
    """Compares the headline score of every task and number of shots that both evaluations have."""

    def items_of(evaluation: Evaluation) -> Callable[[Score], Items]:
        found = evaluation.items or {}
        return lambda score: found.get(score.task, {}).get(str(score.shots), {}).get(score.metric, {})

    other = {task for task in first.tasks.keys() & second.tasks.keys() if first.tasks[task] != second.tasks[task]}
    verdicts = judge_scores(
        headline_scores(first),
        headline_scores(second),
        items_of(first),
        items_of(second),
        other,
        remedy=_EVALUATE_AGAIN,
    )
    found = []
    for each in verdicts:
        doubts = [each.doubt] if each.doubt else []
        task, shots = each.first.task, each.first.shots
        prompts = {first.prompts_of(task, shots), second.prompts_of(task, shots)} - {None}
        if task not in other and len(prompts) > 1:
            doubts.insert(0, "The prompts differ: other examples fitted, or the definition has another version")
        if first.harness != second.harness:
            doubts.insert(0, f"The harness was {first.harness} and {second.harness}, expected one version")
        found.append(replace(each, doubt=". ".join(doubts)))
    return found


def judge_scores(
    first: Sequence[Score],
    second: Sequence[Score],
    first_items: Callable[[Score], Items] = lambda _: {},
    second_items: Callable[[Score], Items] = lambda _: {},
    other_items: frozenset[str] | set[str] = frozenset(),
    *,
    remedy: str = "",
) -> list[TaskVerdict]:
    """Compares the scores that both have.

    Args:
        first: of the first checkpoint.
        second: of the second one.
        first_items: the results by item behind a score of the first.
        second_items: the same of the second.
        other_items: tasks whose items are not the same.
        remedy: how to get results by item.
    """
    known = {(score.task, score.shots, score.metric): score for score in second}
    pairs = [(a, known[key]) for a in first if (key := (a.task, a.shots, a.metric)) in known]
    found: list[tuple[Effect, str]] = []
    for a, b in pairs:
        ours, theirs = first_items(a), second_items(b)
        if a.task in other_items:
            why = "The items of the task differ, so only standard errors are compared; evaluate both with one task file"
        elif not ours.keys() & theirs.keys():
            why = f"There are no results by item, so only standard errors are compared{remedy}"
        else:
            left_out = len(ours.keys() ^ theirs.keys())
            why = f"{left_out} items that only one of them answered are left out" if left_out else ""
            found.append((paired(ours, theirs, len(pairs)), why))
            continue
        found.append((unpaired(a.value, a.stderr, b.value, b.stderr, len(pairs)), why))
    adjusted = holm([effect.p for effect, _ in found])
    return [TaskVerdict(a, b, effect, p, why) for (a, b), (effect, why), p in zip(pairs, found, adjusted, strict=True)]
