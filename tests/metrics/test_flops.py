"""The FLOPs formulas against published rows: MT-NLG (arXiv 2201.11990), PTD-P (2104.04473), BLOOM's log, PaLM."""

from dataclasses import replace

import pytest

from treering.config.model import ModelConfig
from treering.errors import UserError
from treering.metrics.flops import (
    FLOPS_FORMULAS,
    ModelShape,
    hardware_flops,
    peak_of,
    ptdp_2021,
    tflops_per_device,
    utilisation,
)
from treering.metrics.parameters import Parameters

MT_NLG = ModelShape(105, 20480, 128, 2048, 51200)
BLOOM = ModelShape(70, 14336, 112, 2048, 250880)
GPT3 = ModelShape(96, 12288, 96, 2048, 51200)
A100 = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("devices", "step_time_s", "hardware", "hfu", "mfu"),
    [(2240, 60.1, 125.7, 40.3, 30.2), (2800, 50.2, 120.4, 38.6, 28.9), (3360, 44.4, 113.5, 36.4, 27.3)],
)
def test_mt_nlg_rows(devices: int, step_time_s: float, hardware: float, hfu: float, mfu: float) -> None:
    def reading(formula: str, recompute: bool) -> float:
        return tflops_per_device(
            formula, MT_NLG, batch_size=1920, step_time_s=step_time_s, num_devices=devices, recompute=recompute
        )

    assert reading("ptdp-2021", True) == pytest.approx(hardware, abs=0.051)
    # The published percentages are partly rounded, partly cut off (28.96 stands as 28.9).
    assert utilisation(reading("ptdp-2021", True), A100) == pytest.approx(hfu / 100, abs=7e-4)
    assert utilisation(reading("ptdp-2021", False), A100) == pytest.approx(mfu / 100, abs=7e-4)
    assert reading("megatron-2023", False) == pytest.approx(reading("ptdp-2021", False), rel=1e-12)


def test_bloom_iteration_12695_equals_its_log() -> None:
    tflops = tflops_per_device("ptdp-2021", BLOOM, batch_size=2048, step_time_s=105.22, num_devices=384, recompute=True)
    assert tflops == pytest.approx(149.02, abs=0.005)


def test_megatron_readme_175b() -> None:
    tflops = tflops_per_device("ptdp-2021", GPT3, batch_size=1536, step_time_s=32, num_devices=1024, recompute=True)
    assert tflops == pytest.approx(137.7, abs=0.05)


# Parameters (B), heads, h, l, GPUs, batch, TFLOP/s per GPU, % of peak, aggregate PFLOP/s: table 1 of the paper.
PTDP_TABLE_1 = [
    (1.7, 24, 2304, 24, 32, 512, 137, 44, 4.4),
    (3.6, 32, 3072, 30, 64, 512, 138, 44, 8.8),
    (7.5, 32, 4096, 36, 128, 512, 142, 46, 18.2),
    (18.4, 48, 6144, 40, 256, 1024, 135, 43, 34.6),
    (39.1, 64, 8192, 48, 512, 1536, 138, 44, 70.8),
    (76.1, 80, 10240, 60, 1024, 1792, 140, 45, 143.8),
    (145.6, 96, 12288, 80, 1536, 2304, 148, 47, 227.1),
    (310.1, 128, 16384, 96, 1920, 2160, 155, 50, 297.4),
    (529.6, 128, 20480, 105, 2520, 2520, 163, 52, 410.2),
    (1008.0, 160, 25600, 128, 3072, 3072, 163, 52, 502.0),
]


@pytest.mark.parametrize(
    ("billions", "heads", "h", "layers", "gpus", "batch", "tflops", "percent", "petaflops"), PTDP_TABLE_1
)
def test_ptdp_table_1(  # noqa: PLR0917  (one argument a column of the table)
    billions: float, heads: int, h: int, layers: int, gpus: int, batch: int, tflops: int, percent: int, petaflops: float
) -> None:
    shape = ModelShape(layers, h, heads, 2048, 51200)
    model = ModelConfig(num_layers=layers, hidden_size=h, num_attention_heads=heads, padded_vocab_size=51200)
    assert Parameters.of(model, 2048).total / 1e9 == pytest.approx(billions, abs=0.06)
    # The step time that the row implies gives the row back: FLOPs ÷ aggregate rate.
    step_time_s = FLOPS_FORMULAS["ptdp-2021"](shape, batch, True) / (petaflops * 1e15)
    reading = tflops_per_device(
        "ptdp-2021", shape, batch_size=batch, step_time_s=step_time_s, num_devices=gpus, recompute=True
    )
    assert reading == pytest.approx(petaflops * 1e3 / gpus, rel=1e-12)
    assert round(reading) == pytest.approx(tflops, abs=1)
    share = utilisation(reading, A100)
    assert share is not None
    assert 100 * share == pytest.approx(percent, abs=1.0)


def test_shape_of_a_config() -> None:
    model = ModelConfig(num_layers=105, hidden_size=20480, num_attention_heads=128, padded_vocab_size=51200)
    assert ModelShape.of(model, 2048) == replace(MT_NLG, ffn_hidden_size=81920)


def test_recompute_reads_a_third_more_than_model_flops() -> None:
    with_recompute = FLOPS_FORMULAS["ptdp-2021"](MT_NLG, 1920, True)
    assert with_recompute / FLOPS_FORMULAS["megatron-2023"](MT_NLG, 1920, True) == pytest.approx(1.33, abs=0.005)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("shape", [MT_NLG, BLOOM, GPT3])
def test_hardware_flops_are_those_of_ptdp_2021(shape: ModelShape, recompute: bool) -> None:
    assert hardware_flops(shape, 1920, recompute) == pytest.approx(ptdp_2021(shape, 1920, recompute), rel=1e-12)


def test_megatron_2023_counts_groups_gating_and_experts() -> None:
    base = replace(MT_NLG, padded_vocab_size=0, sequence_length=1)
    grouped = replace(
        base, num_query_groups=8, ffn_hidden_size=2 * 20480, swiglu=True, experts_per_token=2, kv_channels=160
    )
    flops = FLOPS_FORMULAS["megatron-2023"]
    unit = 12 * 105 * 20480**2
    attention = 1 + 1 / 20480
    assert flops(base, 1, False) / unit == pytest.approx(attention + 1 + 4)
    assert flops(grouped, 1, False) / unit == pytest.approx(attention + 8 / 128 + 2 * 2 * 1.5)
    assert flops(replace(grouped, kv_channels=320), 1, False) / unit == pytest.approx(2 * (attention + 8 / 128) + 6)


@pytest.mark.parametrize(
    ("name", "tflops", "gigabytes"),
    [
        ("NVIDIA A100-SXM4-40GB", 312.0, 40),
        ("NVIDIA A100 80GB PCIe", 312.0, 80),
        ("NVIDIA H100 80GB HBM3", 989.4, 80),
        ("NVIDIA H200", 989.4, 141),
    ],
)
def test_known_peaks_name_their_source(name: str, tflops: float, gigabytes: int) -> None:
    peak = peak_of(name)
    assert peak is not None
    assert (peak.tflops, peak.memory_bytes) == (tflops, gigabytes * 10**9)
    assert peak.source.startswith("https://www.nvidia.com/")


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Tesla V100", ""],
)
def test_unknown_devices_get_no_utilisation(name: str) -> None:
    assert peak_of(name) is None
    assert utilisation(100.0, name) is None


def test_wrong_arguments_say_what_was_expected() -> None:
    with pytest.raises(UserError, match="found 'mine', expected one of ptdp-2021, megatron-2023"):
        tflops_per_device("mine", MT_NLG, batch_size=1, step_time_s=1, num_devices=1)
    with pytest.raises(UserError, match="found a step of 0 s on 1 devices, expected a positive"):
        tflops_per_device("ptdp-2021", MT_NLG, batch_size=1, step_time_s=0, num_devices=1)
    with pytest.raises(UserError, match="on 0 devices"):
        tflops_per_device("ptdp-2021", MT_NLG, batch_size=1, step_time_s=1, num_devices=0)
