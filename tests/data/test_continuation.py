"""A data order that goes on from another one: no sample of a corpus is skipped or repeated, by brute force."""

import hashlib
from collections import Counter
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treering.config.resolved import ReadRange
from treering.config.resolved_blend import Continuation, ResolvedBlend, ResolvedComponent
from treering.config.start import FoundStart
from treering.data.blend.continuation import continued, positions_after
from treering.data.blend.joins import corpus_joins, join_lines
from treering.data.order.treering1 import DataOrder
from treering.errors import UserError


def digest(name):
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def blend(parts, seed=1234, sequence_length=8, continues=None):
    """`parts`: name -> (weight, number of samples)."""
    return ResolvedBlend(
        algorithm="treering-1",
        seed=seed,
        sequence_length=sequence_length,
        tokenizer=None,
        continues=continues,
        components=tuple(
            ResolvedComponent(
                corpus=name,
                weight=weight,
                digest=digest(name),
                num_tokens=samples * sequence_length + 1,
                num_documents=None,
            )
            for name, (weight, samples) in parts.items()
        ),
    )


class Before(FoundStart):
    """Where a run starts, without the runs' folders."""

    __slots__ = ("ranges",)

    def __init__(self, ranges, first_sample):
        object.__setattr__(self, "ranges", ranges)
        object.__setattr__(self, "first_sample", first_sample)

    @property
    def before(self):
        return self.ranges


def go_on(parts, ranges, first_sample=None, **options):
    return continued(blend(parts, **options), Before(ranges, ranges[-1].hi if first_sample is None else first_sample))


WEIGHTS = [("1",), ("0.5", "0.5"), ("0.7", "0.3"), ("0.13", "0.56", "0.31"), ("0.01", "0.99")]
SIZES = {"a": 7, "b": 40, "c": 1, "d": 13}


@st.composite
def chains(draw):
    """Runs that each go on from the one before, on blends and lengths of their own, some over skipped samples.

    A run whose schedule restarts counts its samples from 0 again.
    """
    seed, ranges, skipped = draw(st.integers(0, 99)), [], []
    for number in range(draw(st.integers(2, 5))):
        weights = draw(st.sampled_from(WEIGHTS))
        names = draw(st.permutations(list(SIZES)))[: len(weights)]
        parts = {name: (weight, SIZES[name]) for name, weight in zip(names, weights, strict=True)}
        first = ranges[-1].hi if ranges and draw(st.booleans()) else 0
        skip = draw(st.sampled_from([0, 0, 5])) if ranges else 0
        made = go_on(parts, ranges, first, seed=seed) if ranges else blend(parts, seed=seed)
        lo = first + skip
        ranges.append(ReadRange(str(number), made, lo, lo + draw(st.integers(1, 90))))
        skipped.append((made, first, lo))
    return ranges, skipped


@settings(max_examples=40)
@given(case=chains())
def test_across_every_joint_each_corpus_goes_on_at_its_very_next_sample(case):
    """Samples that a run reads or skips are its corpora's next positions, so an epoch holds each sample once."""
    ranges, skipped = case
    at, seen = Counter(), {}
    for each, (_, first, lo) in zip(ranges, skipped, strict=True):
        order = DataOrder(each.blend)
        names = [component.corpus for component in each.blend.components]
        assert first <= lo == each.lo
        for g in range(first, each.hi):
            sample = order.sample(g)
            name = names[sample.component]
            n = SIZES[name]
            assert sample.epoch == at[name] // n
            assert order.count(sample.component, g) == at[name]
            assert order.select(sample.component, at[name]) == g
            seen.setdefault((name, sample.epoch), []).append(sample.index)
            at[name] += 1
        assert order.counts(each.hi) == tuple(at[name] for name in names)
    for (name, _), indices in seen.items():
        assert len(indices) == len(set(indices)) <= SIZES[name]
        # All epochs but the last one are whole.
    for name, count in at.items():
        for epoch in range(count // SIZES[name]):
            assert sorted(seen[name, epoch]) == list(range(SIZES[name]))


@settings(max_examples=60)
@given(case=chains())
def test_the_joins_of_continued_runs_are_even_but_for_what_was_skipped(case):
    ranges, skipped = case
    for number in range(1, len(ranges)):
        joins = list(corpus_joins(ranges[:number], ranges[number], 1))
        _, first, lo = skipped[number]
        jumped = sum(join.never_read for join in joins)
        assert jumped == lo - first
        assert all(join.read_again == 0 for join in joins)
        assert bool(join_lines(joins)) == bool(jumped)


@pytest.mark.slow
@settings(max_examples=20)
@given(case=chains(), data=st.data())
def test_a_continued_order_answers_as_reading_sample_by_sample(case, data):
    ranges, _ = case
    last = ranges[-1]
    offsets = {
        name: np.array([0, *accumulate([5] * (samples * 8 // 5)), samples * 8 + 1], dtype=np.int64)
        for name, samples in SIZES.items()
    }
    order = DataOrder(last.blend, offsets)
    first, end = order.first_sample, order.first_sample + 60
    samples = order.samples_with_spans(first, end)
    lo = data.draw(st.integers(first, end))
    for component, part in enumerate(order.components):
        mine = [sample for sample in samples if sample.component == component]
        counts = Counter(sample.index for sample in mine if sample.g >= lo)
        assert order.read_counts(component, lo, end).tolist() == [counts[at] for at in range(part.num_samples)]
        held = {document for sample in mine for document in (span.document for span in sample.spans)}
        assert np.flatnonzero(order.touched(component, end)).tolist() == sorted(held)
        for document in range(len(part.document_offsets) - 1):
            numbers = [sample.g for sample in mine if document in {span.document for span in sample.spans}]
            assert order.exposures(component, document, end).tolist() == numbers


def test_golden_vectors():
    # Recorded runs stand on these numbers: a change here needs a new algorithm name.
    made = blend(
        {"a": ("0.2", 1250), "b": ("0.5", 540), "new": ("0.3", 12)},
        continues=Continuation(sample=5000, positions=(2750, 1500, 0)),
    )
    order = DataOrder(made)
    arrays = order.samples(5000, 9000)
    table = np.stack([arrays.component, arrays.epoch, arrays.index]).astype("<i8")
    assert (
        hashlib.sha256(table.tobytes()).hexdigest()
        == "067bfdefa8e5036fb001ac691abcb96b5c1660c7a0735a3eb4cba7b081db47cc"
    )
    assert made.digest == "sha256:ab77955b8a6d4a6fe7aa7a97778629afb9f2e06aa21cc2d4f0a1ae22f6dc690b"
    assert order.counts(9000) == (3551, 3499, 1200)
    sample = order.sample(10**15)
    assert (sample.component, sample.epoch, sample.index) == (0, 160000000001, 424)
    for ask in (lambda: order.count(0, 4999), lambda: order.samples(4999, 5001), lambda: order.select(0, 2749)):
        with pytest.raises(UserError, match="belong to the order that this one goes on from"):
            ask()
    assert order.select(2, 0) == 5002


def test_the_identity_of_an_order_that_goes_on_from_nothing_is_as_before():
    made = blend({"a": ("0.5", 10), "b": ("0.5", 10)})
    assert "continues" not in made.model_dump(mode="json")
    moved = made.model_copy(update={"continues": Continuation(sample=3, positions=(1, 2))})
    assert moved.digest != made.digest
    assert moved.alone.digest == made.digest


def test_one_order_has_one_identity():
    """The same weights go on as they are; a run that goes on from a continued one keeps that one's form."""
    parts, other = {"a": ("0.5", 40), "b": ("0.5", 40)}, {"a": ("0.1", 40), "b": ("0.9", 40)}
    root = ReadRange("root", blend(parts), 0, 33)
    assert go_on(parts, [root]) == blend(parts)
    changed = go_on(other, [root])
    assert changed.continues == Continuation(sample=33, positions=DataOrder(root.blend).counts(33))
    again = go_on(other, [root, ReadRange("second", changed, 33, 50)])
    assert again == changed
    back = go_on(parts, [root, ReadRange("second", changed, 33, 50)])
    assert back.continues.sample == 50


def test_a_corpus_that_was_left_out_for_a_while_goes_on_where_it_stopped():
    root = ReadRange("root", blend({"a": ("0.5", 40), "b": ("0.5", 40)}), 0, 20)
    second = ReadRange("second", go_on({"a": ("1", 40)}, [root]), 20, 35)
    third = go_on({"a": ("0.5", 40), "b": ("0.5", 40)}, [root, second])
    stopped = DataOrder(root.blend).counts(20)
    assert third.continues.positions == (stopped[0] + 15, stopped[1])


def test_joins_with_hand_counted_numbers():
    """Without `continue` the new order begins where its own weights would stand."""
    before = ReadRange("old", blend({"a": ("0.9", 1000), "gone": ("0.1", 1000)}), 0, 100)
    after = ReadRange("new", blend({"a": ("0.1", 1000), "new": ("0.9", 1000)}), 100, 400)
    old, new = DataOrder(before.blend), DataOrder(after.blend)
    stopped, begins, end = old.count(0, 100), new.count(0, 100), new.count(0, 400)
    assert (stopped, begins) == (90, 10)
    joins = {join.corpus: join for join in corpus_joins([before], after, 11)}
    mine = joins["a"]
    assert (mine.stopped, mine.begins, mine.read_again, mine.never_read) == (90, 10, end - 10, 0)
    read = {new.sample(g).index for g in range(100, 400) if new.sample(g).component == 0}
    was = {old.sample(g).index for g in range(100) if old.sample(g).component == 0}
    assert len(read & was) == mine.read_again == 29
    assert (joins["new"].stopped, joins["new"].begins, joins["new"].never_read) == (None, 90, 90)
    assert (joins["gone"].stopped, joins["gone"].begins, joins["gone"].even) == (10, None, True)
    assert join_lines(list(joins.values())) == [
        "run new does not go on where the runs before stopped reading (step 11):",
        "  a: stopped at position 90, begins at position 10: 29 samples are read again, 0 never",
        "  new: not read before, begins at position 90: 0 samples are read again, 90 never",
        "  `start_from.data: continue` lets every corpus go on where it stopped",
    ]
    turned = {join.corpus: join for join in corpus_joins([after], before, 1)}
    assert turned["a"].stopped == end


def test_another_seed_is_compared_by_the_samples_themselves():
    parts = {"a": ("1", 50)}
    before, after = ReadRange("old", blend(parts, seed=1), 0, 30), ReadRange("new", blend(parts, seed=2), 0, 30)
    was, now = ({DataOrder(each.blend).sample(g).index for g in range(30)} for each in (before, after))
    (join,) = corpus_joins([before], after, 4)
    assert not join.same_seed
    assert not join.even
    assert (join.read_again, join.never_read) == (len(was & now), 50 - len(was | now))
    assert "of another shuffle (another blend.seed)" in join_lines([join])[1]
    assert positions_after(after.blend, [before]) == (0,)
