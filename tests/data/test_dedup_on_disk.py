"""Deduplication on disk gives what the algorithm that holds everything in memory gives."""

import os
import signal
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treering.data.curate.components import Components
from treering.data.curate.dedup import EXACT, KEPT, NEAR, Duplicates, find_duplicates
from treering.data.curate.shelf import Signatures, SignatureWriter
from treering.data.curate.sorted_keys import SortedKeys, groups, parts
from treering.data.words import jaccard

TINY = 4_000


class _InMemory:
    def __init__(self, count):
        self.parent = list(range(count))

    def root(self, node):
        while self.parent[node] != node:
            node = self.parent[node]
        return node

    def join(self, left, right):
        low, high = sorted((self.root(left), self.root(right)))
        self.parent[high] = low


def in_memory(digests, bands, shingles, min_jaccard, cluster_jaccard):
    """The plain algorithm: everything in memory, bucket after bucket."""
    first = {}
    exact = [first.setdefault(digest.tobytes(), number) for number, digest in enumerate(digests)]
    distinct = [number for number, original in enumerate(exact) if original == number and bands[number].any()]
    duplicates, clusters, compared = _InMemory(len(exact)), _InMemory(len(exact)), set()
    for band in range(bands.shape[1]):
        buckets = {}
        for number in distinct:
            buckets.setdefault(int(bands[number, band]), []).append(number)
        for key in sorted(buckets):
            bucket = buckets[key]
            while len(bucket) > 1:
                head, rest, bucket = bucket[0], bucket[1:], []
                for other in rest:
                    if (head, other) not in compared and duplicates.root(head) != duplicates.root(other):
                        compared.add((head, other))
                        similarity = jaccard(shingles(head), shingles(other))
                        if similarity >= cluster_jaccard:
                            clusters.join(head, other)
                        if similarity >= min_jaccard:
                            duplicates.join(head, other)
                    if duplicates.root(head) != duplicates.root(other):
                        bucket.append(other)
    original = [duplicates.root(number) for number in exact]
    rule = [
        KEPT if found == number else EXACT if exact[number] != number else NEAR for number, found in enumerate(original)
    ]
    return rule, original, [clusters.root(number) for number in exact], len(compared)


def shelves(folder, digests, bands, cuts):
    """The documents as corpora, cut before the numbers of `cuts`."""
    folder.mkdir(parents=True, exist_ok=True)
    result = []
    for index, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(digests)], strict=True)):
        signatures = Signatures(folder / f"corpus-{index}")
        with SignatureWriter(signatures) as writer:
            for number in range(begin, end):
                writer.add(0, number, digests[number].tobytes(), bands[number])
        result.append(signatures)
    return result


def plain(found: Duplicates):
    return found.rule.tolist(), found.original.tolist(), found.cluster.tolist(), found.num_compared


class World:
    """Random documents: families of a few shared shingles each, copies, and bands that collide often.

    Args:
        keys: the keys that a band draws from.
    """

    def __init__(self, seed, count, keys, *, num_bands=4, families=6):
        generator = np.random.default_rng(seed)
        words = [generator.integers(0, 2**63, 12, dtype=np.uint64) for _ in range(families)]
        self.sets = []
        for number in range(count):
            own = words[generator.integers(families)][generator.permutation(12)[: generator.integers(7, 13)]]
            copied = self.sets[generator.integers(number)] if number and generator.random() < 0.2 else own
            self.sets.append(np.unique(copied))
        numbers = {}
        self.digests = np.array(
            [
                [*np.int64(numbers.setdefault(found.tobytes(), generator.integers(4))).tobytes(), *found.tobytes()[:8]]
                for found in self.sets
            ],
            dtype=np.uint8,
        ).reshape(count, 16)
        self.bands = np.asarray(keys, dtype=np.uint64)[generator.integers(len(keys), size=(count, num_bands))]

    def expected(self):
        return in_memory(self.digests, self.bands, self.sets.__getitem__, 0.7, 0.5)

    def found(self, folder, cuts=(), memory_bytes=TINY):
        signatures = shelves(folder / "shelves", self.digests, self.bands, cuts)
        return plain(
            find_duplicates(
                signatures,
                self.sets.__getitem__,
                folder / "scratch",
                min_jaccard=0.7,
                cluster_jaccard=0.5,
                memory_bytes=memory_bytes,
            )
        )


KEYS = {
    "apart": np.random.default_rng(1).integers(0, 2**64, 60, dtype=np.uint64),
    "neighbours": np.arange(2**63 - 20, 2**63 + 20, dtype=np.uint64),
    "ends": np.array([0, 1, 2**64 - 2, 2**64 - 1], dtype=np.uint64),
    "one": np.array([7], dtype=np.uint64),
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("memory_bytes", [1_500, TINY, 1 << 24])
def test_equals_the_algorithm_in_memory(tmp_path, keys, memory_bytes):
    world = World(3, 150, KEYS[keys])
    rule, original, cluster, num_compared = world.found(tmp_path, (1, 40, 41, 120), memory_bytes)
    expected = world.expected()
    assert (rule, original, cluster) == expected[:3]
    assert {KEPT, EXACT, NEAR} == set(rule)
    assert num_compared == expected[3] or memory_bytes < 1 << 24
    assert num_compared >= expected[3]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12),
    st.integers(600, 20_000),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_any_documents_and_any_memory(  # noqa: PLR0917 - what is drawn
    tmp_path_factory, seed, count, keys, memory_bytes, cuts
):
    world = World(seed, count, keys, num_bands=3, families=3)
    places = sorted(min(cut, count) for cut in cuts)
    folder = tmp_path_factory.mktemp("world")
    assert world.found(folder, places, memory_bytes)[:3] == world.expected()[:3]
    assert world.found(folder, places, 1 << 24) == world.expected()


def test_a_document_larger_than_the_memory_is_read_once_a_bucket(tmp_path):
    sets = [np.arange(100_000, dtype=np.uint64), *(np.array([7 * number], np.uint64) for number in range(1, 30))]
    read = []

    def shingles(number):
        read.append(number)
        return sets[number]

    digests = np.arange(60, dtype=np.uint64).view(np.uint8).reshape(30, 16)
    signatures = shelves(tmp_path / "shelves", digests, np.full((30, 1), 5, np.uint64), ())
    limits = {"min_jaccard": 0.7, "cluster_jaccard": 0.5, "memory_bytes": TINY}
    found = find_duplicates(signatures, shingles, tmp_path / "scratch", **limits)
    assert (found.num_compared, read.count(0)) == (29 + 28 * 29 // 2, 1)


def test_no_documents(tmp_path):
    world = World(0, 0, [1])
    assert world.found(tmp_path) == ([], [], [], 0)
    assert find_duplicates([], lambda _: world.sets[0], tmp_path, min_jaccard=1, cluster_jaccard=1).num_compared == 0


def test_documents_that_are_all_equal_in_more_memory_than_there_is(tmp_path):
    world = World(5, 1, [7])
    world.digests, world.bands, world.sets = (
        np.repeat(world.digests, 5_000, axis=0),
        np.repeat(world.bands, 5_000, axis=0),
        world.sets * 5_000,
    )
    rule, original, cluster, num_compared = world.found(tmp_path, (2_500,))
    assert rule == [KEPT] + [EXACT] * 4_999
    assert set(original) == set(cluster) == {0}
    assert num_compared == 0


def test_a_chain_over_parts_is_one_component(tmp_path):
    # Neighbours share one band each, in other parts of the keys; from neighbour to neighbour the sets change a little.
    count = 400
    sets = [np.arange(number, number + 20, dtype=np.uint64) for number in range(count)]
    generator = np.random.default_rng(2)
    order = generator.permutation(count)
    keys = generator.integers(0, 2**64, (count, 2), dtype=np.uint64)
    for number in range(count - 1):
        band = number % 2
        keys[number + 1, band] = keys[number, band]
    digests = generator.integers(0, 256, (count, 16), dtype=np.uint8)
    shuffled = [sets[place] for place in order]
    found = find_duplicates(
        shelves(tmp_path / "shelves", digests, keys[order], (100,)),
        shuffled.__getitem__,
        tmp_path / "scratch",
        min_jaccard=0.9,
        cluster_jaccard=0.9,
        memory_bytes=TINY,
    )
    assert set(found.original.tolist()) == set(found.cluster.tolist()) == {0}
    assert found.rule.tolist() == [KEPT] + [NEAR] * (count - 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.lists(st.tuples(st.integers(0, 199), st.integers(0, 199)), max_size=300))
def test_components_equal_a_search_by_width(tmp_path_factory, count, edges):
    edges = [(left % count, right % count) for left, right in edges]
    components = Components(tmp_path_factory.mktemp("graph") / "parents", count, 1)
    neighbours = {node: {node} for node in range(count)}
    for left, right in edges:
        components.join(left, right)
        neighbours[left].add(right)
        neighbours[right].add(left)
    expected = {}
    for node in range(count):
        todo = [] if node in expected else [node]
        while todo:
            reached = todo.pop()
            if reached not in expected:
                expected[reached] = node
                todo += neighbours[reached]
    assert [components.root(node) for node in range(count)] == [expected[node] for node in range(count)]
    components.settle()
    assert components.parents.array.tolist() == [expected[node] for node in range(count)]


def test_a_part_holds_all_documents_of_its_keys_and_fits(tmp_path):
    generator = np.random.default_rng(4)
    keys = generator.integers(0, 2**64, (900, 1, 2), dtype=np.uint64)
    keys[100:300, 0, 0] = 5  # one first word, many second words
    keys[300:400, 0] = (6, 7)  # one key, too many for a part
    shards = [
        SortedKeys.write(tmp_path / str(begin), np.arange(begin, begin + 300), keys[begin : begin + 300])
        for begin in (0, 300, 600)
    ]
    found = list(parts(shards, 0, 50))
    sizes = [sum(end - begin for begin, end in part.slices) for part in found]
    assert [size for part, size in zip(found, sizes, strict=True) if part.equal] == [100]
    assert max(size for part, size in zip(found, sizes, strict=True) if not part.equal) <= 50
    assert len(found) > 20
    merged = [list(group[:]) for part in found for group in groups(shards, part, tmp_path / "group", 50)]
    assert merged == [list(range(300, 400))]


@lru_cache
def _victim():
    return World(9, 3_000, np.random.default_rng(9).integers(0, 2**64, 900, dtype=np.uint64), num_bands=6, families=300)


@pytest.mark.slow
def test_a_killed_step_leaves_nothing_that_is_taken(tmp_path):
    world = _victim()
    expected = world.found(tmp_path / "whole", (1_000,), 100_000)
    folder = tmp_path / "killed"
    code = f"""
import importlib.util, pathlib
spec = importlib.util.spec_from_file_location("victim", {__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
while True:
    module._victim().found(pathlib.Path({str(folder)!r}), (1_000,), 100_000)
"""
    stages = ("exact", "bands-0", "cluster")  # each exists only once the step before it has begun or ended
    for stage in stages:
        process = subprocess.Popen([sys.executable, "-c", code], env=os.environ, start_new_session=True)
        try:
            while not (folder / "scratch" / stage).exists():
                assert process.poll() is None
                time.sleep(0.001)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert (folder / "scratch").exists()
        assert world.found(folder, (1_000,), 100_000) == expected
        Path(folder / "scratch" / stage).unlink(missing_ok=True)
