"""The planner against published equations and trainings, and against itself."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import CLUSTER, LAYOUT, MODEL, changed, planned, workload

from treering.config.batch_schedule import Rampup
from treering.config.model import ModelConfig
from treering.config.operation import ParallelConfig
from treering.errors import ConfigError, UserError
from treering.metrics.flops import ptdp_2021
from treering.plan.estimate import (
    bubble_share,
    estimate,
    kernel_rate,
    plan,
    schedule_seconds,
    search,
    step_time,
)
from treering.plan.layout import DEVICES, Cluster, PlannedLayout, check_layout, layouts
from treering.plan.memory import (
    device_memory,
    head_activation_bytes,
    layer_activation_bytes,
    stage_parameters,
)

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "experiments" / "benchmarks" / "plan_accuracy.py"


def part(memory, name):
    return next(each.num_bytes for each in memory.parts if each.name == name)


# Memory


def test_activations_of_a_layer_are_equation_2_of_2205_05198():
    s, b, h, a = 2048, 1, 20_480, 128
    dropped = MODEL.model_copy(update={"dropout": 0.1})
    for t in (1, 2, 8):
        layout = changed(LAYOUT, tensor=t)
        found = layer_activation_bytes(replace(workload(dropped), attention="unfused"), layout)
        assert found == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)))
        # Without dropout neither masks (2sbh) nor dropped scores (3as²b) are kept; a fused kernel keeps as numbers.
        assert layer_activation_bytes(workload(dropped), layout) == pytest.approx(
            s * b * h * (10 + 24 / t) + 4 * a * s * b / t
        )
        assert layer_activation_bytes(workload(), layout) == pytest.approx(s * b * h * (8 + 24 / t) + 4 * a * s * b / t)


def test_without_recompute_mt_nlg_as_it_was_trained_never_fitted():
    dropped = MODEL.model_copy(update={"dropout": 0.1})
    before_fusion = replace(workload(dropped), attention="unfused")
    memory = device_memory(before_fusion, changed(LAYOUT, recompute=False), 1920)
    # 105 layers' worth (35 in flight x 3) of sbh(10 + 3 + 8) = 881 MB.
    assert part(memory, "activations") == pytest.approx(105 * 2048 * 20_480 * 21, rel=0.03)
    assert memory.num_bytes > 80e9


def test_mt_nlg_with_recompute_fits_80_gb(mt_nlg):
    memory = device_memory(mt_nlg, LAYOUT, 1920)
    assert (memory.stage, memory.in_flight) == ("first", 35)
    layers = 3 * (12 * 20_480**2 + 7 * 20_480) // 8 + 3 * 6 * 20_480
    assert memory.parameters == layers + 51_200 * 20_480 // 8 + 2048 * 20_480
    assert part(memory, "weights") == 2 * memory.parameters
    assert part(memory, "gradients") == 6 * memory.parameters
    assert part(memory, "optimizer") == 12 * memory.parameters / 8
    assert memory.num_bytes / 1e9 == pytest.approx(29.2, abs=0.05)
    assert all(each.formula and "arXiv" in each.source for each in memory.parts)


@pytest.mark.parametrize("stage", ["first", "last"])
@pytest.mark.parametrize(("tied", "extra"), [(True, 0), (False, 51_200 * 20_480)])
def test_parameters_of_one_device_are_those_of_the_model(tied, extra, stage):
    model = MODEL.model_copy(update={"tied_embeddings": tied})
    layers = 105 * (12 * 20_480**2 + 13 * 20_480)
    whole = layers + (51_200 + 2048 + 2) * 20_480 + extra
    assert stage_parameters(workload(model), planned(1, 1, 1, 1, recompute=False), stage) == whole


@pytest.mark.parametrize("tied", [True, False])
def test_the_last_of_several_stages_has_an_output_layer_of_its_own(tied):
    model = MODEL.model_copy(update={"tied_embeddings": tied})
    layer = 12 * 20_480**2 + 13 * 20_480
    layout = planned(1, 105, 1, 1, recompute=False)
    assert stage_parameters(workload(model), layout, "last") == layer + 51_200 * 20_480 + 2 * 20_480
    assert stage_parameters(workload(model), layout, "first") == layer + 51_200 * 20_480 + 2048 * 20_480


def test_replicas_share_the_optimizer_only():
    one, eight = (device_memory(workload(), changed(LAYOUT, data=data), 1920) for data in (1, 8))
    assert part(one, "optimizer") == 8 * part(eight, "optimizer")
    assert part(one, "weights") == part(eight, "weights")
    assert part(one, "activations") == part(eight, "activations")


def test_fewer_micro_batches_than_stages_are_all_that_is_in_flight():
    assert device_memory(workload(), LAYOUT, 32).in_flight == 4


def test_a_large_vocabulary_makes_the_last_stage_the_fullest():
    model = ModelConfig(num_layers=2, hidden_size=64, num_attention_heads=2, padded_vocab_size=51_200)
    layout = planned(1, 2, 1, 4, recompute=False)
    memory = device_memory(workload(model, 8), layout, 8)
    assert (memory.stage, memory.in_flight) == ("last", 1)
    logits = 2048 * 4 * 51_200
    assert head_activation_bytes(workload(model, 8), layout) == 2048 * 4 * 4 * 64 + 4 * logits
    assert part(memory, "activations") == (
        layer_activation_bytes(workload(model), layout) + 2048 * 4 * 4 * 64 + (4 + 2 * 2) * logits
    )


def test_a_group_of_layers_keeps_one_input_and_is_whole_while_it_is_recomputed():
    parallel = ParallelConfig(
        tensor=1, pipeline=15, micro_batch_size=1, activation_recompute="full", recompute_interval=3
    )
    layout = PlannedLayout.of(parallel, 15)  # 7 layers a stage: groups of 3, 3 and 1
    assert (layout.recompute, layout.recompute_interval) == (True, 3)
    hidden, layer = 2 * 2048 * 20_480, layer_activation_bytes(workload(), layout)
    each, groups = (
        part(device_memory(workload(), changed(layout, recompute_interval=interval), 1920), "activations")
        for interval in (1, 3)
    )
    assert each - groups == pytest.approx(15 * (7 - 3) * hidden - (3 - 1) * layer)
    assert step_time(workload(), layout, CLUSTER, 1920, 0.5) == step_time(
        workload(), changed(layout, recompute_interval=1), CLUSTER, 1920, 0.5
    )


# Time


def test_bubble_of_1f1b():
    assert bubble_share(240, 35) == 34 / 274
    assert bubble_share(7, 1) == 0


@given(mfu=st.floats(0.05, 0.4), nodes=st.sampled_from([280, 560]), recompute=st.booleans())
def test_the_stated_mfu_is_what_the_full_batch_reaches(mfu, nodes, recompute):
    cluster, layout = Cluster.of("A100 80GB", nodes, 8), changed(LAYOUT, data=nodes // 35, recompute=recompute)
    rate = kernel_rate(workload(), layout, cluster, mfu)
    step = step_time(workload(), layout, cluster, 1920, rate)
    assert step.mfu == pytest.approx(mfu)
    assert step.step_s == pytest.approx(
        (step.micro_batches + 34) * (step.compute_s + step.tensor_s + step.pipeline_s) + step.data_s
    )
    assert step.tokens_per_second == pytest.approx(1920 * 2048 / step.step_s)


@pytest.mark.parametrize("recompute", [True, False])
def test_alone_a_device_computes_the_flops_of_ptdp(recompute):
    layout, cluster = planned(1, 1, 1, 1, recompute=recompute), Cluster.of("A100 80GB", 1, 1)
    step = step_time(workload(batch=4), layout, cluster, 4, 0.5)
    assert step.step_s == pytest.approx(ptdp_2021(workload().shape, 4, recompute) / (0.5 * 312e12))
    assert (step.tensor_s, step.pipeline_s, step.data_s, step.bubble) == (0, 0, 0, 0)


def test_transfers_of_mt_nlg():
    step = step_time(workload(), LAYOUT, CLUSTER, 1920, 0.5)
    hidden = 2 * 2048 * 20_480
    assert step.tensor_s == pytest.approx(6 * 3 * 2 * 7 / 8 * hidden / 300e9)
    assert step.pipeline_s == pytest.approx(2 * hidden / 8 / 25e9)
    parameters = stage_parameters(workload(), LAYOUT, "first")
    assert step.data_s == pytest.approx(7 / 8 * 10 * parameters / 25e9)


def test_replicas_of_one_node_talk_over_nvlink_and_those_of_a_ring_use_every_port():
    model = ModelConfig(num_layers=4, hidden_size=1024, num_attention_heads=16, padded_vocab_size=51_200)
    inside = step_time(workload(model), planned(1, 1, 8, 1, recompute=False), Cluster.of("A100 80GB", 1, 8), 1920, 0.5)
    across = step_time(workload(model), planned(1, 1, 16, 1, recompute=False), Cluster.of("A100 80GB", 2, 8), 1920, 0.5)
    exchanged = 10 * stage_parameters(workload(model), planned(1, 1, 8, 1, recompute=False), "first")
    large = Cluster.of("A100 80GB", 2, 16)  # 16 ports of a node carry more than one device's NVLink
    limited = step_time(workload(model), planned(1, 1, 32, 1, recompute=False), large, 1920, 0.5)
    assert inside.data_s == pytest.approx(7 / 8 * exchanged / 300e9)
    assert across.data_s == pytest.approx(15 / 16 * exchanged / (8 * 25e9))
    assert limited.data_s == pytest.approx(31 / 32 * exchanged / 300e9)


def test_days_are_the_sum_over_every_step_of_the_ramp():
    model = ModelConfig(num_layers=4, hidden_size=1024, num_attention_heads=16, padded_vocab_size=51_200)
    layout, cluster = planned(2, 2, 2, 1, recompute=False), Cluster.of("H100 80GB", 1, 8)
    for tokens in (2048 * 700, 2048 * 5_000):  # ends inside the ramp; ends after it
        ramped = workload(model, 64, tokens, rampup=Rampup(8, 8, 1000))
        every = sum(
            step_time(ramped, layout, cluster, ramped.schedule.batch_size(step), 0.5).step_s
            for step in range(1, ramped.schedule.num_steps + 1)
        )
        assert schedule_seconds(ramped, layout, cluster, 0.5) == pytest.approx(every)


def test_mt_nlg_on_280_nodes(mt_nlg):
    found = plan("mt-nlg-530b.yaml", mt_nlg, LAYOUT, CLUSTER, 0.302)
    assert found.full.step_s == pytest.approx(60.1, rel=0.002)
    assert found.full.tokens_per_second == pytest.approx(65_430, rel=0.002)
    assert found.full.bubble == 34 / 274
    assert (found.first.batch_size, found.first.micro_batches, found.first.bubble) == (32, 4, 34 / 38)
    assert found.fits
    full_steps = (80_087 - 14_475) * found.full.step_s / 86_400
    assert full_steps == pytest.approx(45.7, abs=0.05)
    assert full_steps < found.days < full_steps + 14_475 * found.full.step_s / 86_400
    assert found.days == pytest.approx(48.9, abs=0.1)


@pytest.mark.parametrize(("nodes", "data", "published_s", "tolerance"), [(350, 10, 50.2, 0.01), (420, 12, 44.4, 0.04)])
def test_mt_nlg_on_more_nodes_follows_from_280(nodes, data, published_s, tolerance):
    rate = kernel_rate(workload(), LAYOUT, CLUSTER, 0.302)
    found = estimate(workload(), changed(LAYOUT, data=data), Cluster.of("A100 80GB", nodes, 8), rate)
    assert found.full.step_s == pytest.approx(published_s, rel=tolerance)


def test_an_efficiency_beyond_the_peak_is_refused():
    with pytest.raises(UserError, match=r"--efficiency: found 0\.9, expected at most 0\.56.* of 8x35x8"):
        kernel_rate(workload(), LAYOUT, CLUSTER, 0.9)


# Layouts and refusals


@pytest.mark.parametrize(
    ("layout", "cluster", "message"),
    [
        (
            LAYOUT,
            Cluster.of("A100 80GB", 350, 8),
            r"parallel\.data: found 8: 8x35x8 takes 2,240 .* expected 10 .*data=10",
        ),
        (LAYOUT, Cluster.of("A100 80GB", 281, 8), r"parallel\.pipeline: found tensor 8 x pipeline 35 = 280"),
        (LAYOUT, Cluster.of("A100 80GB", 560, 4), r"parallel\.tensor: found 8, expected a divisor of 4"),
        (changed(LAYOUT, pipeline=28, data=10), CLUSTER, r"model\.num_layers: found 105, .* by parallel\.pipeline 28"),
        (changed(LAYOUT, micro_batch_size=7), CLUSTER, r"schedule: found a stage with global batch 1920 .* 7 x 8"),
    ],
)
def test_what_does_not_divide_is_refused_with_field_and_remedy(layout, cluster, message):
    with pytest.raises(ConfigError, match=message):
        check_layout("x.yaml", workload(), layout, cluster)


def test_heads_that_tensor_ranks_cannot_share():
    model = ModelConfig(num_layers=4, hidden_size=1020, num_attention_heads=12, padded_vocab_size=51_200)
    with pytest.raises(ConfigError, match=r"model\.num_attention_heads: found 12, .* by parallel\.tensor 8"):
        check_layout("x.yaml", workload(model), planned(8, 1, 1, 1, recompute=False), Cluster.of("H100", 1, 8))


def test_fp32_has_no_peak():
    with pytest.raises(ConfigError, match=r"precision: found fp32, expected bf16"):
        check_layout("x.yaml", replace(workload(), precision="fp32"), LAYOUT, CLUSTER)


@pytest.mark.parametrize(
    ("layout", "nodes", "field"),
    [
        (
            changed(LAYOUT, micro_batch_size=4, recompute=False),
            280,
            r"parallel\.activation_recompute: found 2\d\d\.\d GB",
        ),
        (changed(LAYOUT, micro_batch_size=30), 280, r"parallel\.micro_batch_size: found .* a smaller micro-batch"),
        (planned(8, 7, 1, 1, recompute=True), 7, r"parallel: found 201\.6 GB .* more tensor or pipeline parallelism"),
    ],
)
def test_what_does_not_fit_is_refused_with_field_and_remedy(layout, nodes, field):
    with pytest.raises(ConfigError, match=field):
        plan("x.yaml", workload(), layout, Cluster.of("A100 80GB", nodes, 8), 0.3)


def test_data_auto_takes_what_is_left():
    parallel = ParallelConfig(tensor=8, pipeline=35, micro_batch_size=1, activation_recompute="full")
    assert PlannedLayout.of(parallel, 2240) == LAYOUT
    assert PlannedLayout.of(parallel, 8).data == 1


def test_a_layout_gives_up_replicas_until_every_stage_divides(mt_nlg):
    assert changed(LAYOUT, data=10).fitted(mt_nlg.schedule) == LAYOUT
    assert LAYOUT.fitted(mt_nlg.schedule) == LAYOUT
    assert changed(LAYOUT, micro_batch_size=7).fitted(mt_nlg.schedule).data == 1


def test_devices_by_name_by_beginning_and_by_driver():
    assert Cluster.of("NVIDIA A100-SXM4-40GB", 1, 8).device.memory_bytes == 40 * 10**9
    assert Cluster.of("H200", 1, 8).device.tflops == 989.4
    assert all(peak.source.startswith("https://") and "https://" in links.source for peak, links in DEVICES.values())
    for name in ("A100", "V100"):
        with pytest.raises(UserError, match=f"found '{name}', expected one of A100 40GB, A100 80GB, H100 80GB"):
            Cluster.of(name, 1, 8)
    with pytest.raises(UserError, match="found 0 nodes"):
        Cluster.of("H100", 0, 8)


def test_search_lists_exactly_what_passes_the_checks(mt_nlg):
    def passes(layout):
        try:
            check_layout("x.yaml", mt_nlg, layout, CLUSTER)
        except ConfigError:
            return False
        return True

    possible = [
        planned(tensor, pipeline, 2240 // (tensor * pipeline) or 1, micro_batch, recompute=full)
        for tensor, pipeline, micro_batch, full in product(range(1, 9), range(1, 106), (1, 2, 4, 8, 16), (False, True))
    ]
    assert set(layouts(mt_nlg, CLUSTER)) == {layout for layout in possible if passes(layout)}


def test_search_ranks_what_fits(mt_nlg):
    found = search("x.yaml", mt_nlg, CLUSTER, 0.5)
    assert [each.days for each in found] == sorted(each.days for each in found)
    assert all(each.fits and each.layout.world_size == 2240 for each in found)
    assert found == search("x.yaml", mt_nlg, CLUSTER, 0.5)
    with_recompute = [each.layout for each in found if each.layout.recompute]
    assert with_recompute[0] == LAYOUT  # the layout that was trained is the best of those
    with pytest.raises(ConfigError, match=r"no layout of 8 A100 80GB: the leanest, 8x1x1, needs 1\d\d\d\.\d GB"):
        search("x.yaml", mt_nlg, Cluster.of("A100 80GB", 1, 8), 0.5)
    with pytest.raises(ConfigError, match="none divides"):
        search("x.yaml", workload(batch=7), Cluster.of("A100 80GB", 11, 1), 0.5)


# Predictions beside published trainings


@pytest.fixture(scope="module")
def accuracy():
    spec = importlib.util.spec_from_file_location("plan_accuracy", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_docs_hold_what_the_script_prints(accuracy):
    docs = (ROOT / "experiments" / "benchmarks" / "README.md").read_text()
    for table in accuracy.tables():
        assert table in docs


def test_ptdp_rows_follow_from_the_row_above_within_12_percent(accuracy):
    for above, row in zip(accuracy.PTDP_TABLE_1, accuracy.PTDP_TABLE_1[1:], strict=False):
        assert row.predicted(above.rate()) == pytest.approx(row.petaflops, rel=0.12)
        assert row.predicted(row.rate()) == pytest.approx(row.petaflops, rel=1e-9)


def test_every_training_that_was_done_fits(accuracy):
    for row in accuracy.PTDP_TABLE_1:
        check_layout("x.yaml", row.workload, row.layout, row.cluster)
        assert estimate(row.workload, row.layout, row.cluster, 0.5).fits


@pytest.mark.slow
@pytest.mark.trainer
def test_autograd_keeps_what_the_memory_formula_counts():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--count"],
        env=environment, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| layer", "| final norm"))]
    assert len(rows) == 8
    assert all(abs(float(row.split("|")[4].strip(" %"))) < 0.2 for row in rows)
