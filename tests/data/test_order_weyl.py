"""Which component a sample comes from: counts against enumeration, select against count, MT-NLG's blend to 10**10."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treering.data.order.weyl import MAX_SAMPLES, Interleave, floor_sum, parse_weights
from treering.errors import UserError

# arXiv 2201.11990, table 2: the 15 corpora of MT-NLG.
MT_NLG_WEIGHTS = (
    "0.14336", "0.19336", "0.05689", "0.02897", "0.04771", "0.00873", "0.01007", "0.00208", "0.09446", "0.01359",
    "0.01588", "0.13017", "0.15652", "0.08962", "0.00859",
)  # fmt: skip


def interleave(seed, weights):
    return Interleave.of(seed, parse_weights([f"corpus-{i}" for i in range(len(weights))], weights))


@st.composite
def blends(draw):
    digits = draw(st.integers(1, 6))
    cuts = sorted(draw(st.sets(st.integers(1, 10**digits - 1), max_size=9)))
    shares = [high - low for low, high in pairwise([0, *cuts, 10**digits])]
    return interleave(draw(st.integers(0, 2**63 - 1)), [f"{share}e-{digits}" for share in shares])


@given(n=st.integers(0, 60), m=st.integers(1, 50), a=st.integers(0, 120), b=st.integers(0, 120))
def test_floor_sum_is_the_sum_of_floors(n, m, a, b):
    assert floor_sum(n, m, a, b) == sum((a * i + b) // m for i in range(n))


@given(
    blend=blends(), lo=st.one_of(st.integers(0, 5000), st.integers(0, MAX_SAMPLES - 500)), length=st.integers(1, 500)
)
def test_count_equals_enumeration(blend, lo, length):
    components = blend.components(lo, lo + length)
    counts = np.bincount(components, minlength=len(blend.weights))
    before, after = blend.counts(lo), blend.counts(lo + length)
    assert [end - start for start, end in zip(before, after, strict=True)] == counts.tolist()
    assert (sum(before), sum(after)) == (lo, lo + length)
    assert blend.count(0, lo) == before[0]
    assert blend.component(lo) == components[0]


@given(blend=blends(), data=st.data())
def test_select_inverts_count(blend, data):
    component = data.draw(st.integers(0, len(blend.weights) - 1))
    most = blend.count(component, MAX_SAMPLES)
    k = data.draw(st.one_of(st.integers(0, min(2000, most - 1)), st.integers(0, most - 1)))
    g = blend.select(component, k)
    assert blend.component(g) == component
    assert blend.count(component, g) == k
    with pytest.raises(UserError, match=r"is beyond sample 2\*\*63"):
        blend.select(component, most)


@settings(max_examples=30)
@given(blend=blends(), data=st.data())
def test_selects_equals_select(blend, data):
    component = data.draw(st.integers(0, len(blend.weights) - 1))
    last = data.draw(st.sampled_from([300, 10**6]))
    ks = np.array(sorted(data.draw(st.sets(st.integers(0, last), max_size=12))), dtype=np.int64)
    assert blend.selects(component, ks).tolist() == [blend.select(component, int(k)) for k in ks]


def test_selects_across_chunks_equals_enumeration():
    blend = interleave(3, MT_NLG_WEIGHTS)
    where = np.flatnonzero(blend.components(0, 2_000_000) == 4)
    ks = np.arange(0, len(where), 3)
    assert np.array_equal(blend.selects(4, ks), where[ks])


def test_thresholds_are_exact_and_cover_the_circle():
    blend = interleave(0, ["0.1", "0.2", "0.7"])
    assert blend.thresholds == (0, 2**64 // 10, 3 * 2**64 // 10, 2**64)
    mt_nlg = interleave(0, MT_NLG_WEIGHTS)
    assert sum(Fraction(weight) for weight in MT_NLG_WEIGHTS) == 1
    assert mt_nlg.thresholds[-1] == 2**64
    for (low, high), weight in zip(pairwise(mt_nlg.thresholds), MT_NLG_WEIGHTS, strict=True):
        assert abs(high - low - Fraction(weight) * 2**64) < 1


def test_a_point_on_a_threshold_belongs_to_the_component_that_begins_there():
    blend = interleave(0, ["0.25", "0.75"])
    for offset, owner in ((2**62 - 1, 0), (2**62, 1)):
        placed = Interleave(blend.thresholds, offset, blend.weights)
        assert placed.component(0) == owner
        assert placed.counts(1) == (1 - owner, owner)


@pytest.mark.parametrize(("g", "measured"), [(10**6, 2.0), (10**8, 2.0), (10**10, 4.0)])
def test_mt_nlg_stays_within_a_few_samples_of_its_weights(g, measured):
    # `measured` is the largest deviation of any corpus over these seeds; a sound order stays within about 5 samples.
    deviations = [
        abs(count - weight * g)
        for seed in (0, 1, 2, 3, 1234)
        for count, weight in zip(interleave(seed, MT_NLG_WEIGHTS).counts(g), map(Fraction, MT_NLG_WEIGHTS), strict=True)
    ]
    assert max(deviations) == measured


def test_mt_nlg_stays_close_at_every_sample_on_the_way():
    blend = interleave(1234, MT_NLG_WEIGHTS)
    components = blend.components(0, 500_000)
    for component, weight in enumerate(MT_NLG_WEIGHTS):
        realised = np.cumsum(components == component)
        assert np.abs(realised - float(weight) * np.arange(1, 500_001)).max() < 5


def test_golden_vectors():
    # Recorded orders of runs stand on these numbers: a change here needs a new algorithm name.
    assert interleave(0, ["1"]).offset == 6_983_987_746_807_893_430
    assert interleave(1234, ["1"]).offset == 5_884_305_373_587_994_584
    blend = interleave(1234, ["0.5", "0.3", "0.2"])
    assert "".join(map(str, blend.components(0, 40))) == "0210100102001021020010210100102001021020"
    assert interleave(1234, MT_NLG_WEIGHTS).counts(131_835_937) == (
        18_899_999, 25_491_798, 7_500_146, 3_819_287, 6_289_893, 1_150_927, 1_327_588, 274_218, 12_453_223, 1_791_650,
        2_093_555, 17_161_084, 20_634_962, 11_815_137, 1_132_470,
    )  # fmt: skip


def test_the_last_sample_numbers_do_not_overflow():
    blend = interleave(9, ["0.5", "0.3", "0.2"])
    assert sum(blend.counts(MAX_SAMPLES)) == MAX_SAMPLES
    tail = blend.components(MAX_SAMPLES - 100, MAX_SAMPLES)
    assert np.bincount(tail, minlength=3).tolist() == [
        after - before for before, after in zip(blend.counts(MAX_SAMPLES - 100), blend.counts(MAX_SAMPLES), strict=True)
    ]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["0.5", "0.4"], r"the 2 weights sum to 0\.9, expected exactly 1; they differ by 0\.1"),
        (["0.5", "0.50000000000000000000000000001"], r"sum to 1\.00000000000000000000000000001, .*-0\.00000000000000"),
        (["1.5", "-0.5"], r"corpus 'corpus-1' is '-0\.5', expected a decimal number above 0"),
        (["1", "0.0"], r"corpus 'corpus-1' is '0\.0', expected a decimal number above 0"),
        (["1/2", "1/2"], r"corpus 'corpus-0' is '1/2'"),
        (["1", "1"], "sum to 2, expected exactly 1; they differ by -1,"),
        ([], "the 0 weights sum to 0, expected exactly 1"),
    ],
)
def test_weights_that_are_no_blend(weights, message):
    with pytest.raises(UserError, match=message):
        interleave(0, weights)


def test_a_weight_that_no_sample_can_reach():
    with pytest.raises(UserError, match=r"component 0 is 1e-25, expected at least 2\*\*-64"):
        interleave(0, ["1e-25", "0." + "9" * 25])
