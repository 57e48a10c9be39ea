"""A trained model in one process, from any checkpoint: for evaluation, generation, and anything that needs logits.

Shape suffixes: B batch, S sequence, V padded vocabulary.
"""

import torch
import torch.distributed
from deepspeed.pipe import TiedLayerSpec
from torch import nn

from treering.config.model import ModelConfig
from treering.config.operation import KernelConfig
from treering.errors import EvidenceError
from treering.runlog.directory import CheckpointDirectory
from treering_trainer.checkpointing.weights import read_weights
from treering_trainer.core.model import build_layers, vocabulary_logits
from treering_trainer.core.topology import join_alone


class LanguageModel(nn.Module):
    """The layers of `model.build_layers` in sequence: token ids [B, S] to logits [B, S, V].

    Args:
        model: the model's config.
        sequence_length: of its position embedding.
    """

    def __init__(self, model: ModelConfig, sequence_length: int) -> None:
        super().__init__()
        self.sequence_length = sequence_length
        self.tied = model.tied_embeddings
        specs = build_layers(model, sequence_length, seed=0, kernels=KernelConfig())
        built = specs[:-1] if self.tied else specs
        self.layers = nn.ModuleList(spec.build(log=False) for spec in built)
        if self.tied and not isinstance(specs[-1], TiedLayerSpec):
            raise TypeError("a tied model must end with its embedding")

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """Logits of the next token at every position."""
        hidden = tokens_BS
        for layer in self.layers:
            hidden = layer(hidden)
        if self.tied:
            hidden = vocabulary_logits(self.layers[0], hidden)
        return hidden.transpose(0, 1)


def load_model(checkpoint: CheckpointDirectory) -> LanguageModel:
    """The model of a checkpoint in fp32 on the CPU, in evaluation mode; makes a process group of one rank if needed.

    Raises:
        EvidenceError: the checkpoint or its run's config is incomplete or changed.
    """
    join_alone()
    resolved = checkpoint.run.resolved
    model = LanguageModel(resolved.recipe.model, resolved.blend.sequence_length)
    weights = {f"layers.{name}": tensor.float() for name, tensor in read_weights(checkpoint.path).items()}
    found = model.load_state_dict(weights, strict=False)
    missing = [name for name in found.missing_keys if not name.endswith("_extra_state")]
    if missing or found.unexpected_keys:
        raise EvidenceError(
            f"{checkpoint.path}: weights do not fit the run's config: missing {missing}, not expected "
            f"{found.unexpected_keys}",
            file=checkpoint.path,
            found=found.unexpected_keys,
            expected=missing,
        )
    return model.eval()
