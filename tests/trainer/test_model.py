"""The model that the trainer builds has as many parameters as the platform says."""

import pytest

from treering.config.model import ModelConfig
from treering.metrics.parameters import Parameters
from treering_trainer.checkpointing.inference import LanguageModel
from treering_trainer.core.topology import join_alone

pytestmark = pytest.mark.trainer

SMALL = {"num_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 96}
ODD = {"num_layers": 3, "hidden_size": 48, "num_attention_heads": 2, "padded_vocab_size": 70}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("ffn", [None, 40, 300])
@pytest.mark.parametrize(("sizes", "positions"), [(SMALL, 8), (ODD, 33)])
def test_the_count_is_that_of_the_model_that_is_built(sizes, positions, ffn, tied):
    join_alone()
    model = ModelConfig(**sizes, ffn_hidden_size=ffn, tied_embeddings=tied)
    built = sum(parameter.numel() for parameter in LanguageModel(model, positions).parameters())
    assert built == Parameters.of(model, positions).total
