"""What was set of a run: every value of its config by dotted name, and those that tell the shown runs apart."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from treering.metrics.compare import ABSENT, differences, flatten
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory

_SHOWN: Final = 4
_UNSAID: Final = ("digest", "num_tokens", "num_documents", "num_samples")
"""Last parts of names that follow from other values, and say nothing to people."""


def settings_of(run: AnyRun) -> dict[str, Any]:
    """Every value of a run's config by dotted name, the recipe's first.

    Raises:
        EvidenceError: the config does not hold.
    """
    if isinstance(run, RecordedRunDirectory):
        return dict(flatten(run.record.config)) if run.record.config else {}
    values = run.resolved.model_dump(mode="json")
    return dict(flatten({**values["recipe"], "blend": values["blend"], **values["attempt"]}))


def set_apart(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was set of each run, in short: `num_layers=24 seed=2`, of the values that differ among the runs.

    Args:
        settings: of each run, see `settings_of`; empty where its config cannot be read.
    """
    known = [each for each in settings if each]
    names = [
        each.path
        for each in differences(known)
        if each.path.rpartition(".")[2] not in _UNSAID and not all(value == ABSENT for value in each.values[1:])
    ]
    short = _short(names)
    return [_said(each, names, short) for each in settings]


def _short(names: Sequence[str]) -> dict[str, str]:
    """The shortest end of each name that no other name has; the whole name where another name ends with it."""
    found = {}
    for name in names:
        parts = name.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        alone = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in names) == 1)
        found[name] = next(alone, name)
    return found


def _said(settings: Mapping[str, Any], names: Sequence[str], short: Mapping[str, str]) -> str:
    own = [name for name in names if name in settings]
    said = " ".join(f"{short[name]}={_value(settings[name])}" for name in own[:_SHOWN])
    return f"{said} and {len(own) - _SHOWN} more" if len(own) > _SHOWN else said


def _value(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return str(value)
