"""Curation by shards: the same bytes from every engine, in every order, after every death and interruption."""

import json
import math
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import psutil
import pytest
from kills import kill_itself
from shard_world import SMALL, World, tree

from treering.config.corpora import CorpusConfig
from treering.data.curate import ingest
from treering.data.curate.engines import PoolEngine, ProcessEngine
from treering.data.curate.pipeline import curate
from treering.errors import TreeringError, UserError

pytestmark = pytest.mark.slow


class Shuffled(ProcessEngine):
    """Does the tasks in a random order, and counts them by function."""

    def __init__(self, seed: int = 0, interrupt_after: int | None = None) -> None:
        self._random = random.Random(seed)
        self._interrupt_after = interrupt_after
        self.done: list[str] = []

    def map(self, function: Callable[..., Any], shared: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for place in self._random.sample(range(len(tasks)), len(tasks)):
            if len(self.done) == self._interrupt_after:
                raise KeyboardInterrupt("by the test")
            yield place, function(shared, tasks[place])
            self.done.append(function.__name__)


@pytest.fixture
def world(tiny: Any) -> World:
    return World(tiny)


@pytest.mark.parametrize(("seed", "shard_bytes"), [(0, 1), (1, SMALL), (2, SMALL), (3, 20_000)])
def test_no_size_of_a_shard_and_no_order_changes_a_byte(world: World, seed: int, shard_bytes: int) -> None:
    expected = world.curate(ProcessEngine(), 1 << 40)
    engine = Shuffled(seed)
    assert world.curate(engine, shard_bytes) == expected
    assert engine.done.count("take_shard") > 4
    assert not (world.tiny.project.root / ".treering" / "curate").exists()


def test_no_number_of_workers_changes_a_byte(world: World) -> None:
    expected = world.curate(ProcessEngine(), 1 << 40)
    for workers in (1, 3, 7):
        assert world.curate(PoolEngine(workers)) == expected


def test_duplicates_and_leaks_across_shards_and_corpora_are_found(world: World) -> None:
    world.curate(Shuffled())
    summary = json.loads((world.tiny.project.curated / "summary.json").read_text())
    assert summary["corpora"]["own"]["dropped"]["dedup"] == {"exact": 1, "near": 1}
    assert summary["corpora"]["pages"]["dropped"]["dedup"] == {"exact": 1}
    cuts = {name: entry["cut"] for name, entry in summary["corpora"].items()}
    assert {name: (cut["documents"], cut["fragments"]) for name, cut in cuts.items()} == {
        "own": (4, 8), "capped": (2, 4),
        "pages": (1, 2),  # it has a sentence of a held-out document
    }  # fmt: skip
    taken = summary["corpora"]["capped"]["taken"]
    assert (taken["files"], taken["cap_bytes"]) == (3, 30_000)
    assert 30_000 <= taken["bytes"] < 32_000
    assert taken["files_read"] == 2


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    """A pool's workers: children of the process that forks them, which must live."""
    found = []
    for server in process.children():
        with suppress(psutil.NoSuchProcess):
            found += [each for each in server.children() if "forkserver" in " ".join(each.cmdline())]
    return found


def test_killed_workers_change_nothing(world: World) -> None:
    expected = world.curate(ProcessEngine(), 1 << 40)
    chance, calls, killed = random.Random(4), count(), []
    due = sorted(chance.sample(range(20), 4))

    def kill(_part: str, _done: int, _total: int) -> None:
        workers = workers_of(psutil.Process())
        if next(calls) >= [*due, math.inf][len(killed)] and workers:
            victim = chance.choice(workers)
            time.sleep(chance.uniform(0, 0.1))
            with suppress(psutil.NoSuchProcess):
                victim.kill()
                killed.append(victim.pid)

    assert world.curate(PoolEngine(2), 1, progress=kill) == expected
    assert len(killed) == 4


def test_a_task_that_kills_every_worker_ends_with_its_name() -> None:
    with pytest.raises(TreeringError, match=r"workers were killed 3 times in a row, at one of: 9; 9\. .*fewer workers"):
        list(PoolEngine(2).map(kill_itself, signal.SIGKILL, [9, 9]))


def test_an_interrupted_stage_does_only_what_is_missing(world: World) -> None:
    expected = world.curate(Shuffled())
    total = Shuffled()
    world.curate(total)
    with pytest.raises(KeyboardInterrupt, match="by the test"):
        world.curate(Shuffled(5, interrupt_after=9))
    store = world.tiny.project.root / ".treering" / "curate" / "shards"
    finished = [path.parent for path in store.glob("*/record.json")]
    assert len(finished) == 9
    (finished[0] / "shelf.jsonl").write_bytes(b"damaged")
    (finished[1] / "record.json").unlink()
    (store / ".half").mkdir()
    said: list[str] = []
    curate(world.corpora, world.tiny.config, world.tiny.project, said.append, engine=Shuffled(6), shard_bytes=SMALL)
    assert tree(world.tiny.project.curated) == expected
    assert "resumed          7 shards that an interrupted run had finished" in said


def test_a_finished_shard_is_not_used_for_other_sources_or_rules(world: World) -> None:
    with pytest.raises(KeyboardInterrupt, match="by the test"):
        world.curate(Shuffled(interrupt_after=9))
    world.tiny.rows[:] = [{**row, "text": str(row["text"]).replace("e", "a")} for row in world.tiny.rows]
    world.tiny.corpora()
    changed = world.curate(Shuffled())
    assert changed == world.curate(ProcessEngine(), 1 << 40)


def write(world: World, lines: list[str]) -> list[CorpusConfig]:
    (world.tiny.project.raw / "own" / "own.jsonl").write_text("".join(line + "\n" for line in lines))
    return [world.corpora[0]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id": "doc-3", "text": "x"}', r"own\.jsonl, line 31: found id 'doc-3' twice, expected ids that are unique"),
        ("[1]", r"own\.jsonl, line 31: found list, expected one object a line"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_fault_is_reported(world: World, line: str, expected: str, seed: int) -> None:
    lines = [json.dumps(row) for row in world.tiny.rows]
    lines[30] = line
    lines[35] = "[1]"
    world.corpora = write(world, lines)
    with pytest.raises(UserError, match=expected):
        world.curate(Shuffled(seed), 1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_fault_behind_the_cap_is_none(world: World, seed: int) -> None:
    lines = [json.dumps(row) for row in world.tiny.rows]
    lines[30] = "[1]"
    [corpus] = write(world, lines)
    size = sum(len(str(row["text"]).encode()) for row in world.tiny.rows[:30])
    world.corpora = [corpus.model_copy(update={"max_megabytes": size / 1e6})]
    result = world.curate(Shuffled(seed))
    assert json.loads(result["summary.json"])["corpora"]["own"]["taken"]["documents"] == 30
    world.corpora = [corpus.model_copy(update={"max_megabytes": (size + 1) / 1e6})]
    with pytest.raises(UserError, match=r"own\.jsonl, line 31: found list"):
        world.curate(Shuffled(seed))


def test_a_document_that_no_library_bears_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ingest.extract

    def extract(text: str, *how: Any) -> str:
        if text == world.tiny.rows[30]["text"]:
            raise RecursionError("too deep")
        return whole(text, *how)

    monkeypatch.setattr(ingest, "extract", extract)
    with pytest.raises(
        UserError,
        match=r"own\.jsonl, line 31: document 'doc-30' cannot be curated \(RecursionError: too deep\); shard \d+ of "
        r"corpus own ends there",
    ):
        world.curate(Shuffled())


@pytest.mark.parametrize("ending", ["", ".zst"])
def test_a_corpus_without_a_document_is_named(world: World, ending: str) -> None:
    (world.tiny.project.raw / "own" / f"own.jsonl{ending}").write_bytes(b"")
    world.corpora = [CorpusConfig(name="own", licence="MIT", jsonl=f"texts/own.jsonl{ending}")]
    with pytest.raises(UserError, match=r"corpus own: its 1 files below .* hold no document, expected at least one"):
        world.curate(ProcessEngine())
