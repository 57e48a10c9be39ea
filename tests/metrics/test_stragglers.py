"""Which ranks are called slow: peers of one stage, noise, whole nodes, and what their sensors say."""

import numpy as np
import pytest

from treering.metrics.device_grid import THROTTLED, XID, DeviceGrid
from treering.metrics.stragglers import RankSteps, rank_steps, stragglers, whole_nodes
from treering.metrics.symptoms import symptoms
from treering.runlog.telemetry.events import Events, Xid
from treering.runlog.telemetry.readings import Readings


def grid(ranks: int, per_node: int = 8) -> DeviceGrid:
    numbers = np.arange(ranks)
    return DeviceGrid(numbers // per_node * per_node, numbers, numbers % per_node, {}, {})


def computed(values: np.ndarray, per_stage: int = 0) -> RankSteps:
    ranks = np.arange(len(values))
    peers = ranks // per_stage if per_stage else np.zeros_like(ranks)
    return RankSteps(np.arange(values.shape[1]), ranks, values, peers)


def test_of_equal_ranks_none_is_flagged_and_two_percent_are_found() -> None:
    random = np.random.default_rng(3)
    flagged = []
    for trial in range(50):
        values = random.normal(1.0, 0.02, (2240, 40)) * random.normal(1.0, 0.1, 40)  # a step may be slow for all
        assert not any(each.flagged for each in stragglers(computed(values), grid(2240), {}))
        values[trial] *= 1.05
        flagged.append([each.rank for each in stragglers(computed(values), grid(2240), {}) if each.flagged])
    assert flagged == [[trial] for trial in range(50)]


def test_ranks_of_another_stage_are_no_peers() -> None:
    """The last stage computes the loss as well: 20 % more work is no fault."""
    random = np.random.default_rng(4)
    values = random.normal(1.0, 0.005, (32, 30))
    values[16:] *= 1.2
    values[5] *= 1.06
    values[:, 3] = np.nan
    values[7, 4] = np.nan
    (slow,) = (each for each in stragglers(computed(values, 16), grid(32), {}) if each.flagged)
    assert (slow.rank, slow.behind, slow.seen) == (5, 29, 29)
    assert slow.excess == pytest.approx(0.06, abs=0.005)
    assert [each.rank for each in stragglers(computed(values), grid(32), {}) if each.flagged] == []


def test_with_three_peers_nobody_is_judged() -> None:
    found = stragglers(computed(np.array([[1.0] * 5, [1.0] * 5, [2.0] * 5])), grid(3), {})
    assert found[0].rank == 2
    assert np.isnan(found[0].score)
    assert not found[0].flagged


def test_a_node_of_slow_ranks_is_a_slow_node() -> None:
    random = np.random.default_rng(5)
    values = random.normal(1.0, 0.005, (64, 30))
    values[8:16] *= 1.05
    values[20] *= 1.05
    flagged = [each for each in stragglers(computed(values), grid(64), {}) if each.flagged]
    assert sorted(each.rank for each in flagged) == [*range(8, 16), 20]
    assert whole_nodes(flagged, grid(64)) == {8: 8}


def test_readings_belong_to_the_last_step_that_had_ended_and_more_steps_share_columns() -> None:
    steps, ended_at = np.arange(11, 18), np.arange(7.0)
    times = np.repeat(np.arange(7.0) + 0.5, 2)
    readings = Readings.of(times, [0] * 14, [0, 1] * 7, [0, 1] * 7, {"rank/compute": np.arange(14.0)})
    each = rank_steps(readings, "rank/compute", steps, ended_at, ranks_per_stage=0, most=7)
    assert each.steps.tolist() == steps.tolist()
    assert each.values.tolist() == [[0, 2, 4, 6, 8, 10, 12], [1, 3, 5, 7, 9, 11, 13]]
    few = rank_steps(readings, "rank/compute", steps, ended_at, ranks_per_stage=1, most=3)
    assert few.steps.tolist() == [13, 16, 17]
    assert few.values.tolist() == [[2, 8, 12], [3, 9, 13]]
    assert few.peers.tolist() == [0, 1]
    assert rank_steps(readings, "rank/step", steps, ended_at, ranks_per_stage=0, most=3).values.size == 0
    early = rank_steps(readings, "rank/compute", steps, ended_at + 100, ranks_per_stage=0, most=3)
    assert early.values.size == 0, "before the first step had ended"


def test_cells_and_symptoms() -> None:
    """Two nodes of two devices, two samples, a node's own reading."""
    times = [1.0] * 5 + [2.0] * 5
    of = ([0, 0, 2, 2, 2] * 2, [0, 1, 2, 3, -1] * 2, [0, 1, 0, 1, -1] * 2)
    values = {
        "device/power": [400, 402, 398, 200, None, 400, 402, 398, 220, None],
        THROTTLED: [4, 0, 4, 0x44, None, 0, 0, 4, 0x04, None],
        "device/ecc_corrected": [5, 0, 0, 0, None, 5, 3, 0, 0, None],
        "host/cpu_utilisation": [None] * 4 + [10.0] + [None] * 4 + [30.0],
    }
    events = Events(xids=[Xid(1.0, 2, 0, 79), Xid(1.5, 2, 0, 48)])
    found = DeviceGrid.of(Readings.of(times, *of, values), events)
    assert found.ranks.tolist() == [0, 1, -1, 2, 3]
    np.testing.assert_array_equal(found.values["device/power"], [400, 402, np.nan, 398, 210])
    np.testing.assert_array_equal(found.values[THROTTLED], [0, 0, np.nan, 0, 50])
    np.testing.assert_array_equal(found.values["device/ecc_corrected"], [5, 3, np.nan, 0, 0])
    np.testing.assert_array_equal(found.growth["device/ecc_corrected"], [0, 3, np.nan, 0, 0])
    np.testing.assert_array_equal(found.values[XID], [0, 0, np.nan, 2, 0])
    cells, rows = found.columns_of("device/power")
    assert (cells.tolist(), rows.tolist()) == ([0, 1, 3, 4], [0, 1, 0, 1])
    texts = {cell: [(each.text, each.fault) for each in every] for cell, every in symptoms(found, events).items()}
    assert texts == {
        1: [("new corrected ECC errors: 3", False)],
        3: [("XID errors: 2 (79, 48)", True)],
        4: [
            ("clock slowed by heat or power supply in 50 % of the readings", True),
            ("power 210 W, median 399", False),
        ],
    }


def test_what_a_node_says_reaches_its_ranks() -> None:
    values = {"host/cpu_utilisation": [90.0, 10.0, 10.0]}
    found = DeviceGrid.of(Readings.of([1.0] * 3, [0, 1, 2], [-1] * 3, [-1] * 3, values), Events())
    with_ranks = DeviceGrid(
        np.array([0, 0, 1]), np.array([-1, 0, 1]), np.array([-1, 0, 0]),
        {"host/cpu_utilisation": np.array([90.0, np.nan, 10.0])}, {},
    )  # fmt: skip
    assert [each.text for each in symptoms(found, Events())[0]] == ["CPU of the node 90 % busy, median 10"]
    assert set(symptoms(with_ranks, Events())) == {0, 1}
