"""An alarm: one thing that a rule of health found in the loss or the gradient norm of a run.

The rules are in `treering.metrics.spikes` (`non_finite`, `spike`) and in `treering.metrics.health` (all others).
"""

from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

LOSS: Final = "train/loss"
HELD_OUT_LOSS: Final = "validation/loss"
GRAD_NORM: Final = "train/grad_norm"

MAD_TO_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

NON_FINITE: Final = "non_finite"
SPIKE: Final = "spike"
EARLY_BLOWUP: Final = "early_blowup"
TOO_GOOD: Final = "too_good"
FLAT: Final = "flat"
DIVERGENCE: Final = "divergence"

RULES: Final = MappingProxyType(
    {
        NON_FINITE: "The value is NaN or infinite.",
        SPIKE: "The value is far above the recent values. One alarm for each such step.",
        EARLY_BLOWUP: "The loss multiplies within the first steps, before the rule `spike` has a background.",
        TOO_GOOD: "The loss is zero, or it falls to less than half within a few steps and stays there.",
        FLAT: "The value repeats exactly, or the loss does not leave the level of an untrained model.",
        DIVERGENCE: "The level of the loss has risen clearly above the lowest that it had, or above a uniform guess.",
    }
)
"""Every rule by its name, in the order in which they are listed, with what it means."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """What a rule found at one step.

    Attributes:
        step: the step at which the rule fires.
        metric: key of the metric catalog, `train/loss` or `train/grad_norm`.
        value: the value at that step (`divergence` and `flat`: the level, a median); may be NaN or infinite.
        z: robust z-score of the rules `spike` and `non_finite` (infinite), None for the others.
        background: what the value is compared with, in the metric's own unit; NaN while there is none.
        num_background: how many points the comparison uses.
        rule: name of the rule, a key of `RULES`.
        since: the step from which on the alarm speaks: for `divergence` the step of the lowest level (the
            step itself where that is the uniform guess), for `flat` and
            `too_good` the first step of the stretch, else the step itself.
    """

    step: int
    metric: str
    value: float
    z: float | None
    background: float
    num_background: int
    rule: str
    since: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values (write it with canonical JSON: z may be infinite)."""
        return asdict(self)
