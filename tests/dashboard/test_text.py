"""Numbers and ages as the pages print them."""

import math

import pytest

from treering_dashboard.panels.text import age, count, duration, number, percent, plural, reading, size


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.5780, "", "3.58"),
        (12_345.6, "tokens/s", "12.3 k tokens/s"),
        (999_900, "", "1.00 M"),
        (1_075_200, "tokens", "1.08 M tokens"),
        (0.00006, "", "6.00e-5"),
        (0.000601, "", "6.01e-4"),
        (0.00423, "s", "4.23 ms"),
        (0.105, "TFLOP/s", "0.105 TFLOP/s"),
        (16.0, "samples", "16 samples"),
        (0.0, "", "0"),
        (math.inf, "", "∞"),
        (-math.inf, "nat", "-∞ nat"),
        (math.nan, "", "\u2013"),
        (math.nan, "nat", "NaN nat"),
    ],
)
def test_three_significant_digits_with_a_unit(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (4.2, "4.2 s"), (42, "42 s"), (210, "3.5 min"), (7_560, "2.1 h"), (432_000, "5.0 d")],
)
def test_a_span_takes_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_ages() -> None:
    assert age(125) == "2.1 min ago"
    assert age(-3) == "now"
    assert age(math.nan) == "\u2013"


def test_counts() -> None:
    assert count(1_075_200) == "1\u2009075\u2009200"
    assert plural(1, "step") == "1 step"
    assert plural(40, "step") == "40 steps"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (64, "64 B"), (2_500, "2.50 kB"), (54_503_211, "54.5 MB"), (2.29e9, "2.29 GB")]
)
def test_sizes(value: float, text: str) -> None:
    assert size(value) == text


def test_a_reading_that_is_no_number_is_not_a_missing_one() -> None:
    assert [reading(math.nan), reading(math.nan, "W"), reading(None), reading(3.5780)] == [
        "NaN",
        "NaN W",
        "\u2013",
        "3.58",
    ]


def test_a_hundred_percent_is_all() -> None:
    assert [percent(0.996), percent(0.29), percent(1.0), percent(0.0)] == [99, 29, 100, 0]
