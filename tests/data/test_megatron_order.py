"""Megatron's order against megatron-core itself: the real builder's datasets, every sample of them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import megatron_data
import numpy as np
import pytest

from treering.data.corpus.indexed import TokenFile, read_sequence_lengths
from treering.data.megatron import greedy
from treering.data.megatron.blend import MegatronBlend, sum_in_turn
from treering.data.megatron.greedy import interleave
from treering.data.megatron.lineage import LINEAGES
from treering.data.megatron.order import MegatronOrder
from treering.data.order.contract import UNDEFINED_EPOCH
from treering.errors import EvidenceError, NotFoundError, UserError

RANDOM = np.random.default_rng(11)
CORPORA = {
    "wiki": RANDOM.integers(1, 60, 30).tolist(),
    "books": RANDOM.integers(100, 300, 4).tolist(),
    "code": RANDOM.integers(0, 9, 100).tolist(),  # with empty documents
    "tiny": [5, 1, 8],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The pairs, whose tokens count on from corpus to corpus."""
    folder, first = tmp_path_factory.mktemp("pairs"), 0
    for name, lengths in CORPORA.items():
        first += len(megatron_data.write_pair(folder / name, lengths, first))
    assert first < 60_000
    return folder


@pytest.fixture(scope="module")
def group():
    pytest.importorskip("megatron.core.datasets.gpt_dataset")
    with megatron_data.process_group():
        yield


def blend(  # noqa: PLR0917 - in the order of the cases
    files, names, weights, num_samples, split="100,0,0", seed=7, length=16, **changes
):
    return MegatronBlend(
        tuple(str(files / name) for name in names.split()), weights, seed, length, num_samples, split, **changes
    )


def order_of(made):
    return MegatronOrder.build(made, [read_sequence_lengths(Path(f"{prefix}.idx")) for prefix in made.prefixes])


def compare(made):
    """Holds every sample of our order against the datasets that megatron-core builds."""
    with TemporaryDirectory() as cache:  # a fresh one: Megatron's key leaves out `extra_token`, among other things
        theirs, ours = megatron_data.build(made, Path(cache)), order_of(made)
    assert ours.num_samples == len(theirs)
    arrays = ours.samples(0, len(theirs))
    pairs = [TokenFile.open(Path(f"{prefix}.bin"), Path(f"{prefix}.idx")) for prefix in made.prefixes]
    seen = Counter()
    for g in range(len(theirs)):
        component, dataset, k = megatron_data.place(theirs, g)
        tokens, documents = dataset._query_document_sample_shuffle_indices(k)
        sample = ours.sample(g)
        assert (sample.component, sample.index) == (component, int(dataset.shuffle_index[k]))
        assert (arrays.component[g], arrays.index[g], arrays.epoch[g]) == (component, sample.index, sample.epoch)
        assert k == seen[component]
        seen[component] += 1
        file = pairs[component]
        held = [
            file.tokens[file.document_offsets[span.document] + span.start :][: span.end - span.start]
            for span in sample.spans
        ]
        read = np.concatenate(held)
        assert np.array_equal(read, tokens[: len(read)])
        assert all(tokens[len(read) :] == -1), "what Megatron pads"
        # Megatron names documents of which a sample holds no token, too: empty ones, and one that it begins behind.
        named = [document for document in documents.tolist() if file.sequence_lengths[document]]
        assert named[len(named) - len(sample.spans) :] == [span.document for span in sample.spans]
        assert len(named) - len(sample.spans) <= (not made.extra_token)
    for part, dataset in zip(ours.components, getattr(theirs, "datasets", [theirs]), strict=True):
        assert np.array_equal(part.indices.documents, dataset.document_index)
        assert np.array_equal(part.indices.samples, dataset.sample_index)
        assert np.array_equal(part.indices.shuffle, dataset.shuffle_index)
    return ours, theirs


@pytest.mark.parametrize(("length", "seed"), [(3, 1234), (16, 1), (61, 2)])
@pytest.mark.parametrize(
    ("names", "weights", "num_samples", "split"),
    [
        ("wiki", None, 10, "100,0,0"),  # less than an epoch
        ("wiki", None, 170, "969,30,1"),  # some epochs
        ("wiki", None, None, "80,15,5"),  # one epoch
        ("wiki", (3.0,), 100, "100,0,0"),  # a blend of one
        ("wiki code", (0.3, 0.7), 200, "90,5,5"),
        ("wiki books code tiny", (4.0, 3.0, 2.5, 0.5), 300, "100,0,0"),
        ("wiki books code", None, 60, "50,25,25"),  # weighed by their lengths
        ("wiki books code", None, None, "50,25,25"),  # exhaustive
        ("books tiny", (1.0, 1.0), 60, None),  # the split's own paths
        ("wiki", (1.0,), 60, None),
    ],
)
@pytest.mark.usefixtures("group")
def test_every_sample_is_megatron_cores(  # noqa: PLR0917 - parameters
    files, names, weights, num_samples, split, length, seed
):
    compare(blend(files, names, weights, num_samples, split, seed, length))


@pytest.mark.parametrize("split", ["90,8,2", ".5,.3,.2", "7"])
@pytest.mark.parametrize(("names", "weights"), [("wiki", None), ("wiki code", (0.5, 0.5))])
@pytest.mark.parametrize("extra_token", [True, False])
@pytest.mark.usefixtures("group")
def test_other_splits_and_sequences_without_the_extra_token(files, names, weights, split, extra_token):
    for index_split in ("train", "valid", "test")[: len(split.split(","))]:
        compare(blend(files, names, weights, 50, split, index_split=index_split, extra_token=extra_token))


@pytest.mark.parametrize("num_samples", [None, 40])
@pytest.mark.usefixtures("group")
def test_a_last_validation_sample_is_padded(files, num_samples):
    made = blend(files, "wiki", None, num_samples, "50,50,0", index_split="valid", drop_last_partial_validation=False)
    ours, _ = compare(made)
    held = [sum(span.end - span.start for span in ours.sample(g).spans) for g in range(ours.num_samples)]
    assert sorted(held)[0] < 17
    assert sorted(held)[1] == 17


@pytest.mark.usefixtures("group")
def test_the_last_epoch_stands_apart_where_little_of_it_is_needed(files):
    tokens = sum(CORPORA["wiki"])
    epoch = tokens // 16
    undefined = {
        num_samples: set(compare(blend(files, "wiki", None, num_samples))[0].samples(0, num_samples).epoch.tolist())
        for num_samples in (epoch - 1, epoch + epoch // 2, 2 * epoch - 2, 2 * epoch + epoch // 2)
    }
    assert list(undefined.values()) == [{0}, {0, 1}, {UNDEFINED_EPOCH}, {UNDEFINED_EPOCH, 2}]


@pytest.mark.usefixtures("group")
def test_the_greedy_rule_is_megatron_cores_over_many_chunks():
    from megatron.core.datasets import helpers

    random = RANDOM.dirichlet(np.full(15, 0.4)).tolist()
    for weights in ([0.5, 0.5], [1 / 3] * 3, [0.999_99, 0.000_01], random, [1.0], [0.1] * 10):
        size = 20_011
        datasets, places = np.zeros(size, dtype=np.int16), np.zeros(size, dtype=np.int64)
        helpers.build_blending_indices(datasets, places, list(weights), len(weights), size, False)
        assert np.array_equal(interleave(np.array(weights), size), datasets)
    for listed in ([900, 100], [5000, 1, 4999, 300], [700, 700, 700]):
        sizes = np.array(listed, dtype=np.int64)
        datasets, places = np.zeros(sizes.sum(), dtype=np.int16), np.zeros(sizes.sum(), dtype=np.int64)
        helpers.build_exhaustive_blending_indices(datasets, places, sizes.tolist(), len(sizes))
        assert np.array_equal(interleave(sizes / float(sizes.sum()), int(sizes.sum()), sizes), datasets)


def test_a_chunk_that_began_wrongly_runs_again(monkeypatch):
    weights = np.array([0.62, 0.25, 0.13])
    expected = interleave(weights, 5000)
    guess = greedy._Rule.guess

    def wrong(self, samples):
        counts = guess(self, samples)
        counts[0] += 40 * (samples > 0)  # too far away to be forgotten in one run-up
        counts[1] -= 40 * (samples > 0)
        return counts

    monkeypatch.setattr(greedy._Rule, "guess", wrong)
    assert np.array_equal(interleave(weights, 5000), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefixes": ()}, "data paths are missing"),
        ({"weights": (0.5, 0.0)}, "weight 0 of .*code, which programs of the lineage megatron-core-0.13 refuse"),
        ({"weights": (0.5, -0.5)}, "expected one number above 0 for each"),
        ({"weights": (0.0, 0.0)}, "expected at least one above 0"),
        ({"weights": (0.5,)}, "weights .0.5. for 2 data paths"),
        ({"num_samples": None}, "weights without a number of samples"),
        ({"num_samples": 0}, "0 samples, expected at least 1"),
        ({"sequence_length": 0}, "sequence length is 0"),
        ({"split": "1,2,3,4"}, "split '1,2,3,4', expected up to three shares"),
        ({"split": "a"}, "split 'a'"),
        ({"split": "..,1"}, "split '..,1'"),
        ({"split": "0,1"}, "gives train none of 30 sequences"),
        ({"sequence_length": 10**6, "weights": None, "num_samples": None}, "expected at least 1000001 for one sample"),
    ],
)
def test_blends_that_megatron_would_refuse(files, changes, message):
    good = {"prefixes": (str(files / "wiki"), str(files / "code")), "weights": (0.5, 0.5), "seed": 1}
    with pytest.raises(UserError, match=message):
        order_of(MegatronBlend(**{**good, "sequence_length": 8, "num_samples": 50, "split": "9,1,0", **changes}))


def test_a_blend_that_takes_more_than_there_is():
    made = MegatronBlend(("a", "b", "c"), (0.8, 0.1, 0.1), seed=1, sequence_length=8, num_samples=11, surplus=0.0)
    lengths = [np.array([tokens], dtype=np.int32) for tokens in (73, 100, 100)]
    with pytest.raises(UserError, match=r"10 samples of a are needed, it has 9; .*another surplus than 0"):
        MegatronOrder.build(made, lengths)


def test_questions_that_have_no_answer(files):
    order = order_of(blend(files, "wiki code", (0.5, 0.5), 100))
    for ask, error, message in (
        (lambda: order.sample(100), UserError, r"samples \[100, 101\) asked for, expected within the 100 samples"),
        (lambda: order.count(2, 5), UserError, "no component 2, expected 0 to 1"),
        (lambda: order.select(0, 50), UserError, "sample 50 of .*wiki asked for"),
        (lambda: order.exposures(0, 30, 5), NotFoundError, "no document 30, expected 0 to 29"),
        (lambda: order.index_of("pile"), NotFoundError, "no data path 'pile', expected one of"),
    ):
        with pytest.raises(error, match=message):
            ask()


def test_an_index_alone_gives_the_lengths(files, tmp_path):
    assert read_sequence_lengths(files / "code.idx").tolist() == CORPORA["code"]
    (tmp_path / "short.idx").write_bytes((files / "code.idx").read_bytes()[:-1])
    with pytest.raises(EvidenceError, match=r"short\.idx: found 2041 bytes, expected 2042"):
        read_sequence_lengths(tmp_path / "short.idx")
    with pytest.raises(EvidenceError, match=r"none\.idx: No such file"):
        read_sequence_lengths(tmp_path / "none.idx")


@pytest.mark.parametrize(
    ("split", "num_sequences", "legacy", "core"),
    [  # as get_train_valid_test_split_ of Megatron-DeepSpeed gives them
        ("969,30,1", 30, [0, 29, 30, 30], [0, 29, 30, 30]),
        ("33,33,34", 50, [0, 17, 33, 50], [0, 16, 33, 50]),
        ("80,15,5", 37, [0, 29, 35, 37], [0, 30, 35, 37]),
        ("1,1,1", 5, [0, 1, 3, 5], [0, 2, 3, 5]),
    ],
)
def test_a_split_of_older_lineages_is_rounded_by_sizes(split, num_sequences, legacy, core):
    for lineage, ends in (
        ("megatron-lm-legacy", legacy),
        ("megatron-core-0.4", legacy),
        ("gpt-neox", legacy),
        ("megatron-core-0.5", core),
        ("megatron-core-0.13", core),
    ):
        for position, name in enumerate(("train", "valid", "test")):
            if ends[position] == ends[position + 1]:
                continue
            made = MegatronBlend(("a",), None, 1, 4, 5, split, name, lineage=LINEAGES[lineage])
            assert made.sequences(num_sequences) == (ends[position], ends[position + 1])


@pytest.mark.parametrize(
    ("num_samples", "asked", "core"),
    [  # as get_datasets_weights_and_num_samples of Megatron-DeepSpeed gives them
        (7, (1, 2, 3, 2, 1, 1, 1, 1, 1), (2, 3, 4, 3, 2, 2, 2, 2, 2)),
        (1234, (125, 249, 373, 187, 63, 87, 38, 75, 50), (125, 249, 373, 187, 63, 88, 39, 76, 51)),
    ],
)
def test_older_lineages_round_a_share_once(num_samples, asked, core):
    weights = (0.1, 0.2, 0.3, 0.15, 0.05, 0.07, 0.03, 0.06, 0.04)
    made = {
        name: MegatronBlend(tuple("abcdefghi"), weights, 1, 4, num_samples, "100", lineage=LINEAGES[name])
        for name in ("megatron-lm-legacy", "megatron-core-0.7", "megatron-core-0.11", "megatron-core-0.13")
    }
    legacy, once, twice, newest = made.values()
    assert legacy.requested() == once.requested() == asked
    assert twice.requested() == newest.requested() == core
    assert legacy.shares[0] == float.fromhex("0x1.9999999999998p-4"), "summed one after the other"
    assert newest.shares[0] == float.fromhex("0x1.999999999999ap-4")
    assert (legacy.size([]), once.size([])) == (num_samples, sum(asked))
    assert replace(twice, surplus=0.5).requested() == core, "no argument of that lineage"


def test_a_sum_does_not_depend_on_the_python_that_reads():
    assert sum_in_turn([0.1] * 10) == 0.9999999999999999, "Python 3.12's own sum is 1.0"
