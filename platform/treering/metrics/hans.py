"""HANS by heuristic, shots, order of examples and label balance: does the model infer, or follow a heuristic?

HANS (arXiv 1902.01007) asks whether a premise entails a hypothesis that is made of its words. Half of the answers are
no. A model that follows the heuristic says yes to both, so accuracy alone says little: the share of yes is counted too,
by the answer that is right, and by the examples that stood in the prompt, as MT-NLG does (arXiv 2201.11990).

Reads results by item of an evaluation whose records name `heuristic`, `label` and the labels of the examples.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from treering.metrics.doubts import Doubt
from treering.metrics.effects import ALPHA, holm
from treering.metrics.ratios import Ratio, ratio_of_counts, wilson
from treering.runlog.records import EXAMPLES, Evaluation

TASK: Final = "hans"
HEURISTICS: Final = ("lexical_overlap", "subsequence", "constituent")
ENTAILMENT: Final = "0"
"""The label of the answer yes."""

_ANSWERS: Final = {ENTAILMENT: "yes is right", "1": "no is right"}
_ACCURACY: Final = "acc"
_FEW_ITEMS: Final = 100


@dataclass(frozen=True, slots=True)
class Item:
    """One answered item.

    Attributes:
        shots: examples that were asked for.
        heuristic: one of `HEURISTICS`.
        label: the right answer.
        right: whether the model gave it.
        examples: labels of the examples in the prompt, in their order; the last one is next to the question.
    """

    shots: int
    heuristic: str
    label: str
    right: bool
    examples: tuple[str, ...]

    @property
    def says_yes(self) -> bool:
        """Whether the model said that the premise entails the hypothesis."""
        return self.right == (self.label == ENTAILMENT)


@dataclass(frozen=True, slots=True)
class Share:
    """Accuracy of a part of the items, and how often the model said yes.

    Attributes:
        shots: examples that were asked for.
        by: what the items are divided by.
        part: which of them.
        items: how many.
        accuracy: share of right answers.
        low: lower end of its 95 % interval.
        high: its upper end.
        yes: share of yes; half of HANS's answers are yes.
    """

    shots: int
    by: str
    part: str
    items: int
    accuracy: float
    low: float
    high: float
    yes: float


@dataclass(frozen=True, slots=True)
class Influence:
    """How the examples of the prompt move the answer: yes with some examples, over yes with the others.

    Attributes:
        shots: examples that were asked for.
        of: which examples are compared.
        ratio: of the shares of yes.
        adjusted: p-value after Holm's correction over all influences.
        flagged: whether it is more than noise.
    """

    shots: int
    of: str
    ratio: Ratio
    adjusted: float
    flagged: bool


@dataclass(frozen=True, slots=True)
class Hans:
    """The breakdown, with its doubt."""

    shares: tuple[Share, ...]
    influences: tuple[Influence, ...]
    doubts: tuple[Doubt, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return asdict(self)


def hans_of(evaluation: Evaluation) -> Hans | None:
    """The breakdown of an evaluation; None where it has no answers to HANS."""
    items = [
        Item(
            shots=int(shots),
            heuristic=fields["heuristic"][name],
            label=fields["label"][name],
            right=right == 1,
            examples=tuple(fields.get(EXAMPLES, {}).get(name, "").split()),
        )
        for shots, fields in evaluation.fields.get(TASK, {}).items()
        for name, right in (evaluation.items or {}).get(TASK, {}).get(shots, {}).get(_ACCURACY, {}).items()
    ]
    return break_down(items) if items else None


def break_down(items: Sequence[Item]) -> Hans:
    """The breakdown of answered items."""
    by_shots: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        by_shots[item.shots].append(item)
    shares = tuple(share for shots in sorted(by_shots) for share in _shares(shots, by_shots[shots]))
    compared = [each for shots in sorted(by_shots) for each in _influences(shots, by_shots[shots])]
    adjusted = holm([ratio.p for _, _, ratio in compared])
    influences = tuple(
        Influence(shots, of, ratio, p, p <= ALPHA) for (shots, of, ratio), p in zip(compared, adjusted, strict=True)
    )
    return Hans(shares, influences, tuple(_doubts(by_shots, shares)))


def _shares(shots: int, items: Sequence[Item]) -> Iterable[Share]:
    divisions: tuple[tuple[str, Callable[[Item], str | None]], ...] = (
        ("all", lambda _: "all"),
        ("heuristic", lambda item: item.heuristic),
        ("heuristic and answer", lambda item: f"{item.heuristic}, {_ANSWERS.get(item.label, item.label)}"),
        ("last example", _last),
        ("examples that are yes", _balance),
    )
    for by, part_of in divisions:
        parts: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            part = part_of(item)
            if part is not None:
                parts[part].append(item)
        for part, found in sorted(parts.items()):
            right = sum(item.right for item in found)
            low, high = wilson(right, len(found))
            yes = sum(item.says_yes for item in found) / len(found)
            yield Share(shots, by, part, len(found), right / len(found), low, high, yes)


def _last(item: Item) -> str | None:
    """The answer of the example next to the question; None without examples."""
    return None if not item.examples else "yes" if item.examples[-1] == ENTAILMENT else "no"


def _balance(item: Item) -> str | None:
    """How many of the examples are yes; None without examples."""
    if not item.examples:
        return None
    share = item.examples.count(ENTAILMENT) / len(item.examples)
    return "more than half" if share > 0.5 else "half" if share == 0.5 else "less than half"


def _influences(shots: int, items: Sequence[Item]) -> Iterable[tuple[int, str, Ratio]]:
    for of, part_of, first, second in (
        ("last example yes over no", _last, "yes", "no"),
        ("examples more than half yes over less", _balance, "more than half", "less than half"),
    ):
        one, other = ([item for item in items if part_of(item) == part] for part in (first, second))
        if one and other:
            yes = [sum(item.says_yes for item in each) for each in (one, other)]
            yield shots, of, ratio_of_counts(yes[0], len(one), yes[1], len(other), 1)


def _doubts(by_shots: dict[int, list[Item]], shares: Sequence[Share]) -> Iterable[Doubt]:
    seen = {item.heuristic for items in by_shots.values() for item in items}
    if absent := [name for name in HEURISTICS if name not in seen]:
        text = f"no item of {', '.join(absent)}: the published file is sorted by heuristic"
        yield Doubt("missing", text, "score all items (max_items of the task), or a file that is shuffled")
    if few := [f"{share.part}, {share.shots}-shot" for share in shares if share.items < _FEW_ITEMS]:
        text = f"{len(few)} parts have fewer than {_FEW_ITEMS} items, such as {few[0]}: their intervals are wide"
        yield Doubt("imprecise", text, "score more items")
    for shots, items in sorted(by_shots.items()):
        mean = math.fsum(len(item.examples) for item in items) / len(items)
        if mean < shots:
            text = f"{shots}-shot: {mean:.2f} examples a prompt on average, or their labels are not on record"
            yield Doubt("limited", text, "train with a longer sequence; `treering evaluate` records the labels")
    if any(by_shots):
        text = "each item was asked with one order of examples: effects of order and balance are between items"
        yield Doubt("limited", text, "score the task again with another seed of the examples")
