"""Whether a difference of losses is rounding noise or a real divergence: by its size and growth where it begins.

A loss is a mean over the tokens of a batch, each of which is rounded with the unit roundoff u of the training's
precision. Independent errors average out, so the mean moves by about u/sqrt(tokens), and at least by the last digit of
the number that is recorded. The rule, over the first `WINDOW` steps from the first different loss:

- no relative difference above that size: no larger than rounding noise;
- one above `FAR` times that size, or above that size while the last steps differ `GROWN` times as much as the first
  ones: a real divergence;
- else nothing is said.

Only the beginning counts: training is unstable, and a single changed bit ends, after long enough, in a model as
different as another seed gives. Within so few steps, rounding noise stays level, while the effect of a changed setting
adds up from step to step.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, sections 2.1 (unit roundoffs) and
2.8 (rounding errors as random variables: a sum's error grows with the square root of its terms). C. Summers and M.
Dinneen, Nondeterminism and Instability in Neural Network Optimization, ICML 2021, arXiv 2103.04514. Leaves out sums
within a token's own computation, which fp32 accumulators make small. `WINDOW`, `FAR` and `GROWN` were chosen by
`experiments/benchmarks/divergence.py`, of whose known causes none is judged wrongly.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from treering.metrics.compare import flatten
from treering.reproduce.numbers import FieldDifference, NumbersComparison, relative_differences
from treering.runlog.columns.rows import Floats, Integers

Kind = Literal["rounding", "real", "unknown"]

WINDOW: Final = 12
"""Steps from the first different loss that are looked at."""
FAR: Final = 100.0
"""How many times the size of rounding no rounding noise reaches within the window."""
GROWN: Final = 8.0
"""How many times larger the last third of the window is than the first where a difference adds up."""

_FEWEST: Final = 6
"""Steps without which growth is not judged."""

UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Half the spacing of numbers above 1, by precision. Source: IEEE 754-2019, table 3.5; bf16 has 8 significant bits."""

_LAST_BITS: Final = 2 * 2.0**-23
"""Two last bits of a loss that is recorded in fp32."""
_COMPUTED: Final = ("optim/learning_rate", "optim/global_batch_size", "data/consumed_tokens")
"""Numbers that follow from the config without any rounding that differs between machines."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How the losses of two runs part.

    Attributes:
        kind: `rounding`, `real`, or `unknown`.
        steps: the steps that were looked at.
        relative: the relative difference of the losses at each of them.
        rounding: the size of rounding noise that was assumed: smallest and largest, where precision or tokens are not
            known; None where the losses were not needed.
        text: the verdict in a sentence, with the reason and what helps.
    """

    kind: Kind
    steps: tuple[int, ...]
    relative: tuple[float, ...]
    rounding: tuple[float, float] | None
    text: str


def judge_growth(
    found: NumbersComparison, losses: tuple[Integers, Floats, Floats], precision: str | None, tokens: float | None
) -> Growth | None:
    """Judges the difference of two runs' numbers that read the same data.

    Args:
        found: what differs.
        losses: the common steps, and the loss of each run at them.
        precision: key of `UNIT_ROUNDOFF`; None where it is not known.
        tokens: of a step; None where it is not known.

    Returns:
        The verdict; None where no number differs.
    """
    if found.first_step is None:
        return None
    computed = [each for each in found.at_first if each.name in _COMPUTED]
    if computed:
        return _without_losses("real", f"{_names(computed)} follows from the config alone, without rounding")
    judged = judge_losses(*losses, precision, tokens)
    if judged is None:
        equal = "every loss is equal" if len(losses[0]) else "no loss was recorded"
        return _without_losses("unknown", f"{equal}, and only {_names(found.at_first)} differs; train further steps")
    return judged


def judge_losses(
    steps: Integers, first: Floats, second: Floats, precision: str | None, tokens: float | None
) -> Growth | None:
    """Judges the losses of two runs that read the same data.

    Args:
        steps: the steps that both have.
        first: the losses of one run at these steps.
        second: those of the other run.
        precision: key of `UNIT_ROUNDOFF`; None where it is not known.
        tokens: of a step; None where it is not known.

    Returns:
        The verdict; None where all losses are equal.
    """
    relative = relative_differences(first, second)
    at = np.flatnonzero(relative)
    if not len(at):
        return None
    window = slice(int(at[0]), int(at[0]) + WINDOW)
    seen, rest = relative[window], relative[window.stop :]
    digit = _last_digit(np.concatenate([first[window], second[window]]))
    low, high = (max(digit, each) for each in rounding_size(precision, tokens))
    kind, reason = _judged(seen, low, high)
    later = f" Later losses differ by up to {rest.max():.1e}." if rest.any() else ""
    return Growth(
        kind, tuple(steps[window].tolist()), tuple(seen.tolist()), (low, high), f"{_WORDS[kind]}: {reason}.{later}"
    )


_WORDS: Final = {
    "rounding": "No larger than rounding noise",
    "real": "A real divergence, not rounding noise",
    "unknown": "Rounding noise or a real divergence: not known",
}


def rounding_size(precision: str | None, tokens: float | None) -> tuple[float, float]:
    """The relative size of rounding noise in a loss, smallest and largest by what is not known."""
    units = list(UNIT_ROUNDOFF.values()) if precision is None else [UNIT_ROUNDOFF[precision]]
    low = 0.0 if tokens is None else min(units) / math.sqrt(tokens)
    high = max(units) if tokens is None else max(units) / math.sqrt(tokens)
    return max(_LAST_BITS, low), max(_LAST_BITS, high)


def _last_digit(losses: Floats) -> float:
    """The relative size of two last digits, where all losses were rounded to decimals, as some trainers log them."""
    finite = losses[np.isfinite(losses)]
    smallest = np.abs(finite).min(initial=math.inf)
    decimals = next((each for each in range(1, 7) if np.array_equal(np.round(finite, each), finite)), None)
    return 0.0 if decimals is None or not 0 < smallest < math.inf else 2 * 10.0**-decimals / float(smallest)


def _judged(seen: Floats, low: float, high: float) -> tuple[Kind, str]:
    largest = float(seen.max())
    about = f"over {len(seen)} steps the losses differ by up to {largest:.1e}"
    size = f"{low:.1e}" if low == high else f"between {low:.1e} and {high:.1e}"
    rounding = f"rounding gives {size} by the precision and the tokens of a step"
    if largest <= low:
        return "rounding", f"{about}, {rounding}; a cause with as small an effect is not excluded"
    if largest > FAR * high:
        return "real", f"{about}, {rounding}"
    third = max(1, len(seen) // 3)
    start, end = float(seen[:third].max()), float(seen[-third:].max())
    if len(seen) < _FEWEST:
        return "unknown", f"{about}, {rounding}; compare at least {_FEWEST} steps behind the first difference"
    if largest > high and end >= GROWN * start:
        return "real", f"{about}, {end / start:.0f} times as much at the end as at the beginning; {rounding}"
    helps = "train these steps again, once unchanged and once with each change alone: `treering reproduce`"
    return "unknown", f"{about}, {rounding}; {helps}"


def _without_losses(kind: Kind, reason: str) -> Growth:
    return Growth(kind, (), (), None, f"{_WORDS[kind]}: {reason}.")


def _names(fields: tuple[FieldDifference, ...] | list[FieldDifference]) -> str:
    return ", ".join(each.name for each in fields)


def precision_of(config: Mapping[str, Any]) -> str | None:
    """The precision that another trainer's config names, by the usual names; None where it names none."""
    found = {path.rpartition(".")[2].lower(): str(value).lower() for path, value in flatten(config)}
    for name in ("bf16", "fp16"):
        if found.get(name) == "true" or any(name in found.get(key, "") for key in ("precision", "dtype")):
            return name
    text = " ".join(found.get(key, "") for key in ("precision", "dtype", "mixed_precision"))
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp32": "fp32", "32-true": "fp32"}
    return next((kind for name, kind in names.items() if name in text), None)
