"""What surely does not fit into the memory of this node is refused, whatever it computes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from treering.collect.devices import Device
from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved_blend import declared_blend
from treering.errors import ConfigError, UserError
from treering_trainer.launch.devices import Hardware, check_fits, choose_layout

MT_NLG = Path(__file__).parents[2] / "experiments" / "mt-nlg-530b.yaml"
A100 = Device("cuda", "NVIDIA A100-SXM4-80GB", "GPU-1", 85_899_345_920, "570", 0)
PROCESSOR = Device("cpu", "Some Processor", None, 2**40, None, 0)


def node(*devices):
    return Hardware("cuda", len(devices), (*devices, PROCESSOR), "")


def resolved(*overrides):
    experiment = load_experiment(MT_NLG, overrides)
    return resolve(experiment, declared_blend(experiment), str(MT_NLG))


def check(hardware, *overrides):
    config = resolved(*overrides)
    layout, _note = choose_layout(config, hardware, 2240)
    check_fits("x.yaml", config, layout, hardware)


def test_mt_nlg_fits_its_devices_with_recomputation_only():
    check(node(*[A100] * 8))
    with pytest.raises(ConfigError, match=r"x.yaml: parallel: found .* at most the 24 GB of small: more tensor or"):
        check(node(A100, replace(A100, name="small", memory_bytes=24 * 10**9)))
    with pytest.raises(ConfigError, match=r"activation_recompute: found .* at most the 60 GB of NVIDIA A100"):
        check(node(replace(A100, memory_bytes=60 * 10**9)), "parallel.activation_recompute=none")


def test_a_device_that_does_not_tell_its_memory_refuses_nothing():
    check(node(replace(A100, memory_bytes=None)), "parallel.activation_recompute=none")


def test_more_ranks_than_devices_here():
    with pytest.raises(
        UserError, match=r"layout 8x35x8 \(TP x PP x DP\) needs 2240 GPUs, this node has 8; .*treering launch"
    ):
        choose_layout(resolved(), node(*[A100] * 8))


def test_ranks_that_an_outer_launcher_starts_on_other_nodes_do_not_count(monkeypatch):
    config = resolved()
    here = Hardware("cpu", 0, (PROCESSOR,), "")
    layout, _note = choose_layout(config, here, 2240)
    with pytest.raises(ConfigError, match=r"GB for 2240 ranks of 8x35x8 on this node"):
        check_fits("x.yaml", config, layout, here)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(ConfigError, match=r"GB for 8 ranks of 8x35x8 on this node"):
        check_fits("x.yaml", config, layout, here)
