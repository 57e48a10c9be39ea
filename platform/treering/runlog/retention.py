"""Which checkpoints stay, and by which rule; the trainer removes the others, the command line shows it.

Without `keep_last` all stay. Best is the lowest held-out loss, or the lowest N of `keep_best: N`, as long as
`validation.samples` stays the same. A checkpoint's loss is the newest one measured at or before its step
(`validation_loss` of its manifest). `keep_last: 1` leaves no older one if the newest is damaged.
"""

import math
from collections.abc import Mapping

from treering.config.operation import CheckpointConfig


def kept_by(losses: Mapping[int, float | None], config: CheckpointConfig) -> dict[int, tuple[str, ...]]:
    """The rules that keep each checkpoint; one with none goes. The newest, where a resume begins, always has one.

    The best ones are those with the lowest held-out loss, of two with the same the earlier, which was measured nearer;
    one without a finite loss is never among them.

    Args:
        losses: held-out loss by step, of every checkpoint that there is; see `CheckpointManifest.validation_loss`.
        config: the rules.

    Returns:
        For each step the rules, as `last 3`, `every 5000`, `best 1`; `all` where no number is set.
    """
    if config.keep_last is None:
        return dict.fromkeys(losses, ("all",))
    measured = [(loss, step) for step, loss in losses.items() if loss is not None and math.isfinite(loss)]
    rules = {f"last {config.keep_last}": sorted(losses)[-config.keep_last :]}
    if config.keep_every is not None:
        rules[f"every {config.keep_every}"] = [step for step in losses if step % config.keep_every == 0]
    if config.num_best:
        rules[f"best {config.num_best}"] = [step for _loss, step in sorted(measured)[: config.num_best]]
    return {step: tuple(rule for rule, steps in rules.items() if step in steps) for step in losses}
