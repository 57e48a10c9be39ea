"""Which losses and gradients that are not finite end a run.

In fp32 and bf16 nothing mends them: the first ends it. In fp16 an overflow is everyday: gradients are multiplied by a
scale that is found by trying; DeepSpeed skips such a step and lowers the scale. A skipped step has read its samples.
"""

import math

from treering.config.model import LossScaleConfig
from treering_trainer.core.engine import StepResult

LOSSES_IN_A_ROW = 10
"""Losses that are not finite, one after the other, after which no scale helps: the loss itself is not scaled."""


class Overflows:
    """Watches the steps of one attempt; every rank sees the same numbers and decides the same.

    Args:
        config: of the loss scale, None where there is none.
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
            return f"{found} at the smallest loss scale, {self._minimum:,}: it cannot fall any further"
        if self._bad_losses >= LOSSES_IN_A_ROW:
            return f"{found}: {LOSSES_IN_A_ROW} losses in a row that are not finite, which no loss scale mends"
        return None
