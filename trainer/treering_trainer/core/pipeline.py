"""DeepSpeed's pipeline module with activation recomputation of transformer blocks only.

DeepSpeed's `activation_checkpoint_interval` groups all layers of a stage, from its first layer on: it would recompute
the embedding, the final norm and the output layer as well, and the groups would depend on the stage. Here groups
contain blocks only. DeepSpeed's interval stays 0. That also avoids DeepSpeed's default, reentrant recomputation, which
silently drops the embedding's gradient.
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
    """Groups a stage's layers.

    Args:
        layers: the stage's layers in order.
        interval: blocks of a group, 0 for no recomputation.

    Yields:
        The layers of a group, and whether the backward pass recomputes them from the group's input.
    """
    for blocks, run in groupby(layers, key=lambda layer: isinstance(layer, TransformerBlock)):
        found = list(run)
        size = interval if blocks and interval else len(found)
        for start in range(0, len(found), size):
            yield found[start : start + size], blocks and interval > 0


class RecomputingModule(PipelineModule):  # type: ignore[misc]  # DeepSpeed's classes are Any
    """A `PipelineModule` under 1F1B that recomputes groups of blocks.

    Random streams are restored for the recomputation, so that dropout draws the same masks.

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
    """The same under DualPipeV, where a stage has two chunks of layers and DeepSpeed runs one chunk at a time."""


def _chain(layers: Sequence[Layer]) -> Layer:
    def run(hidden: Any) -> Any:
        for layer in layers:
            hidden = layer(hidden)
        return hidden

    return run
