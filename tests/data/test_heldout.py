import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treering.config.corpora import HeldoutConfig
from treering.data.curate.heldout import TwinIndex, choose_heldout
from treering.data.words import Hashes, shingles
from treering.errors import UserError


def choose(cluster: list[int], corpus_of: list[int], fraction: float = 0.25, seed: int = 0) -> np.ndarray:
    count = len(cluster)
    return choose_heldout(
        corpus_of=np.array(corpus_of),
        kept=np.ones(count, dtype=bool),
        cluster=np.array(cluster),
        digests=np.random.default_rng(1).integers(0, 256, (count, 16), dtype=np.uint8),
        names=["first", "second"][: max(corpus_of) + 1],
        config=HeldoutConfig(fraction=fraction),
        seed=seed,
    )


def test_each_corpus_gives_its_share() -> None:
    heldout = choose(list(range(60)), [0] * 40 + [1] * 20)
    assert (heldout[:40].sum(), heldout[40:].sum()) == (10, 5)
    assert not np.array_equal(heldout, choose(list(range(60)), [0] * 40 + [1] * 20, seed=1))


def test_a_cluster_is_held_out_whole_and_across_corpora() -> None:
    cluster = [index // 2 for index in range(80)]
    cluster = [cluster.index(root) for root in cluster]
    heldout = choose(cluster, [0] * 40 + [0, 1] * 16 + [1] * 8, 0.2)
    assert (heldout[:72].sum(), heldout[72:].sum()) == (16, 2)
    assert all(heldout[i] == heldout[cluster[i]] for i in range(80))


def test_a_family_of_look_alikes_stays_in_training() -> None:
    cluster = [0] * 30 + list(range(30, 40))
    for seed in range(20):
        assert not choose(cluster, [0] * 40, 0.2, seed)[:30].any()


def test_a_corpus_of_one_cluster_is_refused() -> None:
    with pytest.raises(UserError, match="corpus second: 1 near-duplicate clusters"):
        choose([0, 1, 2, 2], [0, 0, 1, 1])


def test_twin_index_computes_jaccard_exactly() -> None:
    def text(start: int, stop: int) -> str:
        return " ".join(f"w{number}" for number in range(start, stop))

    index = TwinIndex([(10, shingles(text(0, 104), 5)), (11, shingles(text(50, 154), 5))])
    twin = shingles(text(20, 124), 5)  # shares 80 of 100 shingles with 10 and 70 with 11: Jaccard 2/3 and 7/13
    assert index.twin(twin, 2 / 3) == 10
    assert index.twin(twin, 0.67) is None
    assert index.twin(shingles("nothing in common with it at all", 5), 0.01) is None
    assert TwinIndex([]).twin(twin, 0.01) is None


SETS = st.lists(st.sets(st.sampled_from([0, 1, 2, 2**47, 2**48, 2**48 + 1, 2**63, 2**64 - 1])), max_size=6)


@given(SETS, st.lists(st.sets(st.integers(0, 2) | st.just(2**64 - 1)), min_size=1, max_size=3))
def test_the_twin_is_the_first_of_the_most_alike(heldout: list[set[int]], asked: list[set[int]]) -> None:
    def members(of: set[int]) -> Hashes:
        return np.array(sorted(of), np.uint64)

    index = TwinIndex((7 * place, members(each)) for place, each in enumerate(heldout))
    for one in asked:
        likeness = [len(one & each) / len(one | each) if one & each else 0.0 for each in heldout]
        best = max(likeness, default=0.0)
        expected = 7 * likeness.index(best) if best else None
        assert index.twin(members(one), best) == expected
        assert index.twin(members(one), best + 1e-9) is None
