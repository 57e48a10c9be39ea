"""Rounding noise and real divergence are told apart, on trainings whose cause is known and on planted series."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from treering.reproduce.growth import WINDOW, judge_growth, judge_losses, precision_of, rounding_size
from treering.reproduce.numbers import FieldDifference, NumbersComparison

SERIES = json.loads(
    (Path(__file__).parents[2] / "experiments" / "benchmarks" / "results" / "divergence.json").read_text()
)
ROUNDING = ("tensor parallel 2", "data parallel 2", "micro-batch of 2", "math attention")
TRAINED = [(kind, name) for kind, series in SERIES["losses"].items() for name in series if name != "unchanged"]
SMALL = {
    # Effects that are as small as rounding noise, or larger and without growth: nothing wrong is said of them.
    ("fp32", "epsilon 1e-8 to 1e-7"): "unknown",
    ("bf16", "peak rate 1 % higher"): "unknown",
    ("bf16", "weight decay 0.1 to 0.11"): "rounding",
    ("bf16", "epsilon 1e-8 to 1e-7"): "rounding",
}


@pytest.mark.parametrize(("precision", "name"), TRAINED)
def test_trainings_with_a_known_cause_are_judged_rightly(precision, name):
    series = SERIES["losses"][precision]
    first, second = np.array(series["unchanged"]), np.array(series[name])
    found = judge_losses(np.arange(1, len(first) + 1), first, second, precision, SERIES["tokens"])
    assert found.kind == ("rounding" if name in ROUNDING else SMALL.get((precision, name), "real")), found.text
    assert len(found.steps) == WINDOW


def losses(differences, start=3):
    """Two series of losses around 3 that differ relatively as given, from a step on."""
    rng = np.random.default_rng(1)
    first = 3 + rng.random(start + len(differences))
    second = first.copy()
    second[start:] *= 1 + np.array(differences)
    return np.arange(1, len(first) + 1), first, second


NOISE = 1e-7 * np.random.default_rng(2).random(40)


@pytest.mark.parametrize(
    ("differences", "precision", "kind", "words"),
    [
        (NOISE, "fp32", "rounding", "a cause with as small an effect is not excluded"),
        (NOISE * 1000, "bf16", "rounding", "rounding gives 2.4e-04"),
        (NOISE * 1000, "fp32", "real", "up to"),
        (NOISE * 10, "fp32", "unknown", "`treering reproduce`"),
        (1e-7 * 1.6 ** np.arange(20), "fp32", "real", "times as much at the end as at the beginning"),
        (1e-6 * np.ones(3), "fp32", "unknown", "compare at least 6 steps"),
        ([math.nan], "fp32", "real", "up to inf"),
        (NOISE, None, "rounding", "rounding gives between 2.4e-07 and 2.4e-04"),
        (NOISE * 1000, None, "unknown", "rounding gives between"),
        (np.ones(20) * 0.1, None, "real", "up to"),
    ],
)
def test_planted_differences(differences, precision, kind, words):
    found = judge_losses(*losses(differences), precision, 256)
    assert found.kind == kind, found.text
    assert words in found.text


def test_only_the_beginning_counts():
    late = np.concatenate([NOISE[:WINDOW], np.full(20, 0.3)])
    found = judge_losses(*losses(late), "fp32", 256)
    assert (found.kind, found.steps[0]) == ("rounding", 4)
    assert found.text.endswith("Later losses differ by up to 2.3e-01.")


def test_losses_that_were_logged_with_four_digits_differ_by_their_last_digit():
    steps, first, second = losses(1e-4 * np.random.default_rng(3).random(20))
    assert judge_losses(steps, first, second, "fp32", 256).kind == "real"
    found = judge_losses(steps, first.round(4), second.round(4), "fp32", 256)
    assert found.kind == "unknown"
    assert judge_losses(steps, first.round(3), second.round(3), "fp32", 256).kind == "rounding"


def test_the_size_of_rounding_falls_with_the_tokens_and_not_below_the_last_bit():
    assert rounding_size("bf16", 256) == (2.0**-12, 2.0**-12)
    assert rounding_size("bf16", 1e12) == rounding_size("fp32", 1) == (2.0**-22, 2.0**-22)
    assert rounding_size("bf16", None) == (2.0**-22, 2.0**-8)


def numbers(*names):
    fields = tuple(FieldDifference(name, 3, 1.0, 2.0, 0.5, 1) for name in names)
    return NumbersComparison(10, 10, 10, 3 if names else None, 2, fields, fields, (), (), (), {})


def test_a_learning_rate_is_no_rounding():
    found = judge_growth(numbers("optim/learning_rate", "train/loss"), losses(NOISE), "bf16", 256)
    assert (found.kind, found.steps) == ("real", ())
    assert "optim/learning_rate follows from the config alone" in found.text


def test_equal_losses_say_nothing():
    same = losses(np.zeros(20))
    assert judge_growth(numbers(), same, "fp32", 256) is None
    found = judge_growth(numbers("train/grad_norm"), same, "fp32", 256)
    assert (found.kind, "only train/grad_norm differs" in found.text) == ("unknown", True)
    nothing = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    assert "no loss was recorded" in judge_growth(numbers("acc"), nothing, None, None).text


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"bf16": True, "fp16": False}, "bf16"),
        ({"fp16": True}, "fp16"),
        ({"trainer": {"precision": "bf16-mixed"}}, "bf16"),
        ({"precision": "32-true"}, "fp32"),
        ({"torch_dtype": "x", "dtype": "bfloat16"}, "bf16"),
        ({"dtype": "torch.float32"}, "fp32"),
        ({"lr": 0.1}, None),
    ],
)
def test_the_precision_of_another_trainer_is_read_from_usual_names(config, precision):
    assert precision_of(config) == precision
