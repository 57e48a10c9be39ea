"""The first step at which the numbers of two runs differ: bit by bit, along the path of each run.

Reads the columns of the rings, so a million steps take about a second. What a step took in time says nothing about its
result: times and speeds are not compared. Steps that a killed attempt did and a later one repeated are off the path.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from treering.runlog.columns.history import History
from treering.runlog.columns.path import PathColumns
from treering.runlog.columns.rows import Floats, Integers
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.metric_catalog import METRICS, described

LOSS: Final = "train/loss"

_CLOCKS: Final = ("time/", "speed/", "device/", "host/", "process/")
_CLOCKS_OF_CATALOG: Final = ("rank/", "run/")
_CLOCK_WORDS: Final = re.compile(
    r"(^|[^a-z])(time|seconds?|secs?|ms|runtime|duration|elapsed|eta|speed|throughput|t?flops?|mfu|memory|mem|power"
    r"|temperature|util|utili[sz]ation|cpu|gpu)([^a-z]|$)|per_s|/s"
)
"""Names of another trainer's metrics that are of the machine, not of the training."""

_RESULTS: Final = ("train/loss", "train/grad_norm")
_RESULT_WORDS: Final = frozenset(
    {"losses", "nll", "ppl", "perplexity", "bpb", "bpc", "xent", "entropy", "kl", "logps", "logits", "acc", "accuracy"}
    | {"norms", "reward", "rewards", "score", "scores", "bleu", "rouge", "auc", "mse", "rmse", "mae", "wer", "cer"}
)
_SETTING_WORDS: Final = frozenset(
    {"scale", "scaler", "scaling", "clip", "clipping", "max", "min", "coef", "coefficient", "weight", "weighting"}
    | {"eps", "epsilon", "target", "threshold", "steps", "tokens", "samples", "lr"}
)
"""Words of settings and counts, which are equal whatever the weights are: `loss_scale`, `max_grad_norm`."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One number that is not the same in two runs.

    Attributes:
        name: key of the metric catalog; another trainer's name where the catalog has none.
        step: the first step at which it differs.
        first: its value there in the first run.
        second: the same in the second run.
        relative: the difference over the larger magnitude; infinite where only one of the values is finite.
        steps: at how many steps it differs.
    """

    name: str
    step: int
    first: float
    second: float
    relative: float
    steps: int


@dataclass(frozen=True, slots=True)
class NumbersComparison:
    """The numbers of two runs, step by step.

    Attributes:
        compared_steps: steps at which both runs have a number that was compared.
        last_step: the last of them; None where there is none.
        result_steps: how many of them have a number that the weights surely decide, such as the loss.
        first_step: the first step with different numbers; None where all are equal to the last bit.
        equal_steps: compared steps before that one.
        at_first: the fields that differ at that step.
        fields: each field that differs anywhere.
        compared: names of the fields that were compared.
        left_out: names of metrics that both runs have and that were not compared: they are of the machine.
        not_decisive: fields outside the metric catalog that differ; they decide nothing where both runs have a loss.
        one_sided: by field, at how many steps only one of the runs has it, up to the end of the shorter run.
    """

    compared_steps: int
    last_step: int | None
    result_steps: int
    first_step: int | None
    equal_steps: int
    at_first: tuple[FieldDifference, ...]
    fields: tuple[FieldDifference, ...]
    compared: tuple[str, ...]
    left_out: tuple[str, ...]
    not_decisive: tuple[FieldDifference, ...]
    one_sided: Mapping[str, int]


def path_columns(run: AnyRun) -> PathColumns:
    """The columns along the path of a run of any trainer.

    Raises:
        EvidenceError: a ring or a header was changed, removed or put in.
    """
    if isinstance(run, RunDirectory):
        return PathColumns.of_run(run.path_to())
    return PathColumns.of_recorded(run.path_to_end())


def compare_numbers(first: PathColumns, second: PathColumns, steps: range | None = None) -> NumbersComparison:
    """Compares all numbers that both runs have.

    Args:
        first: the columns of one run's path.
        second: those of the other run.
        steps: the steps that count; None: all that both have.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    names = [_names(path) for path in (first, second)]
    shared = [key for key in names[0] if key in names[1]]
    candidates = [key for key in shared if not _is_of_the_machine(key)]
    series = [
        path.histories([own[key] for key in candidates]) for path, own in zip((first, second), names, strict=True)
    ]
    compared: list[str] = []
    found: dict[str, FieldDifference] = {}
    one_sided: dict[str, int] = {}
    seen, results = np.zeros(0, np.int64), np.zeros(0, np.int64)
    end = min(path.last_step for path in (first, second))
    for key in candidates:
        left, right = (_within(each[own[key]], steps) for each, own in zip(series, names, strict=True))
        common, at_left, at_right = np.intersect1d(left.steps, right.steps, assume_unique=True, return_indices=True)
        if alone := sum(int(np.count_nonzero(each.steps <= end)) for each in (left, right)) - 2 * len(common):
            one_sided[key] = alone
        if not len(common):
            continue
        compared.append(key)
        seen = _union(seen, common)
        results = _union(results, common) if _is_result(key) else results
        difference = _difference(key, common, left.values[at_left], right.values[at_right])
        if difference is not None:
            found[key] = difference
    for path, own, others in zip((first, second), names, reversed(names), strict=True):
        keys = [key for key in own if key not in others and not _is_of_the_machine(key)]
        alone_in = path.histories([own[key] for key in keys])
        for key in keys:
            if alone := int(np.count_nonzero(_within(alone_in[own[key]], steps).steps <= end)):
                one_sided[key] = alone
    decisive = {key for key in compared if key in METRICS or key.startswith("validation/")}
    if LOSS not in decisive:
        decisive = set(compared)
    fields = sorted((each for key, each in found.items() if key in decisive), key=lambda each: each.step)
    start = fields[0].step if fields else None
    return NumbersComparison(
        compared_steps=len(seen),
        last_step=int(seen[-1]) if len(seen) else None,
        result_steps=len(results),
        first_step=start,
        equal_steps=len(seen) if start is None else int(np.searchsorted(seen, start)),
        at_first=tuple(each for each in fields if each.step == start),
        fields=tuple(fields),
        compared=tuple(compared),
        left_out=tuple(key for key in shared if _is_of_the_machine(key)),
        not_decisive=tuple(each for key, each in found.items() if key not in decisive),
        one_sided=one_sided,
    )


def common_losses(
    first: PathColumns, second: PathColumns, steps: range | None = None
) -> tuple[Integers, Floats, Floats]:
    """The steps at which both runs have a loss, and the loss of each; arguments and errors as `compare_numbers`."""
    found = []
    for path in (first, second):
        name = _names(path).get(LOSS, LOSS)
        found.append(_within(path.history(name), steps))
    left, right = found
    common, at_left, at_right = np.intersect1d(left.steps, right.steps, assume_unique=True, return_indices=True)
    return common, left.values[at_left], right.values[at_right]


def _names(path: PathColumns) -> dict[str, str]:
    """The metrics of a path: key to the name that the rings have."""
    reported: Iterable[str] = dict.fromkeys(name for columns, _ in path.stretches for name in columns.head().metrics)
    return {metric.key: name for name, metric in described(reported).items()}


def _is_of_the_machine(key: str) -> bool:
    if key in METRICS:
        return key.startswith(_CLOCKS + _CLOCKS_OF_CATALOG)
    return key.startswith(_CLOCKS) or _CLOCK_WORDS.search(key.lower()) is not None


def _is_result(key: str) -> bool:
    """Whether the weights surely decide a number; of a name that nobody knows, equal values prove nothing."""
    if key in METRICS or key.startswith("validation/"):
        return key in _RESULTS or key.startswith("validation/")
    words = {each.lower() for each in re.findall("[A-Z]?[a-z]+|[A-Z]+", key)}
    named = any(each in _RESULT_WORDS or each.endswith(("loss", "norm")) for each in words)
    return named and _SETTING_WORDS.isdisjoint(words)


def _union(one: Integers, other: Integers) -> Integers:
    return one if np.array_equal(one, other) else np.union1d(one, other)


def _within(history: History, steps: range | None) -> History:
    if steps is None:
        return history
    start, end = np.searchsorted(history.steps, [steps.start, steps.stop])
    return History(history.steps[start:end], history.values[start:end])


def _difference(name: str, steps: Integers, first: Floats, second: Floats) -> FieldDifference | None:
    """Where a field differs; two NaN are equal, and so are two infinities of one sign."""
    same = (first.view(np.int64) == second.view(np.int64)) | (np.isnan(first) & np.isnan(second))
    at = np.flatnonzero(~same)
    if not len(at):
        return None
    place = at[0]
    relative = relative_differences(first[place : place + 1], second[place : place + 1])
    return FieldDifference(
        name, int(steps[place]), float(first[place]), float(second[place]), float(relative[0]), len(at)
    )


def relative_differences(first: Floats, second: Floats) -> Floats:
    """|a - b| / max(|a|, |b|) of two series: 0 where they are equal, infinite where only one value is finite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.abs(first - second) / np.maximum(np.abs(first), np.abs(second))
    equal = (first == second) | (np.isnan(first) & np.isnan(second))
    return np.where(equal, 0.0, np.where(np.isfinite(first) & np.isfinite(second), found, np.inf))
