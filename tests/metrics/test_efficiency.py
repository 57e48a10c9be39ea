"""Shares of a step, recomputed from its ring: MFU and HFU against MT-NLG's row, the bubble beside its ideal."""

from pathlib import Path

import pytest
import run_records

from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved_blend import declared_blend
from treering.metrics.efficiency import STEP_PARTS, efficiency, split
from treering.metrics.flops import FLOPS_FORMULAS, ModelShape
from treering.runlog.metric_catalog import METRICS
from treering.runlog.records import AttemptLayout
from treering.runlog.ring import Ring

EXPERIMENT = Path(__file__).parents[2] / "experiments/mt-nlg-530b.yaml"
SHAPE = ModelShape(105, 20480, 128, 2048, 51200)
LAYOUT = AttemptLayout(tensor=8, pipeline=35, data=8, micro_batch_size=1, device="cuda", backend="nccl")
PARTS = {"data_wait": 1.0, "forward_backward": 40.0, "communication": 15.0, "optimizer": 4.0}


@pytest.fixture(scope="module")
def resolved():
    experiment = load_experiment(EXPERIMENT)
    return resolve(experiment, declared_blend(experiment), str(EXPERIMENT))


def ring(**changes):
    return Ring.sealed(**run_records.ring_values(1, (0, 1920), 2048, **changes), prev="sha256:0")[0]


def header(resolved, devices=("NVIDIA A100-SXM4-80GB",), layout=LAYOUT, recompute="full"):
    parallel = resolved.attempt.parallel.model_copy(update={"activation_recompute": recompute})
    config = resolved.attempt.model_copy(update={"parallel": parallel})
    environment = {"digest": run_records.ENVIRONMENT, "device_kinds": list(devices)}
    return run_records.header(resolved, 1, config=config, layout=layout, environment=environment, corpora={})


@pytest.mark.parametrize("formula", FLOPS_FORMULAS)
def test_mt_nlg_has_its_published_shares_whatever_formula_the_ring_names(resolved, formula):
    tflops = FLOPS_FORMULAS[formula](SHAPE, 1920, True) / 60.1 / 2240 / 1e12
    found = efficiency(ring(tflops_per_device=tflops, flops_formula=formula), header(resolved), SHAPE)
    assert found.hfu == pytest.approx(0.403, abs=7e-4)
    assert found.mfu == pytest.approx(0.302, abs=7e-4)
    assert found.ideal_bubble == 34 / (240 + 34)
    assert found.bubble is None
    assert dict(found.metrics()).keys() == {"speed/mfu", "speed/hfu", "speed/ideal_pipeline_bubble"}


def test_without_recomputation_both_shares_are_one(resolved):
    measured = ring(tflops_per_device=94.0, flops_formula="megatron-2023")
    found = efficiency(measured, header(resolved, recompute="none"), SHAPE)
    assert found.hfu == found.mfu == pytest.approx(94 / 312)


@pytest.mark.parametrize(
    ("devices", "changes"),
    [
        (["Tesla V100"], {}),
        (["NVIDIA H200", "NVIDIA H100 80GB HBM3"], {}),
        (["NVIDIA H200"], {"flops_formula": "mine"}),
        (["NVIDIA H200"], {"tflops_per_device": None}),
    ],
)
def test_what_cannot_be_said_is_not_said(resolved, devices, changes):
    values = {"tflops_per_device": 94.0, "flops_formula": "megatron-2023"} | changes
    found = efficiency(ring(**values), header(resolved, devices), SHAPE)
    assert (found.mfu, found.hfu) == (None, None)


def test_the_bubble_is_measured_against_the_pipelines_time(resolved):
    measured = ring(time_s={"step": 60.0, **PARTS, "pipeline": 50.0, "pipeline_bubble": 8.0})
    found = efficiency(measured, header(resolved), SHAPE)
    assert found.bubble == 0.16
    other = LAYOUT.model_copy(update={"pipeline_schedule": "dualpipev"})
    assert efficiency(measured, header(resolved, layout=other), SHAPE).ideal_bubble is None
    alone = LAYOUT.model_copy(update={"pipeline": 1, "data": 280})
    assert dict(efficiency(ring(), header(resolved, layout=alone), SHAPE).metrics()) == {}


def test_the_split_is_of_all_steps_together():
    rings = [
        ring(time_s={"step": 60.0, **PARTS, "record": 0.1}),
        ring(time_s={"step": 40.0, **PARTS, "communication": 5.0, "forward_backward": 30.0, "checkpoint": 25.0}),
    ]
    assert split(rings) == pytest.approx(
        {
            "data_wait": 0.02,
            "forward_backward": 0.7,
            "communication": 0.2,
            "optimizer": 0.08,
            "checkpoint": 0.25,
            "record": 0.001,
        }
    )
    assert {f"time/{part}" for part in STEP_PARTS} <= METRICS.keys()
    assert split([ring()]) == {}
