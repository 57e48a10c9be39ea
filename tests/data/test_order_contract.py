"""What `treering.data.order.contract.Order` promises, held by brute force against every algorithm that there is."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.order import MegatronOrder
from treering.data.order.contract import UNDEFINED_EPOCH, Order
from treering.data.order.treering1 import DataOrder
from treering.errors import NotFoundError, UserError

WEIGHTS = [("1",), ("0.5", "0.5"), ("0.7", "0.3"), ("0.13", "0.56", "0.31")]


def treering_1(weights, lengths, sequence_length, seed, _samples):
    """Closed forms: the order has no end."""
    offsets = {name: np.concatenate([[0], np.cumsum(held)]).astype(np.int64) for name, held in lengths.items()}
    parts = [
        SimpleNamespace(corpus=name, digest=f"sha256:{name}", weight=weight, num_tokens=sum(lengths[name]))
        for name, weight in zip(lengths, weights, strict=True)
    ]
    blend = SimpleNamespace(
        algorithm="treering-1", seed=seed, sequence_length=sequence_length, components=parts, continues=None
    )
    return DataOrder(blend, offsets)


def megatron(weights, lengths, sequence_length, seed, samples):
    """Megatron's tables."""
    blend = MegatronBlend(tuple(lengths), tuple(map(float, weights)), seed, sequence_length, samples, "9,1")
    return MegatronOrder.build(blend, [np.array(held, dtype=np.int32) for held in lengths.values()])


@st.composite
def cases(draw):
    """An order of at least `samples` samples, and the tokens of each document of each corpus."""
    make = draw(st.sampled_from([treering_1, megatron]))
    weights = draw(st.sampled_from(WEIGHTS))
    sequence_length, samples = draw(st.integers(1, 9)), draw(st.integers(1, 80))
    lengths = {}
    for number in range(len(weights)):
        held = draw(st.lists(st.integers(1, 25), min_size=2, max_size=12))
        held[0] += max(0, sequence_length + 1 - held[0])
        lengths[f"corpus-{number}"] = held
    return make(weights, lengths, sequence_length, draw(st.integers(0, 99)), samples), samples, list(lengths.values())


@pytest.mark.slow
@settings(max_examples=60)
@given(case=cases())
def test_every_answer_is_that_of_reading_sample_by_sample(case):
    order, samples, lengths = case
    exposures, seen = {}, [0] * len(lengths)
    arrays = order.samples(0, samples)
    for g in range(samples):
        sample = order.sample(g)
        component = sample.component
        assert (sample.g, component, sample.epoch, sample.index) == (
            g, arrays.component[g], arrays.epoch[g], arrays.index[g],
        )  # fmt: skip
        assert order.select(component, seen[component]) == g
        assert order.count(component, g) == seen[component]
        assert sample.epoch == UNDEFINED_EPOCH or sample.epoch >= 0
        assert sum(span.end - span.start for span in sample.spans) == order.sequence_length + 1
        for span in sample.spans:
            assert 0 <= span.start < span.end <= lengths[component][span.document]
            exposures.setdefault((component, span.document), {})[g] = None
        seen[component] += 1
    assert order.samples_with_spans(0, samples) == [order.sample(g) for g in range(samples)]
    for g in {0, samples // 2, samples}:
        assert order.counts(g) == tuple(np.bincount(arrays.component[:g], minlength=len(lengths)).tolist())
        for component, held in enumerate(lengths):
            touched = set()
            for document in range(len(held)):
                expected = [at for at in exposures.get((component, document), {}) if at < g]
                assert order.exposures(component, document, g).tolist() == expected
                touched |= {document} if expected else set()
            assert np.flatnonzero(order.touched(component, g)).tolist() == sorted(touched)
            assert len(order.touched(component, g)) == len(held)
            assert order.documents_touched(component, g) == len(touched)


@settings(max_examples=30)
@given(case=cases(), data=st.data())
def test_exposures_of_documents_in_a_range_are_found_by_reading_it(case, data):
    order, samples, lengths = case
    lo = data.draw(st.integers(0, samples))
    hi = data.draw(st.integers(lo, samples))
    read = order.samples_with_spans(lo, hi)
    for component, held in enumerate(lengths):
        documents = np.array(data.draw(st.permutations(range(len(held)))), dtype=np.int64)
        found = order.document_exposures(component, documents, lo, hi)
        expected = [
            (item, sample.g, sample.epoch, sample.index)
            for item, document in enumerate(documents.tolist())
            for sample in read
            if sample.component == component and document in {span.document for span in sample.spans}
        ]
        columns = (found.item, found.sample, found.epoch, found.index)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
        assert {column.dtype for column in columns} == {np.dtype(np.int64)}


@settings(max_examples=30)
@given(case=cases(), data=st.data())
def test_a_range_is_its_samples(case, data):
    order, samples, _ = case
    lo = data.draw(st.integers(0, samples))
    hi = data.draw(st.integers(lo, samples))
    whole, part = order.samples(0, samples), order.samples(lo, hi)
    for name in ("component", "epoch", "index"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[lo:hi])
        assert getattr(part, name).dtype == np.int64


@pytest.mark.parametrize("make", [treering_1, megatron])
def test_a_pass_reads_what_it_can_and_neighbours_share_one_token(make):
    # 9 documents of 16 tokens: Megatron's split leaves 8 of 9, whose 128 tokens are 15 samples of 8.
    order = make(("1",), {"a": [16] * 9}, 8, 3, 15)
    arrays = order.samples(0, 15)
    assert sorted(arrays.index.tolist()) == list(range(15)) if make is megatron else len(set(arrays.index)) == 15
    assert set(arrays.epoch.tolist()) == {0}


@pytest.mark.parametrize("make", [treering_1, megatron])
def test_the_same_questions_have_no_answer(make):
    order: Order = make(("0.5", "0.5"), {"a": [30, 40], "b": [50, 20]}, 8, 1, 20)
    assert order.index_of("b") == 1
    assert [component.corpus for component in order.components] == ["a", "b"]
    for ask, error, message in (
        (lambda: order.index_of("c"), NotFoundError, r"no (corpus|data path) 'c', expected one of a, b"),
        (lambda: order.count(2, 5), UserError, r"no component 2, expected 0 to 1"),
        (lambda: order.count(0, -1), UserError, r"sample -1 asked for, expected"),
        (lambda: order.sample(-1), UserError, r"samples \[-1, 0\) asked for, expected"),
        (lambda: order.samples(5, 4), UserError, r"samples \[5, 4\) asked for, expected"),
        (
            lambda: order.select(0, 2**63),
            UserError,
            r"sample 9223372036854775808 (of component 0 is beyond|asked for)",
        ),
        (lambda: order.samples(0, 2**63 + 1), UserError, rf"samples \[0, {2**63 + 1}\) asked for, expected"),
        (lambda: order.exposures(0, 2, 5), NotFoundError, r"a'?: no document 2, expected 0 to 1"),
        (lambda: order.exposures(0, -1, 5), NotFoundError, r"a'?: no document -1, expected 0 to 1"),
    ):
        with pytest.raises(error, match=message):
            ask()
