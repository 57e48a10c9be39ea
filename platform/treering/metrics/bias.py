"""Bias of a checkpoint by group: adjectives after a group's prompts, adjectives and sentiment in texts about it.

Reads the record that `treering bias` writes, and computes every ratio from it. A group is compared with the mean of the
other groups of its axis; of two groups, one comparison holds for both. Holm's correction is over the words, or the
groups, of one table.

Source: the three measures of arXiv 2201.11990; the intervals are not in it, see `metrics.ratios`.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

from treering.metrics.bias_doubts import doubts_of
from treering.metrics.doubts import Doubt
from treering.metrics.effects import ALPHA, Effect, holm, welch
from treering.metrics.ratios import Floats, Ratio, least_p, ratio_of_counts, ratio_of_words, ratios_by_word
from treering.runlog.analyses import Bias, BiasAxisRecord

_WORD: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Judged:
    """A ratio among others that were computed together.

    Attributes:
        ratio: how many times as probable, or as frequent, something is with the group as with the others.
        adjusted: p-value after Holm's correction over the ratios of the table.
        flagged: whether the ratio is more than noise.
    """

    ratio: Ratio
    adjusted: float
    flagged: bool


@dataclass(frozen=True, slots=True)
class WordRatio(Judged):
    """The ratio of one adjective."""

    word: str


@dataclass(frozen=True, slots=True)
class Sentiment:
    """The mean valence of texts about a group, minus that of texts about the others.

    Attributes:
        mean: of the group.
        texts: of the group that hold a word of the lexicon.
        effect: the difference with its interval.
        adjusted: p-value after Holm's correction over the groups of the axis.
        flagged: whether the difference is more than noise.
    """

    mean: float
    texts: int
    effect: Effect
    adjusted: float
    flagged: bool


@dataclass(frozen=True, slots=True)
class GroupBias:
    """What distinguishes one group from the others of its axis.

    Attributes:
        group: the group.
        against: what it is compared with.
        adjectives: ratio of the probability of all adjectives of the list together; corrected over the groups.
        positive: ratio of positive over negative adjectives, corrected likewise; None without known ones.
        association: adjectives by the probability after the group's prompts, the largest ratio first.
        occurrence: adjectives by the number of texts about the group that hold them, the largest ratio first.
        sentiment: of the texts; None without a lexicon.
    """

    group: str
    against: str
    adjectives: Judged
    positive: Judged | None
    association: tuple[WordRatio, ...]
    occurrence: tuple[WordRatio, ...]
    sentiment: Sentiment | None


@dataclass(frozen=True, slots=True)
class AxisBias:
    """One axis: its groups, compared with each other."""

    name: str
    groups: tuple[GroupBias, ...]


@dataclass(frozen=True, slots=True)
class BiasReport:
    """The bias of a checkpoint, with its doubt.

    Attributes:
        record: what it was computed from.
        axes: in the order of the lists.
        doubts: what limits the answer.
    """

    record: Bias
    axes: tuple[AxisBias, ...]
    doubts: tuple[Doubt, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        record = self.record
        return {
            "run": record.run,
            "step": record.step,
            "checkpoint": record.checkpoint,
            "lists": record.lists.digest,
            "source": record.lists.source,
            "lexicon": None if record.lexicon is None else record.lexicon.model_dump(mode="json"),
            "settings": record.settings.model_dump(mode="json"),
            "axes": [asdict(axis) for axis in self.axes],
            "doubts": [asdict(doubt) for doubt in self.doubts],
        }


def assess(record: Bias) -> BiasReport:
    """Ratios and intervals of a measurement."""
    texts = {axis.name: _Texts(axis) for axis in record.axes}
    axes = tuple(AxisBias(axis.name, _groups(record, axis, texts[axis.name])) for axis in record.axes)
    seen = {name: each.seen(record.lists.adjectives) for name, each in texts.items()}
    return BiasReport(record, axes, doubts_of(record, seen))


def words_of(text: str, *, cut: bool = False) -> set[str]:
    """The words of a text in lower case; of a cut text without the last one, which may not be whole."""
    words = _WORD.findall(text.lower())
    return set(words[:-1] if cut and words and text[-1:].isalpha() else words)


class _Texts:
    """The texts about each group, as sets of words."""

    def __init__(self, axis: BiasAxisRecord) -> None:
        self.by_group: dict[str, list[set[str]]] = {}
        for prompts in axis.templates:
            for prompt in prompts:
                found = self.by_group.setdefault(prompt.group, [])
                found += [words_of(text, cut=cut) for text, cut in zip(prompt.samples, prompt.cut, strict=True)]
        self.counts = {group: Counter(chain.from_iterable(found)) for group, found in self.by_group.items()}

    def seen(self, adjectives: Sequence[str]) -> int:
        """How many adjectives occur in any text."""
        return sum(any(counts[word] for counts in self.counts.values()) for word in adjectives)


def _groups(record: Bias, axis: BiasAxisRecord, texts: _Texts) -> tuple[GroupBias, ...]:
    names = [prompt.group for prompt in axis.templates[0]]
    compared = names[:1] if len(names) == 2 else names
    # One row a template, one column a group, one layer an adjective.
    logs = np.array([[prompt.log_probabilities for prompt in prompts] for prompts in axis.templates])
    differences: dict[str, Floats] = {}
    for place, group in enumerate(compared):
        others = [number for number in range(len(names)) if number != place]
        differences[group] = logs[:, place] - logs[:, others].mean(axis=1)
    every = np.full(len(record.lists.adjectives), fill_value=True)
    adjectives = _judged({group: ratio_of_words(each, every) for group, each in differences.items()})
    positive = _positive(record, differences)
    sentiments = _sentiments(record, texts, compared)
    return tuple(
        GroupBias(
            group=group,
            against=names[1] if len(names) == 2 else "the other groups",
            adjectives=adjectives[group],
            positive=positive.get(group),
            association=_association(record, each),
            occurrence=_occurrence(record, texts, group),
            sentiment=sentiments.get(group),
        )
        for group, each in differences.items()
    )


def _positive(record: Bias, differences: dict[str, Floats]) -> dict[str, Judged]:
    valences = np.array([record.valences.get(word, 0.0) for word in record.lists.adjectives])
    if not ((valences > 0).any() and (valences < 0).any()):
        return {}
    return _judged({group: ratio_of_words(each, valences > 0, valences < 0) for group, each in differences.items()})


def _association(record: Bias, differences: Floats) -> tuple[WordRatio, ...]:
    words = record.lists.adjectives
    return _corrected(dict(zip(words, ratios_by_word(differences, len(words)), strict=True)))


def _occurrence(record: Bias, texts: _Texts, group: str) -> tuple[WordRatio, ...]:
    """Adjectives that occur often enough for any division of their texts to be more than noise."""
    mine, others = texts.counts[group], sum((texts.counts[name] for name in texts.counts if name != group), Counter())
    here = len(texts.by_group[group])
    there = sum(len(found) for name, found in texts.by_group.items() if name != group)
    if not here or not there:
        return ()
    judged = [word for word in record.lists.adjectives if least_p(here, mine[word] + others[word], there) <= ALPHA]
    return _corrected({word: ratio_of_counts(mine[word], here, others[word], there, len(judged)) for word in judged})


def _corrected(ratios: dict[str, Ratio]) -> tuple[WordRatio, ...]:
    judged = _judged(ratios)
    found = [WordRatio(each.ratio, each.adjusted, each.flagged, word) for word, each in judged.items()]
    return tuple(sorted(found, key=lambda each: -each.ratio.value))


def _judged(ratios: dict[str, Ratio]) -> dict[str, Judged]:
    adjusted = holm([ratio.p for ratio in ratios.values()])
    return {name: Judged(ratio, p, p <= ALPHA) for (name, ratio), p in zip(ratios.items(), adjusted, strict=True)}


def _sentiments(record: Bias, texts: _Texts, compared: Sequence[str]) -> dict[str, Sentiment]:
    if record.lexicon is None:
        return {}
    valences = {
        group: [value for words in found if not math.isnan(value := _valence(record, words))]
        for group, found in texts.by_group.items()
    }
    effects = {}
    for group in compared:
        others = [value for name, found in valences.items() if name != group for value in found]
        if valences[group] and others:
            effects[group] = welch(others, valences[group], len(compared))
    adjusted = holm([effect.p for effect in effects.values()])
    return {
        group: Sentiment(float(np.mean(valences[group])), len(valences[group]), effect, p, p <= ALPHA)
        for (group, effect), p in zip(effects.items(), adjusted, strict=True)
    }


def _valence(record: Bias, words: set[str]) -> float:
    """Mean valence of the words of a text that the lexicon knows; NaN where it knows none."""
    known = [record.valences[word] for word in sorted(words) if word in record.valences]
    return math.fsum(known) / len(known) if known else math.nan
