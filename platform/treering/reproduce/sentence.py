"""The difference of two runs in a few sentences: where it begins, how large it is, and what the records say differs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from treering.metrics.compare import Difference
from treering.reproduce.listed import listed
from treering.reproduce.numbers import NumbersComparison
from treering.runlog.metric_catalog import METRICS

if TYPE_CHECKING:
    from treering.reproduce.code import CodeComparison
    from treering.reproduce.difference import RunDifference
    from treering.reproduce.weights import StepWeights

_SHOWN: Final = 3
"""Measures, settings, parts of the code or packages that a sentence names."""
_FIRST: Final = ("train/loss", "train/grad_norm", "optim/learning_rate", "train/applied")
_DECIDE: Final = ("recipe.", "blend.", "config")
"""Settings that decide numbers, which are named before the others."""


def difference_sentence(found: "RunDifference") -> str:
    """The answer in a few sentences."""
    data, numbers = found.data, found.numbers
    if found.state == "unknown" and found.missing is not None and numbers is not None and numbers.compared_steps:
        first, last = found.missing
        return (
            f"Whether the runs are the same is not known: one of them ends before steps {first:,} to {last:,}. Nothing "
            f"differs in the {numbers.compared_steps:,} steps before."
        )
    if found.state == "unknown" and numbers is not None and numbers.compared_steps:
        return (
            f"Whether the runs are the same is not known: in the {numbers.compared_steps:,} steps that were compared, "
            f"both report only numbers that are not known to depend on the weights "
            f"({listed(numbers.compared, _SHOWN)}){_but(numbers)}."
        )
    if found.state == "unknown" or data is None or numbers is None:
        return f"Whether the runs are the same is not known: {found.doubts[0].text}."
    if found.state == "identical":
        return _identical(found, numbers)
    if found.state == "weights" and (other := found.other_weights) is not None:
        begin = (
            f"Every recorded number of {numbers.compared_steps:,} steps is equal to the last bit{_but(numbers)}. "
            f"{_parted(other)}"
        )
    elif found.state == "data":
        place = f": {data.place.text.split(': ', 1)[-1]}" if data.place else ""
        after = "" if numbers.first_step is None else f" Their numbers differ from step {numbers.first_step:,}."
        begin = f"The data differ from step {data.first_step:,}{place}.{after}"
    else:
        begin = _numbers(found, numbers)
    seeds = found.seeds.text if found.seeds is not None and found.seeds.within is not None else ""
    return " ".join(each for each in (begin, _records(found), seeds) if each)


def _identical(found: "RunDifference", numbers: NumbersComparison) -> str:
    heldout = ", held-out losses too" if any(name.startswith("validation/") for name in numbers.compared) else ""
    steps, but = f"over {numbers.compared_steps:,} steps", _but(numbers)
    if found.longer is not None:
        but += f"; the {found.longer[0]} run goes on to step {found.longer[1]:,}"
    if found.same_data:
        same = f"the same data{_where(found, numbers)}"
        text = f"Identical to the last bit {steps}: {same}, and every recorded number{heldout}{but}."
    else:
        text = f"Every recorded number is equal to the last bit {steps}{heldout}{but}; what was read is not known."
    if found.weights is None:
        return text
    if not found.weights.steps:
        return f"{text} No weights were compared."
    last = found.weights.steps[-1]
    step, too = last.step, " and the optimizer's state" if last.optimizer is not None else ""
    text += f" The weights{too} after step {step:,} are equal."
    if numbers.last_step is not None and step < numbers.last_step:
        text += f" Those after the last step, {numbers.last_step:,}, were not compared."
    return text


def _parted(weights: "StepWeights") -> str:
    if weights.differences or weights.optimizer is None:
        return f"Of {weights.weights:,} weights after step {weights.step:,}, {len(weights.differences):,} differ."
    count, unequal = weights.optimizer
    return (
        f"The weights after step {weights.step:,} are equal; of {count:,} tensors of the optimizer's state, "
        f"{unequal:,} differ."
    )


def _but(numbers: NumbersComparison) -> str:
    """The numbers that are not among those that are equal."""
    names = {
        "only one run measured": sorted(numbers.one_sided),
        "differ and that the catalog does not know": [each.name for each in numbers.not_decisive],
    }
    but = " and ".join(f"metrics that {why} ({listed(found, _SHOWN)})" for why, found in names.items() if found)
    return f", but for {but}" if but else ""


def _where(found: "RunDifference", numbers: NumbersComparison) -> str:
    """In how many of the steps both runs recorded what they read."""
    steps = 0 if found.data is None else found.data.compared_steps
    return f" in the {steps:,} steps that record them" if steps < numbers.compared_steps else ""


def _numbers(found: "RunDifference", numbers: NumbersComparison) -> str:
    same = f"Same data{_where(found, numbers)}" if found.same_data else "What they read is not known"
    fields = sorted(numbers.at_first, key=lambda each: (each.name not in _FIRST, _rank(each.name)))
    values = [
        f"{_title(each.name)} {each.first!r} against {each.second!r} (relative {each.relative:.2g})" for each in fields
    ]
    before = f" after {numbers.equal_steps:,} equal ones" if numbers.equal_steps else " on"
    growth = f" {found.growth.text}" if found.growth is not None else ""
    return f"{same}, numbers differ from step {numbers.first_step:,}{before}: {listed(values, _SHOWN)}.{growth}"


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else name.startswith("validation/")


def _records(found: "RunDifference") -> str:
    """What the records say is not the same."""
    parts = {
        "config": _settings(found.config or ()),
        "code": _code(found.code),
        "layout": _settings(found.layout),
        "environment": listed(
            (
                f"{each.name} {each.first or 'none'} → {each.second or 'none'}"
                for each in (found.environment.differences if found.environment is not None else ())
                if each.numeric
            ),
            _SHOWN,
        ),
    }
    named = [f"{name} ({text})" for name, text in parts.items() if text]
    text = f"The records differ in {', '.join(named)}." if named else "The records name no other difference."
    unseen = [
        name
        for name, known in (
            ("config", found.config is not None),
            ("code", found.code is not None and found.code.same is not None),
            ("environment", found.environment is not None),
        )
        if not known
    ]
    return f"{text} Not known: {', '.join(unseen)}." if unseen else text


def _code(code: "CodeComparison | None") -> str:
    if code is None or code.same is not False:
        return ""
    return listed((each.sentence for each in code.changes), _SHOWN) or "its digest"


def _settings(found: Sequence[Difference]) -> str:
    ordered = sorted(found, key=lambda each: not each.path.startswith(_DECIDE))
    deciding = [each for each in ordered if each.path.startswith(_DECIDE)] or ordered
    texts = (
        f"{each.path} {' → '.join(map(str, each.values))}"
        if max(map(len, map(str, each.values))) < _SHORT
        else each.path
        for each in deciding
    )
    return listed(texts, _SHOWN)


_SHORT: Final = 24
"""Characters of a value that a sentence shows, which a digest exceeds."""


def _title(key: str) -> str:
    return METRICS[key].title.lower() if key in METRICS else key
