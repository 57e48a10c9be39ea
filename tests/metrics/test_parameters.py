"""The count of parameters against published models, and against a count by hand."""

import pytest

from treering.config.model import ModelConfig
from treering.metrics.parameters import Parameters


def count(layers: int, hidden: int, heads: int, vocabulary: int, positions: int, **options: object) -> int:
    model = ModelConfig(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        padded_vocab_size=vocabulary,
        **options,
    )
    return Parameters.of(model, positions).total


@pytest.mark.parametrize(
    ("found", "published"),
    [
        # Exactly this architecture: the sums of the published weights' sizes (huggingface.co/openai-community).
        (count(12, 768, 12, 50_257, 1024), 124_439_808),  # gpt2
        (count(24, 1024, 16, 50_257, 1024), 354_823_168),  # gpt2-medium
        (count(36, 1280, 20, 50_257, 1024), 774_030_080),  # gpt2-large
        (count(48, 1600, 25, 50_257, 1024), 1_557_611_200),  # gpt2-xl
        # BLOOM-176B (arXiv 2211.05100): ALiBi learns no positions; a norm follows the token embedding.
        (count(70, 14_336, 112, 250_880, 2048) - 2048 * 14_336 + 2 * 14_336, 176_247_271_424),
        # GPT-NeoX-20B (arXiv 2204.06745): rotary positions, and an output layer of its own.
        (count(44, 6144, 64, 50_432, 2048, tied_embeddings=False) - 2048 * 6144, 20_554_567_680),
    ],
)
def test_published_models_to_the_last_parameter(found: int, published: int) -> None:
    assert found == published


@pytest.mark.parametrize(
    ("found", "billions", "tolerance"),
    [
        (count(105, 20_480, 128, 51_200, 2048), 529.6, 0.05),  # MT-NLG: arXiv 2104.04473, table 1, rounded there
        (count(96, 12_288, 96, 50_257, 2048), 175.0, 0.5),  # GPT-3: arXiv 2005.14165, table 2.1, as the paper rounds
        (count(72, 3072, 32, 51_200, 1024), 8.3, 0.05),  # Megatron-LM 8.3B: arXiv 1909.08053, table 1
    ],
)
def test_published_models_as_their_papers_round(found: int, billions: float, tolerance: float) -> None:
    assert found / 1e9 == pytest.approx(billions, abs=tolerance)


def test_width_and_output_layer_count() -> None:
    """Llama-2 7B's sizes with this architecture's own layers (GELU, biases, learned positions), counted by hand."""
    h, f, vocabulary, positions = 4096, 11_008, 32_000, 4096
    layer = (4 * h * h + 4 * h) + (2 * h * f + f + h) + 4 * h  # attention, feed-forward, two norms
    expected = 32 * layer + 2 * vocabulary * h + positions * h + 2 * h
    assert count(32, h, 32, vocabulary, positions, ffn_hidden_size=f, tied_embeddings=False) == expected
    assert expected == 5_313_626_112


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_tensor_ranks_share_matrices_and_repeat_norms(tensor: int) -> None:
    model = ModelConfig(num_layers=2, hidden_size=64, num_attention_heads=4, padded_vocab_size=256, ffn_hidden_size=96)
    whole, part = Parameters.of(model, 32), Parameters.of(model, 32, tensor)
    repeated = 6 * 64  # two norms (2h each), and the biases of the two row-parallel layers
    assert (part.layer - repeated) * tensor == whole.layer - repeated
    assert part.embedding * tensor == whole.embedding
    assert (part.positions, part.final_norm) == (whole.positions, whole.final_norm) == (32 * 64, 128)
