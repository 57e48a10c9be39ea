"""Metrics from what a training prints: the log lines of Megatron-LM, or lines that a regular expression names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from treering.errors import UserError

_ITERATION: Final = re.compile(r"\biteration\s+(\d+)/\s*\d+\s*\|(.*)")
_VALIDATION: Final = re.compile(r"\bvalidation loss at iteration (\d+)[^|]*\|(.*)")
_FIELD: Final = re.compile(r"\s*([^|:]+?)\s*:\s*([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))\s*")


@dataclass(frozen=True, slots=True)
class Printed:
    """What one line says.

    Attributes:
        step: the step.
        metrics: value by name.
        evaluated: whether these are scores of the model after the step, and not metrics of the step.
    """

    step: int
    metrics: Mapping[str, float]
    evaluated: bool = False


Reader = Callable[[str], Printed | None]
"""Reads a line; None where it says nothing."""


def read_megatron(line: str) -> Printed | None:
    """A log line of Megatron-LM: `iteration 10/ 100 | learning rate: 1.5E-04 | lm loss: 1.08E+01 | …`.

    `lm loss` is also given as `loss`; other names are those of the line, with `_` for blanks.
    """
    for pattern, evaluated in ((_ITERATION, False), (_VALIDATION, True)):
        match = pattern.search(line)
        if match is None:
            continue
        fields = (_FIELD.fullmatch(part) for part in match[2].split("|"))
        metrics = {re.sub(r"\W+", "_", field[1]).strip("_"): float(field[2]) for field in fields if field}
        if "lm_loss" in metrics:
            metrics["loss"] = metrics["lm_loss"]
        return Printed(int(match[1]), metrics, evaluated) if metrics else None
    return None


def reader_of(pattern: str) -> Reader:
    r"""The reader of lines that a regular expression matches; its group `step` is the step, others are metrics.

    Args:
        pattern: such as `step (?P<step>\d+) loss (?P<loss>\S+)`.

    Raises:
        UserError: not a regular expression, or without these groups.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--metrics: found {pattern!r}, which is not a regular expression ({error})") from None
    names = compiled.groupindex.keys() - {"step"}
    if "step" not in compiled.groupindex or not names:
        raise UserError(
            f"--metrics: found {pattern!r}, expected a group named step and one for each metric, such as "
            r"'step (?P<step>\d+) loss (?P<loss>\S+)'"
        )

    def read(line: str) -> Printed | None:
        match = compiled.search(line)
        if match is None or match["step"] is None:
            return None
        try:
            metrics = {name: float(match[name]) for name in names if match[name] is not None}
            return Printed(int(match["step"]), metrics)
        except ValueError:
            return None

    return read
