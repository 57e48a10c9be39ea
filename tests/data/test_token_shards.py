"""Tokenization by shards: the same bytes for every size and engine, in every order, after every interruption."""

import json
import random
import shutil
import signal
import subprocess
import sys

import pytest
import token_world
from hypothesis import given
from hypothesis import strategies as st
from token_world import SMALL, TokenWorld

from treering.data.corpus.encode import tokenized
from treering.data.curate.engines import PoolEngine, ProcessEngine
from treering.data.tokenize import shards
from treering.data.tokenize.curated import cut
from treering.errors import EvidenceError, UserError


class Shuffled(ProcessEngine):
    """Does the tasks in a random order."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def map(self, function, shared, tasks):
        for place in self._random.sample(range(len(tasks)), len(tasks)):
            yield place, function(shared, tasks[place])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A world, and the result of one process that does each file as one shard."""
    world = TokenWorld(tmp_path_factory.mktemp("world")).write()
    return world, world.tokenize()


@pytest.fixture
def world(made, tmp_path):
    shutil.copytree(made[0].project.curated, tmp_path / "data/curated")
    return TokenWorld(tmp_path)


@given(st.lists(st.integers(0, 9)), st.integers(1, 30), st.booleans())
def test_shards_are_whole_lines(tmp_path_factory, lengths, most, ended):
    path = tmp_path_factory.getbasetemp() / "lines"
    content = b"\n".join(b"x" * length for length in lengths) + b"\n" * ended
    path.write_bytes(content)
    borders = cut(path, most)
    parts = [content[begin:end] for begin, end in borders]
    assert b"".join(parts) == content
    assert all(part.endswith(b"\n") for part in parts[:-1])
    assert all(len(part) >= most for part in parts[:-1])
    assert all(len(part.rstrip(b"\n").rpartition(b"\n")[0]) < most for part in parts)


@pytest.mark.parametrize(("seed", "shard_bytes"), [(0, 1), (1, SMALL), (2, 20_000)])
def test_no_size_of_a_shard_and_no_order_changes_a_byte(made, world, seed, shard_bytes):
    calls = []
    engine = Shuffled(seed)
    found = world.tokenize(engine=engine, shard_bytes=shard_bytes, progress=lambda *call: calls.append(call))
    assert found == made[1]
    total = calls[0][2]
    assert [call for call in calls if call[0] == "tokenize"] == [("tokenize", n + 1, total) for n in range(total)]
    assert total >= 4 + (shard_bytes <= SMALL) * 5
    assert calls[-1] == ("join", 4, 4)
    assert not (world.project.root / ".treering/tokenize").exists()


@pytest.mark.slow
def test_worker_processes_change_no_byte(made, world):
    assert world.tokenize(engine=PoolEngine(3), shard_bytes=SMALL) == made[1]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "done", "kept"), [("tokenize", 5, 5), ("join", 2, None)])
def test_a_killed_stage_does_only_the_shards_that_are_missing(made, world, part, done, kept):
    command = [sys.executable, token_world.__file__, world.project.root, part, str(done)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not world.project.corpora.exists()
    finished = world.finished
    damaged, without_record, *whole = finished
    assert kept in (len(finished), None)
    (damaged / "corpus.bin").write_bytes(b"damaged")
    (without_record / "record.json").unlink()
    (damaged.parent / ".half").mkdir()
    assert world.tokenize(engine=Shuffled(3), shard_bytes=SMALL) == made[1]
    assert f"resumed          {len(whole)} shards that an interrupted run had finished" in world.said


def test_a_finished_shard_is_not_used_for_another_tokenizer_or_text(made, world):
    def interrupt(part, _done, _total):
        if part == "join":
            raise KeyboardInterrupt("by the test")

    with pytest.raises(KeyboardInterrupt, match="by the test"):
        world.tokenize(shard_bytes=SMALL, progress=interrupt)
    path = world.project.curated / "train/own.jsonl"
    path.write_text(path.read_text().replace(" the ", " teh "))
    changed = world.tokenize(shard_bytes=SMALL)
    assert changed["tokenizer.json"] != made[1]["tokenizer.json"]
    assert not any("resumed" in line for line in world.said)
    assert changed == world.tokenize()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_fault_is_reported_with_shard_and_document(world, seed):
    path = world.project.curated / "train/own.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[20]["text"] = rows[25]["text"] = ""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        UserError,
        match=r"^corpus own, shard 6 of train/own\.jsonl \(bytes .*\): document 'own-20' is empty, expected text",
    ):
        world.tokenize(engine=Shuffled(seed), shard_bytes=SMALL)


def test_a_node_with_other_code_does_nothing(world, monkeypatch):
    class Elsewhere(ProcessEngine):
        def map(self, function, shared, tasks):
            monkeypatch.setattr(shards, "code_version", lambda: "another")
            return super().map(function, shared, tasks)

    with pytest.raises(UserError, match=r"shard 1 of train/own\.jsonl .*: a node has another version of Treering"):
        world.tokenize(engine=Elsewhere())


def test_a_document_that_the_library_fails_at_is_named():
    def encode(texts):
        for text in texts:
            yield [1 / len(text)]

    rows = [{"id": f"d{number}", "text": "x" * (number != 3)} for number in range(6)]
    with pytest.raises(
        UserError, match=r"document 'd3' cannot be cut into tokens \(ZeroDivisionError: division by zero"
    ):
        list(tokenized(rows, encode, 0))


@pytest.mark.parametrize("fault", [MemoryError("full"), OSError(28, "No space left"), EvidenceError("a tokenizer")])
def test_a_fault_of_the_machine_is_no_document_s(fault):
    def encode(_texts):
        raise fault

    with pytest.raises(type(fault), match=r"^(full|\[Errno 28\] No space left|a tokenizer)$"):
        list(tokenized([{"id": "a", "text": "b"}], encode, 0))
