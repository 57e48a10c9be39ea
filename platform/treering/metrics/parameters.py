"""How many parameters a model has: the one count, which plans, run pages, reports and disclosures state.

Reads the resolved model. `tests/trainer/test_model.py` compares it with the model that the trainer builds.

Legend: h hidden size, f feed-forward width, V padded vocabulary, s sequence length, t tensor-parallel ranks.
"""

from dataclasses import dataclass
from typing import Self

from treering.config.model import ModelConfig


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a GPT by its parts, as one tensor rank holds them.

    Tensor ranks share matrices, the biases of column-parallel layers, and the embedding. Positions, norms, and the
    biases of row-parallel layers are whole on each rank.

    Attributes:
        num_layers: number of transformer layers.
        layer: one layer, (4h² + 2hf + 3h + f)/t + 6h: attention, feed-forward, their biases, and two norms.
        embedding: the token embedding, Vh/t.
        positions: the learned positions, sh.
        final_norm: weight and bias of the last norm, 2h.
        tied: whether the output layer is the token embedding; else it is a matrix of the same size.
    """

    num_layers: int
    layer: int
    embedding: int
    positions: int
    final_norm: int
    tied: bool

    @classmethod
    def of(cls, model: ModelConfig, sequence_length: int, tensor: int = 1) -> Self:
        """Counts a resolved model.

        Args:
            model: the model.
            sequence_length: tokens of a sample: the model learns as many positions.
            tensor: ranks that share each layer.
        """
        h, f = model.hidden_size, model.ffn_width
        return cls(
            num_layers=model.num_layers,
            layer=(4 * h * h + 2 * h * f + 3 * h + f) // tensor + 6 * h,
            embedding=model.padded_vocab_size * h // tensor,
            positions=sequence_length * h,
            final_norm=2 * h,
            tied=model.tied_embeddings,
        )

    @property
    def total(self) -> int:
        """All of them; a weight that two layers share counts once."""
        embeddings = self.embedding * (1 if self.tied else 2)
        return self.num_layers * self.layer + embeddings + self.positions + self.final_norm
