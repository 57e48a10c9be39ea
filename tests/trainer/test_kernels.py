"""Kernels: what was asked for, what ran, why not the other; fused ones give the same numbers."""

import pytest
import torch
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from trained import options, rings, run_of

from treering.config.model import ModelConfig, OptimizerConfig
from treering.config.operation import KernelConfig
from treering.errors import UserError
from treering_trainer.core.cross_entropy import lean_cross_entropy
from treering_trainer.core.kernels import kernels_on_record
from treering_trainer.core.topology import join_alone

pytestmark = pytest.mark.trainer

OPTIMIZER = OptimizerConfig(peak_learning_rate=1e-3, min_learning_rate=1e-4)
OPERATIONS = [
    "optimizer", "attention", "bias_gelu", "bias_dropout_add", "layer_norm", "softmax", "cross_entropy",
]  # fmt: skip
FUSED = options(
    ("kernels={bias_gelu: compiled, bias_dropout_add: compiled, cross_entropy: compiled, attention: sdpa_flash}",)
)


def record(dropout=0.0, precision="fp32", **kernels):
    join_alone()
    model = ModelConfig(num_layers=1, hidden_size=32, num_attention_heads=4, padded_vocab_size=512, dropout=dropout)
    found = kernels_on_record(
        model, OPTIMIZER, KernelConfig(**kernels), precision, sequence_length=16, micro_batch_size=2, tensor_parallel=1
    )
    assert [kernel.operation for kernel in found] == OPERATIONS
    return {kernel.operation: (kernel.requested, kernel.used, kernel.reason) for kernel in found}


def test_what_was_not_asked_for():
    found = record()
    assert found["optimizer"] == ("torch_fused", "torch_fused", "")
    assert found["attention"] == ("sdpa_auto", "sdpa_flash", "torch's choice for this device, type and shape")
    assert found["softmax"] == ("within attention", "within attention", "")
    assert found["layer_norm"] == ("torch", "torch", "one kernel of torch; apex was not asked for")
    for operation in ("bias_gelu", "bias_dropout_add", "cross_entropy"):
        assert found[operation] == ("eager", "eager", "compiled was not asked for")


def test_dropout_takes_the_flash_kernel_of_a_processor_away():
    found = record(dropout=0.1, precision="bf16", optimizer="torch")
    assert found["attention"] == (
        "sdpa_auto",
        "sdpa_math",
        "torch's choice for this device, type and shape with dropout",
    )
    assert found["softmax"] == ("within attention", "torch", "the attention that ran computes it by itself")
    assert found["optimizer"][1] in ("torch", "torch_foreach")
    assert found["optimizer"][2].endswith("torch_fused was not asked for")


def test_what_cannot_run_is_one_clear_error():
    with pytest.raises(UserError, match=r"kernels\.attention: sdpa_flash does not run on this device .*No available"):
        record(dropout=0.1, attention="sdpa_flash")


def test_missing_apex_is_on_record():
    assert record(layer_norm="apex")["layer_norm"] == ("apex", "torch", "apex is not installed")


@pytest.mark.slow
def test_one_compiled_operation_does_not_speak_for_the_other():
    found = record(bias_gelu="compiled")
    assert found["bias_gelu"] == ("compiled", "compiled", "")
    assert found["bias_dropout_add"][:2] == ("eager", "eager")


def test_random_streams_are_left_alone():
    before = torch.get_rng_state()
    record(dropout=0.1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_lean_loss_is_megatrons(dtype):
    join_alone()
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(6, 2, 512, generator=generator) * 3).to(dtype)
    labels = torch.randint(512, (6, 2), generator=generator)
    labels[2, 1] = -1
    weights = (labels >= 0).float()
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    found = lean_cross_entropy(ours, labels)
    expected = vocab_parallel_cross_entropy(theirs.float() * 1.0, labels)
    torch.testing.assert_close(found[labels >= 0], expected[labels >= 0], atol=2e-6, rtol=1e-6)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    assert ours.grad.dtype == dtype
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6 if dtype == torch.float32 else 1e-3, rtol=1e-2)
    assert not ours.grad[2, 1].any()


@pytest.mark.slow
def test_fused_kernels_train_the_same_in_tensor_parallel(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, "--set=parallel.tensor=2", *FUSED, "--no-publish")
    run = run_of(tmp_path)
    used = {kernel.operation: kernel.used for kernel in run.attempts()[0].header.kernels}
    assert used == {
        "optimizer": "torch_fused",
        "attention": "sdpa_flash",
        "bias_gelu": "compiled",
        "bias_dropout_add": "compiled",
        "layer_norm": "torch",
        "softmax": "within attention",
        "cross_entropy": "compiled",
    }
    assert run.path.name == reference.path.name
    for ours, theirs in zip(rings(run), rings(reference), strict=True):
        assert ours.batch_digest == theirs.batch_digest
        assert ours.loss == pytest.approx(theirs.loss, abs=5e-6)
        assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-4)
        if theirs.validation:
            assert ours.validation["loss"] == pytest.approx(theirs.validation["loss"], abs=5e-6)


@pytest.mark.slow
def test_a_kernel_that_does_not_run_starts_no_training(zygote, project, tmp_path):
    settings = options(("model.dropout=0.1", "kernels.attention=sdpa_flash"))
    printed = zygote.train(project, tmp_path, *settings, "--no-publish", expect=2)
    assert "kernels.attention: sdpa_flash does not run on this device with this precision and dropout" in printed
