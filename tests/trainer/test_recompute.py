"""Recomputation by groups of layers: the same numbers, and what is kept and computed again is what the plan counts."""

import pytest
import torch
from trained import numbers, options, rings, run_of

from treering_trainer.core.model import TransformerBlock
from treering_trainer.core.pipeline import RecomputingModule, layer_groups

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


@pytest.mark.parametrize("interval", [1, 2])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_changes_no_bit(interval, dropout, zygote, project, tmp_path):
    """In a pipeline, with tied embeddings, and where dropout must draw its masks twice."""
    common = options(("parallel.pipeline=2", "parallel.data=1", "model.num_layers=4", f"model.dropout={dropout}"))
    zygote.train(project, tmp_path / "kept", *common, "--no-publish")
    recompute = options(("parallel.activation_recompute=full", f"parallel.recompute_interval={interval}"))
    zygote.train(project, tmp_path / "again", *common, *recompute, "--no-publish")
    kept, again = run_of(tmp_path / "kept"), run_of(tmp_path / "again")
    assert again.attempts()[0].header.config.parallel.recompute_interval == interval
    assert numbers(rings(again)) == numbers(rings(kept))


class Other(torch.nn.Module):
    """A layer that is not a transformer block; records that it runs."""

    def __init__(self, calls=None):
        torch.nn.Module.__init__(self)  # not what comes next in the order: a block would build megatron-core's layers
        self.calls = [] if calls is None else calls
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, hidden):
        self.calls.append(self)
        return (hidden * self.weight).tanh()


class Block(Other, TransformerBlock):
    """One that counts as a block."""


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (0, [(2, False), (5, False), (1, False)]),
        (1, [(2, False), *[(1, True)] * 5, (1, False)]),
        (2, [(2, False), (2, True), (2, True), (1, True), (1, False)]),
        (5, [(2, False), (5, True), (1, False)]),
    ],
)
def test_groups_hold_blocks_only(interval, expected):
    layers = [Other(), Other(), *(Block() for _ in range(5)), Other()]
    found = list(layer_groups(layers, interval))
    assert [(len(group), again) for group, again in found] == expected
    assert [layer for group, _again in found for layer in group] == layers


def test_the_backward_pass_computes_groups_again_last_first():
    calls = []
    layers = [Other(calls), *(Block(calls) for _ in range(3)), Other(calls)]
    first, one, two, three, last = layers
    module = RecomputingModule.__new__(RecomputingModule)
    torch.nn.Module.__init__(module)
    module.interval, module.forward_funcs = 2, layers
    loss = module(torch.rand(4, 3)).sum()
    assert calls == layers
    calls.clear()
    loss.backward()
    assert calls == [three, one, two]
    calls.clear()
    with torch.no_grad():
        module(torch.rand(4, 3))
    assert calls == [first, one, two, three, last]
