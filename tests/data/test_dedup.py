import hashlib
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from treering.data.curate.dedup import EXACT, KEPT, NEAR, Duplicates, find_duplicates
from treering.data.curate.minhash import MinHasher
from treering.data.curate.shelf import Signatures, SignatureWriter
from treering.data.words import jaccard, run_hashes, shingles, word_hashes, words

HASHER = MinHasher(20, 13)


def find(texts: list[str], min_jaccard: float = 0.8, cluster_jaccard: float = 0.5) -> Duplicates:
    sets = [shingles(text, 5) for text in texts]
    with TemporaryDirectory() as folder:
        signatures = Signatures(Path(folder, "corpus"))
        with SignatureWriter(signatures) as writer:
            for number, (text, found) in enumerate(zip(texts, sets, strict=True)):
                writer.add(0, number, hashlib.sha256(text.encode()).digest(), HASHER.bands(found))
        return find_duplicates(
            [signatures],
            lambda i: sets[i],
            Path(folder, "scratch"),
            min_jaccard=min_jaccard,
            cluster_jaccard=cluster_jaccard,
        )


def passage(seed: int, length: int = 200) -> list[str]:
    generator = random.Random(seed)
    return ["".join(generator.choices("abcdefgh", k=6)) for _ in range(length)]


def test_words_are_lower_case_and_bare() -> None:
    assert words("The cat's 2 Hats—Été!") == ["the", "cat", "s", "2", "hats", "été"]


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=30), st.integers(1, 6))
def test_equal_runs_have_equal_hashes_and_others_not(parts: list[str], length: int) -> None:
    runs = run_hashes(word_hashes(" ".join(parts)), length).tolist()
    expected = [tuple(parts[i : i + length]) for i in range(len(parts) - length + 1)]
    assert len(runs) == len(expected)
    assert len(set(zip(runs, expected, strict=True))) == len(set(runs)) == len(set(expected))


def test_shingles_of_short_texts() -> None:
    assert len(shingles("", 5)) == 0
    assert len(shingles("just two", 5)) == 1
    assert len(shingles("a b c d e f", 5)) == 2


def test_jaccard_is_exact() -> None:
    left, right = np.array([1, 2, 3], np.uint64), np.array([2, 3, 4, 5], np.uint64)
    assert jaccard(left, right) == 2 / 5
    assert jaccard(left, np.empty(0, np.uint64)) == 0


def test_bands_agree_as_often_as_the_formula_says() -> None:
    hits = 0
    for seed in range(300):
        base = np.random.default_rng(seed).integers(0, 2**63, 1000, dtype=np.uint64)
        other = np.random.default_rng(seed + 10_000).integers(0, 2**63, 1000, dtype=np.uint64)
        twin = np.concatenate((base[:889], other[889:]))  # Jaccard 889 / 1111 = 0.80
        hits += bool(np.any(HASHER.bands(base) == HASHER.bands(twin)))
    expected = 1 - (1 - 0.8**13) ** 20
    assert abs(hits / 300 - expected) < 4 * (expected * (1 - expected) / 300) ** 0.5


def test_exact_and_near_duplicates_give_way_to_the_first() -> None:
    base = passage(1)
    near = [*base[:-4], "so", "it", "ends", "here"]
    texts = [" ".join(passage(9)), " ".join(base), " ".join(near), " ".join(base), " ".join(passage(2)), " ".join(near)]
    found = find(texts)
    assert found.rule.tolist() == [KEPT, KEPT, NEAR, EXACT, KEPT, EXACT]
    assert found.original.tolist() == [0, 1, 1, 1, 4, 1]
    assert found.cluster.tolist() == [0, 1, 1, 1, 4, 1]


def test_documents_without_words_are_compared_with_none() -> None:
    found = find(["..", "!", "?!", "..", " ".join(passage(1))])
    assert found.rule.tolist() == [KEPT, KEPT, KEPT, EXACT, KEPT]
    assert found.num_compared == 0


def test_components_are_connected_through_the_middle() -> None:
    base = passage(3, 300)
    texts = [" ".join(base[start : start + 280]) for start in (0, 10, 20)]
    assert (
        jaccard(shingles(texts[0], 5), shingles(texts[2], 5))
        < 0.9
        <= jaccard(shingles(texts[0], 5), shingles(texts[1], 5))
    )
    found = find(texts, min_jaccard=0.9)
    assert found.original.tolist() == [0, 0, 0]


def test_a_cluster_is_wider_than_its_duplicates() -> None:
    base = passage(4, 300)
    texts = [" ".join(base), " ".join([*base[:285], *passage(5, 15)])]
    found = find(texts, min_jaccard=0.95)
    assert found.rule.tolist() == [KEPT, KEPT]
    assert found.cluster.tolist() == [0, 0]


def test_no_survivors_are_near_duplicates() -> None:
    generator = random.Random(7)
    texts = []
    for seed in range(25):
        base = passage(100 + seed)
        for _ in range(4):
            copy = list(base)
            for position in generator.sample(range(200), generator.choice([0, 1, 2])):
                copy[position] = "changed"
            texts.append(" ".join(copy))
    generator.shuffle(texts)
    found = find(texts)
    kept = np.flatnonzero(found.rule == KEPT)
    assert len(kept) == 25
    sets = [shingles(texts[i], 5) for i in kept]
    assert all(jaccard(a, b) < 0.8 for i, a in enumerate(sets) for b in sets[:i])
