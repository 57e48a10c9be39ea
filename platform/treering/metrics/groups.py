"""Runs of one config with several seeds as groups, and a verdict in a sentence on each pair of groups.

A group is what the configs of its runs share, seeds left out. The held-out losses of two groups are compared by Welch's
test over their seeds, and so are task scores and the losses of single corpora. A group of one seed has no noise to
compare with, and the verdict says so.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from statistics import fmean
from typing import Any, Final

from treering.config.canonical import DIGEST_PREFIX, digest_json, short
from treering.metrics.compare import differences
from treering.metrics.contenders import AnyContender, Contender, HeldOut, contender_of
from treering.metrics.effects import ALPHA, Effect, holm, welch
from treering.metrics.group_scores import ScoreVerdict, band, judge_groups, left_out, tables
from treering.metrics.same_data import data_sentence
from treering.runlog.columns.fed import Fed, fed_of
from treering.runlog.find import AnyRun

_SHOWN: Final = 4
"""Changes of a config, or scores, that a sentence names."""

_FEEDS: Final = 8
"""Runs whose feed is kept while groups are compared: those of the first group, and one more."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in their seeds alone.

    Attributes:
        name: a letter.
        members: the runs.
        losses: held-out loss of each run at the step of the comparison; empty where there is no common step.
    """

    name: str
    members: tuple[AnyContender, ...]
    losses: tuple[float, ...]

    @property
    def runs(self) -> tuple[AnyRun, ...]:
        """The runs."""
        return tuple(each.run for each in self.members)

    @property
    def seeds(self) -> tuple[Any, ...]:
        """The first seed of each run's config; None where a config names none."""
        return tuple(next(iter(each.seeds.values()), None) for each in self.members)

    @property
    def band(self) -> str:
        """Mean and standard deviation over the seeds, in words."""
        if not self.losses:
            return "no held-out loss"
        if len(self.losses) < 2:
            return f"{band(self.losses)}, noise unknown with one seed"
        return f"{band(self.losses)} ({min(self.losses):.4f} to {max(self.losses):.4f})"

    def to_json(self) -> dict[str, Any]:
        """The group as JSON values."""
        runs = [run.id for run in self.runs]
        return {"name": self.name, "runs": runs, "seeds": list(self.seeds), "losses": list(self.losses)}


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """The verdict on two groups.

    Attributes:
        first: the group that the other one is compared with.
        second: the other group.
        change: what differs in the config, in words.
        effect: loss of the second minus that of the first; None where there is no common step with finite losses.
        adjusted: p-value after Holm's correction over all pairs of groups.
        data: whether both read the same data, in a sentence; empty where nobody looked.
        scores: verdicts on task scores and on the losses of single corpora; empty where the first is not the first
            group of the comparison.
    """

    first: Group
    second: Group
    change: str
    effect: Effect | None
    adjusted: float
    data: str
    scores: tuple[ScoreVerdict, ...] = ()

    @property
    def real(self) -> bool:
        """Whether the difference is more than the noise of seeds."""
        return self.adjusted <= ALPHA

    @property
    def sentence(self) -> str:
        """The verdict: change, effect, interval, noise; task scores; then whether the data were the same."""
        about = f"{self.second.name} against {self.first.name} ({self.change})"
        return " ".join(part for part in (f"{about}: {self._outcome}.", self._tasks, self.data) if part)

    @property
    def _tasks(self) -> str:
        known = [each for each in self.scores if each.measure.kind == "task" and each.known]
        found = [f"{each.measure.title} {each.difference}" for each in known if each.real]
        if not known:
            return ""
        if not found:
            return f"Of {len(known)} task scores none differs beyond the noise of seeds."
        return f"Of {len(known)} task scores beyond the noise of seeds: {_shortened(found)}."

    @property
    def _outcome(self) -> str:
        effect = self.effect
        if not self.first.losses:
            return "not comparable, since no step has a held-out loss in all runs; `treering evaluate` measures it"
        if effect is None:
            return "not comparable, since the held-out loss of a run is not finite"
        change = f"held-out loss {effect.value:+.4f} nat/token"
        sizes = len(self.first.losses), len(self.second.losses)
        if math.isnan(effect.low):
            seeds = f"{_seeds(sizes[0])} of {self.first.name} and {_seeds(sizes[1])} of {self.second.name}"
            return f"{change}; the noise is unknown with {seeds}, train more with `--set seed=N`"
        interval = f"95 % interval {effect.low:+.4f} to {effect.high:+.4f}, {sizes[0]} and {sizes[1]} seeds"
        if self.real:
            return f"{change} ({interval}), {'lower' if effect.value < 0 else 'higher'} beyond the noise of seeds"
        found = f"a difference of {effect.detectable:.4f} would be found four times of five"
        return f"{change} ({interval}), within the noise of seeds; {found}"

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        effect = self.effect
        return {
            "first": self.first.name,
            "second": self.second.name,
            "change": self.change,
            "effect": None if effect is None else effect.value,
            "low": None if effect is None else effect.low,
            "high": None if effect is None else effect.high,
            "detectable": None if effect is None else effect.detectable,
            "adjusted_p": self.adjusted,
            "beyond_noise": self.real,
            "data": self.data,
            "scores": [each.to_json() for each in self.scores],
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """All groups of a comparison.

    Attributes:
        groups: in the order of their first run.
        step: the newest step at which every run has a held-out loss; None where there is none.
        measure: which loss is compared, in words.
        verdicts: of each pair of groups, those with the first group first. Only of these, data and scores are compared.
        left_out: scores that not every run has at one step, of one task file, by one harness and one set of prompts.
    """

    groups: tuple[Group, ...]
    step: int | None
    measure: str
    verdicts: tuple[GroupVerdict, ...]
    left_out: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Which group has the lowest loss, and against which others that is more than noise."""
        losses = [loss for group in self.groups for loss in group.losses]
        if not losses or not all(map(math.isfinite, losses)) or len(self.groups) < 2:
            return ""
        best = min(self.groups, key=lambda group: fmean(group.losses))
        others: dict[str, list[str]] = {}
        change = ""
        for verdict in self.verdicts:
            if best not in (verdict.first, verdict.second):
                continue
            other = verdict.second if best is verdict.first else verdict.first
            if other is self.groups[0]:
                change = f" ({verdict.change})"
            unknown = verdict.effect is None or math.isnan(verdict.effect.low)
            noise = "beyond the noise of seeds" if verdict.real else "within the noise of seeds"
            others.setdefault("with unknown noise" if unknown else noise, []).append(other.name)
        against = ", ".join(f"{words} against {_list(names)}" for words, names in others.items())
        return f"{best.name}{change} has the lowest held-out loss at step {self.step}, {against}."

    @property
    def left_out_sentence(self) -> str:
        """Which scores are not compared, and why; empty where all are."""
        why = "not every run has them at one step, of one task file, by one harness and one set of prompts"
        return f"Not compared, since {why}: {', '.join(self.left_out)}." if self.left_out else ""

    @property
    def against_first(self) -> list[GroupVerdict]:
        """The verdicts on the pairs with the first group."""
        return [verdict for verdict in self.verdicts if verdict.first is self.groups[0]]

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "step": self.step,
            "measure": self.measure,
            "sentence": self.sentence,
            "groups": [group.to_json() for group in self.groups],
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "left_out": list(self.left_out),
        }


def compare_groups(
    runs: Sequence[AnyRun], read: Callable[[AnyRun], Fed] = fed_of, *, data: bool = True
) -> GroupComparison:
    """Groups runs by their configs without seeds, and compares the groups.

    Args:
        runs: the runs; the group of the first one is what others are compared with. Of folders of one run the first
            counts, since a copy has the same seed.
        read: reads what a run was fed.
        data: whether what the groups were fed is compared too.

    Raises:
        EvidenceError: a config or an evaluation does not hold.
    """
    members: dict[str, list[AnyContender]] = {}
    once: dict[str, AnyRun] = {}
    for run in runs:
        once.setdefault(run.id, run)
    for run in once.values():
        contender = contender_of(run)
        members.setdefault(digest_json(contender.content), []).append(contender)
    for group in members.values():
        group.sort(key=lambda each: [f"{seed!s:>20}" for seed in each.seeds.values()])
    every = {each.run.id: each for group in members.values() for each in group}
    step, held_out, losses, measure = common_losses(every)
    groups = tuple(
        Group(_name(number), tuple(group), tuple(losses[each.run.id] for each in group) if losses else ())
        for number, group in enumerate(members.values())
    )
    pairs = list(combinations(groups, 2))
    effects = [_effect(a.losses, b.losses, len(pairs)) for a, b in pairs]
    adjusted = holm([1.0 if effect is None else effect.p for effect in effects])
    measured = tables(every, held_out, step)
    scores = iter(judge_groups(measured, [[run.id for run in group.runs] for group in groups]))
    kept = lru_cache(maxsize=_FEEDS)(read)
    verdicts = tuple(
        GroupVerdict(
            a,
            b,
            _change(a, b),
            effect,
            p,
            _data(a, b, kept) if data and a is groups[0] else "",
            next(scores) if a is groups[0] else (),
        )
        for (a, b), effect, p in zip(pairs, effects, adjusted, strict=True)
    )
    return GroupComparison(groups, step, measure, verdicts, tuple(left_out(every, measured)))


def _effect(first: Sequence[float], second: Sequence[float], tests: int) -> Effect | None:
    return welch(first, second, tests) if first and all(map(math.isfinite, (*first, *second))) else None


def common_losses(
    runs: Mapping[str, AnyContender],
) -> tuple[int | None, dict[str, HeldOut], dict[str, float], str]:
    """The newest common step, what was measured of each run there, the losses to compare, and what these are.

    Args:
        runs: by any name, which the answers have too.

    Raises:
        EvidenceError: a config or an evaluation does not hold.
    """
    weights = {each.weights for each in runs.values()}
    for source, name in (("evaluated", "evaluation"), ("validated", "validation during training")):
        by_run: dict[str, Mapping[int, HeldOut]] = {run: getattr(each, source) for run, each in runs.items()}
        common = set.intersection(*(set(found) for found in by_run.values()))
        if not common:
            continue
        step = max(common)
        at = {run: found[step] for run, found in by_run.items()}
        whole = {run: found.loss for run, found in at.items()}
        if None in weights:
            return step, at, whole, "held-out loss as each trainer reports it, whose texts may differ"
        if len(weights) == 1:
            return step, at, whole, f"held-out loss of the {name}"
        corpora = set.intersection(*(set(found.by_corpus) for found in at.values()))
        if corpora:
            mean = {run: fmean(found.by_corpus[each] for each in corpora) for run, found in at.items()}
            return step, at, mean, f"held-out loss of the {name}, mean of {_list(sorted(corpora))}: the blends differ"
    return None, {}, {}, "no held-out loss at a common step"


def _change(first: Group, second: Group) -> str:
    kinds = {type(group.members[0]) for group in (first, second)}
    if len(kinds) > 1:
        return "another trainer"
    found = differences([group.members[0].content for group in (first, second)])
    if Contender not in kinds and any(each.path == "run" for each in found):
        return "a config was not reported; `treering.start(config=…)` reports it"
    return _shortened([f"{each.path} {_value(each.values[0])} → {_value(each.values[1])}" for each in found])


def _shortened(words: Sequence[str]) -> str:
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _value(value: Any) -> str:
    return short(value) if isinstance(value, str) and value.startswith(DIGEST_PREFIX) else str(value)


def _data(first: Group, second: Group, read: Callable[[AnyRun], Fed]) -> str:
    """Whether the runs of two groups read the same, in a sentence; runs of equal seeds are compared."""
    pairs = [(a.run, b.run) for a in first.members for b in second.members if a.seeds == b.seeds]
    steps = []
    for a, b in pairs or [(first.runs[0], second.runs[0])]:
        equal, sentence = data_sentence(a, b, read)
        if equal is None:
            return sentence
        steps.append((equal, sentence))
    return min(steps)[1]


def _seeds(number: int) -> str:
    return "one seed" if number == 1 else f"{number} seeds"


def _name(number: int) -> str:
    """`A`, `B`, …, `Z`, `AA`."""
    name = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def _list(words: Iterable[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last
