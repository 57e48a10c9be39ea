"""Speeds of published trainings."""

from pathlib import Path

import pytest

from treering.metrics.references import read_references
from treering.metrics.scaling import published_speeds

PUBLISHED = Path(__file__).parents[2] / "experiments" / "references"


def test_the_published_trainings():
    found = {(each.series, each.name, each.devices): each for each in published_speeds(read_references(PUBLISHED))}
    assert len(found) == 13
    mt_nlg = [found["MT-NLG 530B", "530B", devices] for devices in (2240, 2800, 3360)]
    assert [each.efficiency for each in mt_nlg] == [None, pytest.approx(121 / 126), pytest.approx(113 / 126)]
    assert [round(each.peak_share, 3) for each in mt_nlg] == [0.404, 0.388, 0.362]
    assert found["PTD-P", "1T", 3072].peak_share == pytest.approx(163 / 312)
    assert found["PTD-P", "1T", 3072].efficiency is None, "no other row has this model"
