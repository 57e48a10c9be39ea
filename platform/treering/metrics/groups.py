"""Runs of one config with several seeds as groups, and a verdict in a sentence on each pair of groups.

A group is what the recipes of its runs share, seeds left out. The held-out losses of two groups are compared by Welch's
test over their seeds. A group of one seed has no noise to compare with, and the verdict says so.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import Any, Final

from treering.config.canonical import DIGEST_PREFIX, digest_json, short
from treering.config.resolved import Resolved
from treering.errors import EvidenceError
from treering.metrics.compare import compare_data, differences
from treering.metrics.effects import ALPHA, Effect, holm, welch
from treering.runlog.directory import RunDirectory

_SHOWN: Final = 4
"""Changes of a config that a sentence names."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out losses of one step, nats a token.

    Attributes:
        loss: weighted as the blend.
        by_corpus: of each corpus.
    """

    loss: float
    by_corpus: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in their seeds alone.

    Attributes:
        name: a letter.
        runs: the runs.
        losses: held-out loss of each run at the step of the comparison; empty where there is no common step.
    """

    name: str
    runs: tuple[RunDirectory, ...]
    losses: tuple[float, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each run's weights."""
        return tuple(run.resolved.recipe.seed for run in self.runs)

    @property
    def band(self) -> str:
        """Mean and standard deviation over the seeds, in words."""
        if not self.losses:
            return "no held-out loss"
        mean = f"{fmean(self.losses):.4f}"
        if len(self.losses) < 2:
            return f"{mean}, noise unknown with one seed"
        return f"{mean} ± {stdev(self.losses):.4f} ({min(self.losses):.4f} to {max(self.losses):.4f})"

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
        effect: loss of the second minus that of the first; None where there is no common step.
        adjusted: p-value after Holm's correction over all pairs of groups.
        data: whether both read the same data, in a sentence; empty where nobody looked.
    """

    first: Group
    second: Group
    change: str
    effect: Effect | None
    adjusted: float
    data: str

    @property
    def real(self) -> bool:
        """Whether the difference is more than the noise of seeds."""
        return self.adjusted <= ALPHA

    @property
    def sentence(self) -> str:
        """The verdict: change, effect, interval, noise; then whether the data were the same."""
        about = f"{self.second.name} against {self.first.name} ({self.change})"
        return f"{about}: {self._outcome}. {self.data}".strip()

    @property
    def _outcome(self) -> str:
        effect = self.effect
        if effect is None:
            return "not comparable, since no step has a held-out loss in all runs; `treering evaluate` measures it"
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
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """All groups of a comparison.

    Attributes:
        groups: in the order of their first run.
        step: the newest step at which every run has a held-out loss; None where there is none.
        measure: which loss is compared, in words.
        verdicts: of each pair of groups, those with the first group first. Only of these, data are compared.
    """

    groups: tuple[Group, ...]
    step: int | None
    measure: str
    verdicts: tuple[GroupVerdict, ...]

    @property
    def sentence(self) -> str:
        """Which group has the lowest loss, and against which others that is more than noise."""
        if self.step is None or len(self.groups) < 2:
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
        }


def compare_groups(runs: Sequence[RunDirectory]) -> GroupComparison:
    """Groups runs by their configs without seeds, and compares the groups.

    Args:
        runs: the runs; the group of the first one is what others are compared with.

    Raises:
        EvidenceError: a config or an evaluation does not hold.
    """
    members: dict[str, list[RunDirectory]] = {}
    for run in {run.path: run for run in runs}.values():
        members.setdefault(digest_json(_content(run.resolved)), []).append(run)
    step, losses, measure = _losses([run for group in members.values() for run in group])
    groups = tuple(
        Group(_name(number), tuple(group), tuple(losses[run.id] for run in group) if losses else ())
        for number, group in enumerate(members.values())
    )
    pairs = list(combinations(groups, 2))
    effects = [welch(a.losses, b.losses, len(pairs)) if losses else None for a, b in pairs]
    adjusted = holm([1.0 if effect is None else effect.p for effect in effects])
    verdicts = tuple(
        GroupVerdict(a, b, _change(a, b), effect, p, _data(a, b) if a is groups[0] else "")
        for (a, b), effect, p in zip(pairs, effects, adjusted, strict=True)
    )
    return GroupComparison(groups, step, measure, verdicts)


def _content(resolved: Resolved) -> dict[str, Any]:
    """What the runs of a group share: the recipe and the blend without their seeds."""
    recipe = resolved.recipe.model_dump(mode="json", exclude={"seed", "blend"})
    return {**recipe, "blend": resolved.blend.model_dump(mode="json", exclude={"seed", "tokenizer"})}


def _losses(runs: Sequence[RunDirectory]) -> tuple[int | None, dict[str, float], str]:
    """The newest common step, the loss of each run there, and which loss that is."""
    weights = {tuple(sorted((part.corpus, part.weight) for part in run.resolved.blend.components)) for run in runs}
    for read, name in ((_evaluated, "evaluation"), (_validated, "validation during training")):
        by_run = {run.id: read(run) for run in runs}
        common = set.intersection(*(set(found) for found in by_run.values()))
        if not common:
            continue
        step = max(common)
        at = {run: found[step] for run, found in by_run.items()}
        if len(weights) == 1:
            return step, {run: found.loss for run, found in at.items()}, f"held-out loss of the {name}"
        corpora = set.intersection(*(set(found.by_corpus) for found in at.values()))
        if corpora:
            mean = {run: fmean(found.by_corpus[each] for each in corpora) for run, found in at.items()}
            return step, mean, f"held-out loss of the {name}, mean of {_list(sorted(corpora))}: the blends differ"
    return None, {}, "no held-out loss at a common step"


def _evaluated(run: RunDirectory) -> dict[int, HeldOut]:
    return {
        each.step: HeldOut(each.validation_loss, {name: found["loss"] for name, found in each.perplexity.items()})
        for each in run.evaluations()
    }


def _validated(run: RunDirectory) -> dict[int, HeldOut]:
    return {
        ring.step: HeldOut(ring.validation["loss"], ring.validation["by_corpus"])
        for ring in run.path_rings()
        if ring.validation is not None
    }


def _change(first: Group, second: Group) -> str:
    found = differences([_content(group.runs[0].resolved) for group in (first, second)])
    words = [f"{each.path} {_value(each.values[0])} → {_value(each.values[1])}" for each in found]
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _value(value: Any) -> str:
    return short(value) if isinstance(value, str) and value.startswith(DIGEST_PREFIX) else str(value)


def _data(first: Group, second: Group) -> str:
    """Whether the runs of two groups read the same, in a sentence; runs of equal seeds are compared."""
    partners = {_seeds_of(run): run for run in second.runs}
    pairs = [(run, partners[_seeds_of(run)]) for run in first.runs if _seeds_of(run) in partners]
    steps = []
    for a, b in pairs or [(first.runs[0], second.runs[0])]:
        try:
            found = compare_data(a.path_rings(), b.path_rings())
        except EvidenceError as error:
            return f"Whether they read the same data is not known: {error}."
        if found.first is not None:
            kind = "other tokens in the same samples" if found.first.kind == "tokens" else "other samples"
            seeds = ", the seeds of their data orders differ" if _orders_differ(a, b) else ""
            return f"Their data differ from step {found.first.step} on ({kind}{seeds})."
        steps.append(found.equal_steps)
    if not min(steps):
        return "Whether they read the same data is not known: they have no common step."
    return f"Both read the same data ({min(steps)} common steps)."


def _seeds_of(run: RunDirectory) -> tuple[int, int]:
    return run.resolved.recipe.seed, run.resolved.blend.seed


def _orders_differ(a: RunDirectory, b: RunDirectory) -> bool:
    return a.resolved.blend.seed != b.resolved.blend.seed


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
