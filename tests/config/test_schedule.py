"""The batch schedule and the learning rate against published logs and against a step-by-step walk."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treering.config.batch_schedule import Rampup, parse_tokens
from treering.config.model import OptimizerConfig, ScheduleConfig
from treering.config.schedule import Schedule
from treering.errors import ConfigError


def make(**changes):
    values = {
        "sequence_length": 2048,
        "train_tokens": 366 * 10**9,
        "global_batch_size": 2048,
        "peak_learning_rate": 6e-5,
        **changes,
    }
    return Schedule(**values)


# 12 B tokens of 2,048; arXiv 2201.11990, section 2.3.
MT_NLG = make(
    train_tokens=270 * 10**9,
    global_batch_size=1920,
    rampup=Rampup(32, 32, 12 * 10**9 // 2048),
    warmup_tokens=10**9,
    decay_tokens=340 * 10**9,
    peak_learning_rate=5e-5,
    min_learning_rate=5e-6,
)


@pytest.mark.parametrize(
    ("rampup", "global_batch_size", "iteration", "consumed"),
    [
        # BLOOM's, tr1-13B's and tr8-104B's published training logs.
        (Rampup(192, 16, 9_765_625), 2048, 12_695, 9_841_584),
        (Rampup(192, 16, 9_765_625), 2048, 31_214, 47_768_496),
        (Rampup(192, 16, 9_765_625), 2048, 42_780, 71_455_664),
        (Rampup(192, 16, 9_765_625), 2048, 85_376, 158_692_272),
        (Rampup(16, 16, 5_000_000), 1024, 29_020, 10_698_064),
        (Rampup(16, 16, 5_000_000), 1024, 168_000, 153_013_584),
        (Rampup(16, 16, 6_000_000), 2048, 6_900, 251_312),
        (Rampup(16, 16, 6_000_000), 2048, 16_800, 7_594_208),
    ],
)
def test_consumed_samples_equal_real_logs(rampup, global_batch_size, iteration, consumed):
    schedule = make(rampup=rampup, global_batch_size=global_batch_size)
    assert schedule.samples_after(iteration) == consumed
    assert schedule.step_of_sample(consumed) == iteration + 1
    assert schedule.step_of_sample(consumed - 1) == iteration


def test_mt_nlg_reaches_its_full_batch_and_its_end_where_published():
    full = MT_NLG.stages[-1]
    assert (full.first_step, full.batch_size) == (14_476, 1920)
    assert MT_NLG.samples_after(14_476) == 5_863_040
    assert MT_NLG.batch_size(14_475) == 1888
    assert MT_NLG.num_steps == 80_087
    assert MT_NLG.tokens_after(80_086) < 270 * 10**9 <= MT_NLG.tokens_after(80_087)
    assert len(MT_NLG.stages) == 60


def test_milestones_of_mt_nlg():
    milestones = MT_NLG.milestones()
    by_kind = {milestone.kind: milestone for milestone in milestones}
    assert [milestone.step for milestone in milestones] == sorted(milestone.step for milestone in milestones)
    assert (milestones[0].step, milestones[0].batch_size, milestones[0].consumed_samples) == (1, 32, 0)
    assert sum(milestone.kind == "batch_size" for milestone in milestones) == 59
    assert (by_kind["full_batch"].step, by_kind["full_batch"].consumed_samples) == (14_476, 5_861_120)
    assert by_kind["warmup_end"].learning_rate == pytest.approx(5e-5, rel=1e-4)
    assert by_kind["warmup_end"].consumed_tokens >= 10**9 > MT_NLG.tokens_after(by_kind["warmup_end"].step - 1)
    assert not by_kind["decay_end"].reached
    assert by_kind["decay_end"].learning_rate == 5e-6
    assert (by_kind["end"].step, by_kind["end"].reached) == (80_087, True)


def megatron_batch_size(consumed, rampup, global_batch_size):
    # num_microbatches_calculator.py, word for word.
    increments = (global_batch_size - rampup.start) // rampup.increment
    if consumed > rampup.samples:
        return global_batch_size
    return rampup.start + int(consumed / (rampup.samples / increments)) * rampup.increment


@given(
    start=st.integers(1, 64),
    increment=st.integers(1, 64),
    increments=st.integers(1, 40),
    samples=st.integers(1, 30_000),
)
def test_ramp_equals_a_walk_by_megatrons_rule(start, increment, increments, samples):
    rampup, full = Rampup(start, increment, samples), start + increment * increments
    schedule = make(rampup=rampup, global_batch_size=full)
    consumed = step = 0
    while consumed <= samples + 3 * full:
        step += 1
        size = megatron_batch_size(consumed, rampup, full)
        assert schedule.batch_size(step) == size
        assert schedule.sample_range(step) == (consumed, consumed + size)
        assert schedule.step_of_sample(consumed) == step
        assert schedule.step_of_sample(consumed + size - 1) == step
        consumed += size


def test_thresholds_that_rounding_moves_are_megatrons():
    # In doubles 49 * (1 / 49) < 1: such a rule takes an increment one sample later than exact arithmetic would.
    for samples in range(1, 3000):
        for increments in (3, 7, 49, 107):
            rampup = Rampup(1, 1, samples)
            schedule = make(rampup=rampup, global_batch_size=1 + increments)
            for stage in schedule.stages[1:]:
                here = megatron_batch_size(stage.start_sample, rampup, 1 + increments)
                before = megatron_batch_size(schedule.samples_before(stage.first_step - 1), rampup, 1 + increments)
                assert (here, before < here) == (stage.batch_size, True)


def test_explicit_steps_change_at_the_first_step_at_or_past_the_tokens():
    schedule = make(sequence_length=100, global_batch_size=8, batch_steps="0:3 1K:4 2.05K:8", train_tokens=10_000)
    assert [schedule.batch_size(step) for step in range(1, 10)] == [3, 3, 3, 3, 4, 4, 4, 8, 8]
    # 12 samples are consumed at 1,200 tokens, 24 at 2,400: each the first not below its threshold.
    assert [(stage.first_step, stage.start_sample) for stage in schedule.stages] == [(1, 0), (5, 12), (8, 24)]
    assert schedule.tokens_after(schedule.num_steps - 1) < 10_000 <= schedule.tokens_after(schedule.num_steps)


def test_a_threshold_inside_a_sample_waits_for_that_sample():
    schedule = make(sequence_length=100, global_batch_size=2, batch_steps="0:1 101:2")
    assert [schedule.batch_size(step) for step in (1, 2, 3)] == [1, 1, 2]


def test_constant_batch():
    schedule = make(global_batch_size=12, train_tokens=2048 * 100, sequence_length=2048)
    assert schedule.num_steps == 9
    assert schedule.num_samples == 108
    assert schedule.samples_after(0) == 0
    assert schedule.samples_before(1) == 0
    assert schedule.sample_range(9) == (96, 108)
    assert [milestone.kind for milestone in schedule.milestones()] == ["batch_size", "decay_end", "end"]


def test_learning_rate_is_warmup_then_cosine_of_consumed_tokens():
    schedule = make(
        sequence_length=10, global_batch_size=1, warmup_tokens=100, decay_tokens=500, train_tokens=1000,
        peak_learning_rate=4.0, min_learning_rate=1.0,
    )  # fmt: skip
    assert schedule.learning_rate(0) == 0.0
    assert schedule.learning_rate(5) == 2.0
    assert schedule.learning_rate(10) == 4.0
    assert schedule.learning_rate(30) == 2.5
    assert schedule.learning_rate(20) == pytest.approx(1 + 3 * 0.5 * (1 + math.cos(math.pi / 4)), rel=1e-15)
    assert schedule.learning_rate(50) == 1.0
    assert schedule.learning_rate(99) == 1.0
    assert schedule.step_learning_rate(5) == 2.0


def test_learning_rate_decays_to_the_end_of_training_by_default():
    schedule = make(global_batch_size=7, train_tokens=2048 * 100, min_learning_rate=6e-6)
    assert schedule.step_learning_rate(schedule.num_steps) == 6e-6
    assert schedule.step_learning_rate(schedule.num_steps - 1) > 6e-6


def test_first_stage_that_does_not_divide():
    schedule = make(rampup=Rampup(16, 8, 100_000), global_batch_size=64)
    assert schedule.check_divisible(8) is None
    assert schedule.check_divisible(16).batch_size == 24
    assert MT_NLG.check_divisible(8) is None
    assert MT_NLG.check_divisible(10).batch_size == 32


def test_a_stage_that_no_step_reaches_is_no_stage():
    # 5 samples a stage, 10 a step: every step passes over a stage.
    schedule = make(rampup=Rampup(10, 1, 50), global_batch_size=20)
    assert [stage.batch_size for stage in schedule.stages] == [10, 12, 14, 17, 20]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rampup": Rampup(32, 100, 1000)}, r"schedule\.rampup: found start 32 and increment 100, expected whole incr"),
        ({"rampup": Rampup(2048, 16, 1000)}, r"schedule\.rampup: found start 2048"),
        ({"rampup": Rampup(0, 16, 1000)}, r"schedule\.rampup\.start: found 0, expected at least 1"),
        ({"batch_steps": "0:768 250B:1536"}, r"global_batch_size: found 2048, expected 1536, the last size"),
        (
            {"batch_steps": "10:768", "global_batch_size": 768},
            r"batch_steps: found '10:768', expected a first entry at",
        ),
        ({"batch_steps": "0:4 1K:5 1K:6"}, "expected ascending numbers of tokens"),
        ({"batch_steps": "0:4 1Q:5"}, "found '1Q', expected a number of tokens"),
        ({"batch_steps": "0:4 1K"}, r"found '1K', expected TOKENS:BATCH_SIZE"),
        ({"batch_steps": "0:0"}, r"found '0:0', expected TOKENS:BATCH_SIZE"),
        ({"batch_steps": ""}, "expected a first entry at 0 tokens"),
        ({"batch_steps": "0:2048", "rampup": Rampup(1, 1, 1)}, "both rampup and batch_steps, expected one of them"),
        ({"train_tokens": 0}, r"schedule\.train_tokens: found 0, expected at least 1"),
        ({"warmup_tokens": 10, "decay_tokens": 9}, "expected between 0 and the end of the decay, 9 tokens"),
        ({"min_learning_rate": 1.0}, "found minimum 1.0, peak 6e-05"),
    ],
)
def test_contradictions_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        make(**changes)


def test_parse_tokens():
    assert [parse_tokens(text) for text in ("0", "4096", "2K", "1.5M", "250B", "1T")] == [
        0, 4096, 2000, 1_500_000, 250 * 10**9, 10**12,
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"found '1\.0001K'"):
        parse_tokens("1.0001K")


def test_from_config():
    schedule = ScheduleConfig.model_validate(
        {"train_tokens": 10**6, "global_batch_size": 64, "rampup": {"start": 16, "increment": 16, "samples": 500},
         "warmup_tokens": 1000}
    )  # fmt: skip
    optimizer = OptimizerConfig.model_validate({"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4})
    built = Schedule.from_config(schedule, optimizer, 128)
    assert built == Schedule(128, 10**6, 64, 1e-3, 1e-4, 1000, None, Rampup(16, 16, 500))
    assert built.stages[-1].batch_size == 64
    steps = schedule.model_copy(update={"rampup": None, "batch_steps": "0:32 1K:64"})
    assert [stage.batch_size for stage in Schedule.from_config(steps, optimizer, 128).stages] == [32, 64]


def test_samples_passed_over_move_the_samples_alone():
    """Batch sizes, learning rates and the end are those of a schedule that passes over nothing."""
    fields = {"sequence_length": 16, "train_tokens": 160 * 16, "global_batch_size": 16, "peak_learning_rate": 1e-3}
    plain = Schedule(**fields, rampup=Rampup(4, 4, 48))
    moved = Schedule(**fields, rampup=Rampup(4, 4, 48), skipped_samples=24)
    assert moved.num_steps == plain.num_steps
    for step in range(1, plain.num_steps + 1):
        lo, hi = plain.sample_range(step)
        assert moved.sample_range(step) == (lo + 24, hi + 24)
        assert moved.samples_after(step) == plain.samples_after(step)
        assert moved.batch_size(step) == plain.batch_size(step)
        assert moved.step_learning_rate(step) == plain.step_learning_rate(step)
        assert {moved.step_of_sample(sample) for sample in range(lo + 24, hi + 24)} == {step}
    assert moved.samples_of(3, 5) == (moved.sample_range(3)[0], moved.sample_range(5)[1])
