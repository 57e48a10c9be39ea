"""DeepSpeed's pipeline module with a recomputation that knows which layers are transformer blocks.

DeepSpeed's own `activation_checkpoint_interval` cuts all layers of a stage into groups, counted from its first: the
embedding, the final norm and, in a group with it, the output layer would be computed again as well, and where groups
begin would depend on the stage. Here groups hold blocks only. DeepSpeed's interval stays 0, which also keeps its
reentrant recomputation out of reach, the default that drops the embedding's gradient in silence.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from deepspeed.pipe import DualPipeVModule, PipelineModule
from deepspeed.runtime.activation_checkpointing.checkpointing import non_reentrant_checkpoint

from treering_trainer.core.model import TransformerBlock

Layer = Callable[[Any], Any]


def layer_groups(layers: Sequence[Layer], interval: int) -> Iterator[tuple[list[Layer], bool]]:
    """Cuts a stage's layers into runs.

    Args:
        layers: the stage's layers in order.
        interval: blocks of a group, 0 for no recomputation.

    Yields:
        Layers, and whether they keep only the input of the first and are computed again in the backward pass.
    """
    for blocks, run in groupby(layers, key=lambda layer: isinstance(layer, TransformerBlock)):
        found = list(run)
        size = interval if blocks and interval else len(found)
        for start in range(0, len(found), size):
            yield found[start : start + size], blocks and interval > 0


class RecomputingModule(PipelineModule):  # type: ignore[misc]  # DeepSpeed's classes are Any
    """A `PipelineModule` under 1F1B that recomputes groups of blocks.

    Random streams are put back for the second pass, so that dropout draws the same masks.

    Args:
        interval: blocks of a group, 0 for no recomputation.
        arguments: those of `PipelineModule`.
    """

    def __init__(self, *, interval: int, **arguments: Any) -> None:
        self.interval = interval
        super().__init__(**arguments)

    def forward(self, forward_input: Any) -> Any:
        """The stage's layers in order."""
        hidden = forward_input
        for layers, recomputed in layer_groups(self.forward_funcs, self.interval):
            run = _chain(layers)
            again = recomputed and torch.is_grad_enabled()
            hidden = non_reentrant_checkpoint(run, hidden) if again else run(hidden)
        return hidden


class FoldedModule(RecomputingModule, DualPipeVModule):  # type: ignore[misc]  # DeepSpeed's classes are Any
    """The same under DualPipeV: a stage holds two chunks of layers, of which DeepSpeed shows one at a time."""


def _chain(layers: Sequence[Layer]) -> Layer:
    def run(hidden: Any) -> Any:
        for layer in layers:
            hidden = layer(hidden)
        return hidden

    return run
