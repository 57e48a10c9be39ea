"""The engine alone, in this process: what loading takes over and what it leaves to the config."""

import deepspeed
import pytest
import torch

from treering.config.model import LossScaleConfig, ModelConfig, OptimizerConfig
from treering.config.operation import KernelConfig, ParallelConfig
from treering_trainer.core.engine import Engine
from treering_trainer.core.topology import join_alone

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

MODEL = ModelConfig(num_layers=1, hidden_size=32, num_attention_heads=4, padded_vocab_size=128)
BATCH = [(torch.arange(16).view(2, 8), torch.arange(1, 17).view(2, 8))]


@pytest.fixture
def build(monkeypatch):
    # DeepSpeed looks for instructions of the processor without which torch computes the same.
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: True, raising=False)
    # As `connect` does: DeepSpeed would compile its shared-memory collective, which one rank never uses.
    monkeypatch.setitem(deepspeed.ops.__compatible_ops__, "deepspeed_shm_comm", False)
    place = join_alone(micro_batch_size=2)
    deepspeed.init_distributed(verbose=False)

    def engine(precision, kernel, **changes):
        return Engine(
            place,
            model=MODEL,
            optimizer=OptimizerConfig(peak_learning_rate=1e-3, min_learning_rate=1e-4, **changes),
            parallel=ParallelConfig(micro_batch_size=2),
            kernels=KernelConfig(optimizer=kernel),
            precision=precision,
            sequence_length=8,
            seed=1,
            global_batch_size=2,
        )

    return engine


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_changed_config_is_what_a_loaded_engine_follows(precision, build, tmp_path):
    scale = {"loss_scale": LossScaleConfig(initial_power=10, window=3)} if precision == "fp16" else {}
    before = build(precision, "torch", **scale)
    for step in (1, 2):
        assert before.train(step, BATCH, 2, 1e-3).applied
    before.save(tmp_path)
    scale = {"loss_scale": LossScaleConfig(initial_power=12, window=1, minimum=4)} if precision == "fp16" else {}
    after = build(precision, "torch_fused", beta2=0.99, weight_decay=0.2, gradient_clipping=0.5, **scale)
    after.load(tmp_path)
    optimizer = after.engine.optimizer
    assert optimizer.clip_grad == 0.5
    assert [(group["betas"], group["weight_decay"], group["fused"]) for group in optimizer.param_groups] == [
        ((0.9, 0.99), 0.2, True),
        ((0.9, 0.99), 0.0, True),
    ]
    for one, other in zip(before.engine.parameters(), after.engine.parameters(), strict=True):
        assert torch.equal(one, other)
    result = after.train(3, BATCH, 2, 1e-3)
    assert result.applied
    if precision == "fp16":
        assert result.loss_scale == 2**10
        assert (optimizer.loss_scaler.scale_window, optimizer.loss_scaler.min_scale) == (1, 4)
        assert after.train(4, BATCH, 2, 1e-3).loss_scale == 2**11
