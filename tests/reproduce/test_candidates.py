"""Settings that can change numbers are candidates; others are not."""

import pytest

from treering.metrics.compare import ABSENT, Difference
from treering.reproduce.candidates import config_candidate


@pytest.mark.parametrize(
    ("path", "values", "text"),
    [
        ("recipe.optimizer.epsilon", (1e-8, 1e-6), "config: optimizer.epsilon 1e-08 to 1e-06"),
        ("attempt.hooks", ("a", ABSENT), "config: attempt.hooks a to —"),
    ],
)
def test_a_setting_that_decides_numbers_is_a_candidate(path, values, text):
    found = config_candidate((Difference("attempt.telemetry.interval_s", (1, 2)), Difference(path, values)))
    assert (found.kind, found.text, found.outcome) == ("config", text, "untested")


def test_a_setting_that_only_watches_is_none():
    assert config_candidate((Difference("attempt.checkpoint.every_steps", (4, 8)),)) is None
    assert config_candidate(None) is None
