"""Decides which losses and gradients that are not finite end a run.

In fp32 and bf16 the first one ends the run. In fp16 overflows are normal: the loss is multiplied by a scale that is
found by trial; after an overflow DeepSpeed skips the step and lowers the scale. A skipped step has read its samples.

DeepSpeed's rule with Megatron-LM's values begins at 2^32, halves the scale at the second overflow and each one after,
and doubles it after 1,000 steps in a row without one. Where a processor lacks fp16 instructions, torch computes the
same numbers slowly, which the tests use.
"""

import math

from treering.config.model import LossScaleConfig
from treering_trainer.core.engine import StepResult

LOSSES_IN_A_ROW = 10
"""So many losses in a row that are not finite end an fp16 run: the reported loss is unscaled, so no scale helps."""


class Overflows:
    """Watches the steps of one attempt; every rank sees the same numbers and decides the same.

    Args:
        config: of the loss scale, None except in fp16.
    """

    def __init__(self, config: LossScaleConfig | None) -> None:
        self._minimum = config.minimum if config else None
        self._bad_losses = 0

    def fatal(self, result: StepResult) -> str | None:
        """Why a step's numbers end the run, None where they do not."""
        found = f"loss {result.loss}, gradient norm {result.grad_norm}"
        self._bad_losses = 0 if math.isfinite(result.loss) else self._bad_losses + 1
        if math.isfinite(result.loss) and math.isfinite(result.grad_norm):
            return None
        if self._minimum is None or result.loss_scale is None or result.applied:
            return f"{found}, expected finite numbers"
        if result.loss_scale <= self._minimum:
            return f"{found} at the smallest loss scale, {self._minimum:,}: the scale cannot be lowered further"
        if self._bad_losses >= LOSSES_IN_A_ROW:
            return f"{found}: {LOSSES_IN_A_ROW} losses in a row are not finite, and a lower loss scale does not help"
        return None
