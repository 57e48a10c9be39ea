"""Task scores, and held-out losses by corpus, of groups of seeds: each group against the first one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from treering.metrics.contenders import AnyContender, HeldOut, Measure
from treering.metrics.effects import Effect, NoiseVerdict, holm, welch

Values = Mapping[str, float]
"""A value for each run, by its id."""


@dataclass(frozen=True, slots=True)
class ScoreVerdict(NoiseVerdict):
    """The verdict on one measure of two groups.

    Attributes:
        measure: what was measured.
        step: the newest step at which every run of the comparison has it.
        first: value of each run of the first group.
        second: the same of the other group.
        effect: mean of the second minus mean of the first.
        adjusted: p-value after Holm's correction over all measures and groups.
    """

    measure: Measure
    step: int
    first: tuple[float, ...]
    second: tuple[float, ...]
    effect: Effect
    adjusted: float

    @property
    def difference(self) -> str:
        """The effect with its interval."""
        effect = self.effect
        interval = "" if math.isnan(effect.low) else f" ({effect.low:+.4f} to {effect.high:+.4f})"
        return f"{effect.value:+.4f}{interval}"

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            **asdict(self.measure),
            "step": self.step,
            "first": list(self.first),
            "second": list(self.second),
            "effect": asdict(self.effect),
            "adjusted_p": self.adjusted,
            "verdict": self.words,
        }


def band(values: Sequence[float], digits: int = 4) -> str:
    """Mean and standard deviation over seeds; of one seed the value alone."""
    mean = f"{fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {stdev(values):.{digits}f}"


def tables(
    runs: Mapping[str, AnyContender], losses: Mapping[str, HeldOut], step: int | None
) -> dict[Measure, tuple[int, Values]]:
    """What was measured of every run: step and values, by measure.

    Args:
        runs: by id.
        losses: held-out losses of each run at the step of the comparison.
        step: that step.
    """
    found: dict[Measure, tuple[int, Values]] = {}
    if step is not None:
        for corpus in set.intersection(*(set(each.by_corpus) for each in losses.values())):
            measure = Measure("corpus", corpus, "loss")
            found[measure] = step, {run: each.by_corpus[corpus] for run, each in losses.items()}
    for measure in _measures(runs, every=True):
        steps = set.intersection(*({at for at, each in run.scores.items() if measure in each} for run in runs.values()))
        newest = max(steps, default=0)
        if steps and _alike([run.version(newest, measure) for run in runs.values()]):
            found[measure] = newest, {name: run.scores[newest][measure] for name, run in runs.items()}
    finite = {measure: each for measure, each in found.items() if all(map(math.isfinite, each[1].values()))}
    return dict(sorted(finite.items(), key=lambda each: (each[0].kind, each[0].name, each[0].shots or 0)))


def _alike(versions: Sequence[tuple[str | None, ...] | None]) -> bool:
    """Whether scores were computed in one way, as far as records say it."""
    parts = zip(*(each for each in versions if each is not None), strict=True)
    return all(len(set(part) - {None}) <= 1 for part in parts)


def left_out(runs: Mapping[str, AnyContender], compared: Mapping[Measure, Any]) -> list[str]:
    """The scores that not every run has at one step, computed in one way, in words."""
    return [measure.title for measure in _measures(runs, every=False) if measure not in compared]


def _measures(runs: Mapping[str, AnyContender], *, every: bool) -> list[Measure]:
    """The scores that all runs have at some step, or those that one of them has."""
    names = [dict.fromkeys(measure for each in run.scores.values() for measure in each) for run in runs.values()]
    union = dict.fromkeys(measure for each in names for measure in each)
    return [measure for measure in union if not every or all(measure in each for each in names)]


def judge_groups(
    found: Mapping[Measure, tuple[int, Values]], groups: Sequence[Sequence[str]]
) -> list[tuple[ScoreVerdict, ...]]:
    """Compares each measure of each group with that of the first group by Welch's test.

    Args:
        found: of `tables`.
        groups: the ids of the runs of each group, first the one that others are compared with.

    Returns:
        The verdicts of each group but the first.
    """
    tests = len(found) * (len(groups) - 1)
    rows: list[list[tuple[Measure, int, tuple[float, ...], tuple[float, ...], Effect]]] = []
    for group in groups[1:]:
        rows.append([])
        for measure, (step, values) in found.items():
            first, second = (tuple(values[run] for run in each) for each in (groups[0], group))
            rows[-1].append((measure, step, first, second, welch(first, second, tests)))
    adjusted = iter(holm([row[-1].p for each in rows for row in each]))
    return [tuple(ScoreVerdict(*row, next(adjusted)) for row in each) for each in rows]
