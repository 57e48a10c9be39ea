"""The engine on a real Ray cluster of several nodes on this machine."""

import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
import pytest
import token_world
from kills import kill_itself, kill_itself_once
from quality_world import QualityWorld
from ray_cluster import add_node, add_to_both, ray_cluster, working
from shard_world import World
from token_world import TokenWorld

from treering.data.curate.engines import ProcessEngine, engine_for
from treering.data.curate.ray_engine import RayEngine, difference
from treering.errors import StoreError, TreeringError, UserError

pytestmark = pytest.mark.slow

STEPS = ("take_shard", "check_shard", "write_corpus")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def engine(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayEngine]:
    engine = engine_for("ray", None, cluster.address, tmp_path_factory.mktemp("project"))
    assert isinstance(engine, RayEngine)
    yield engine
    engine.close()


class Some:
    """Some of the workers of an engine that stays open; tasks begin in a random order."""

    def __init__(self, engine: RayEngine, workers: int) -> None:
        self._engine, self._workers = engine, workers

    def map(self, function: Callable[..., Any], shared: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self._engine.workers = self._workers
        order = random.Random(self._workers).sample(range(len(tasks)), len(tasks))
        for place, result in self._engine.map(function, shared, [tasks[each] for each in order]):
            yield order[place], result

    def close(self) -> None:
        pass


@pytest.fixture
def world(tiny: Any) -> World:
    return World(tiny)


def test_no_number_of_workers_and_no_order_changes_a_byte(world: World, engine: RayEngine) -> None:
    expected = world.curate(ProcessEngine(), 1 << 40)
    for workers in (1, 3, 7):
        assert world.curate(Some(engine, workers)) == expected


def test_no_number_of_workers_changes_a_verdict_on_quality(tmp_path: Path, engine: RayEngine) -> None:
    judged = QualityWorld(tmp_path)
    expected = judged.curate()
    assert "quality/model.bin" in expected
    assert judged.curate(Some(engine, 3), 30_000) == expected


def test_no_number_of_workers_changes_a_token(tmp_path: Path, engine: RayEngine) -> None:
    tokens = TokenWorld(tmp_path).write()
    expected = tokens.tokenize()
    for workers in (1, 3, 7):
        assert tokens.tokenize(engine=Some(engine, workers), shard_bytes=token_world.SMALL) == expected


def test_killed_workers_change_nothing(world: World, engine: RayEngine) -> None:
    expected = world.curate(ProcessEngine(), 1 << 40)
    chance, end, killed = random.Random(4), Event(), list[int]()

    def kill() -> None:
        while not end.wait(chance.uniform(0, 0.05)) and len(killed) < 2:
            with suppress(IndexError, psutil.NoSuchProcess):
                victim = chance.choice(working(*STEPS))
                victim.kill()
                killed.append(victim.pid)

    killer = Thread(target=kill)
    killer.start()
    try:
        while len(killed) < 2:
            assert world.curate(Some(engine, 7)) == expected
    finally:
        end.set()
        killer.join()
    assert len(killed) == 2


def test_a_fault_and_a_death_are_named(world: World, engine: RayEngine) -> None:
    (world.tiny.project.raw / "own" / "own.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match=r"own\.jsonl, line 1: found list, expected one object a line"):
        world.curate(Some(engine, 2))
    with pytest.raises(TreeringError, match="workers were killed 3 times in a row, at one of: 9"):
        list(engine.map(kill_itself, signal.SIGKILL, [9]))


def test_a_task_whose_worker_died_is_done_again(engine: RayEngine, tmp_path: Path) -> None:
    assert sorted(engine.map(kill_itself_once, tmp_path, ["a", "b"])) == [(0, "a"), (1, "b")]


def test_workers_may_write_into_arrays(engine: RayEngine) -> None:
    large = np.arange(100_000)
    found = list(engine.map(add_to_both, large, [large]))
    assert [place for place, _ in found] == [0]
    assert found[0][1].tolist() == list(range(2, 200_001, 2))
    found[0][1][0] = 0


def test_a_node_that_joins_late_is_looked_at(engine: RayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_expected", (*engine._expected[:2], "/nowhere/token"))
    with pytest.raises(
        UserError, match=r"--engine ray: node \S+ cannot take part: found no /nowhere/token; mount the project"
    ):
        list(engine.map(kill_itself, 0, [1]))


def test_a_node_that_lacks_the_package_is_named(engine: RayEngine, cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "treering").mkdir()
    (tmp_path / "treering" / "__init__.py").touch()
    node = add_node(cluster, 1, {"PYTHONPATH": str(tmp_path)})
    with pytest.raises(
        UserError,
        match=r"--engine ray: 1 of 3 nodes cannot take part: node 127\.0\.0\.1: No module named 'treering\.data'; "
        r"install the same version of 'treering\[data,ray\]' where `ray start` finds it",
    ):
        engine._check_nodes()
    cluster.remove_node(node)


def test_another_version_is_named(engine: RayEngine) -> None:
    python, code, token = engine._expected
    assert difference(python, code, token) is None
    assert "expected 3.9.1" in str(difference("3.9.1", code, token))
    assert "found another version of Treering" in str(difference(python, "sha256:0", token))


def test_a_killed_node_changes_nothing(world: World, engine: RayEngine, cluster: Any) -> None:
    expected = world.curate(ProcessEngine(), 1 << 40)
    [node] = cluster.worker_nodes
    lost = Event()

    def kill(_part: str, done: int, _total: int) -> None:
        if done == 4 and not lost.is_set():
            cluster.remove_node(node, allow_graceful=False)
            lost.set()

    assert world.curate(Some(engine, 8), progress=kill) == expected
    assert lost.is_set()


@pytest.mark.parametrize(
    ("name", "address", "expected"),
    [
        ("ray", None, "--engine ray: expected --address HOST:PORT of a cluster, or --address auto"),
        ("ray", "ray://10.0.0.1:10001", r"--address ray://10\.0\.0\.1:10001: expected HOST:PORT or auto, on a node of"),
        ("pool", "auto", "--address auto: expected engine ray; add --engine ray"),
        ("spark", None, "--engine spark: expected one of process, pool, ray"),
    ],
)
def test_options_that_do_not_fit_are_named(name: str, address: str | None, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        engine_for(name, 1, address)


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"--address 127\.0\.0\.1:1: no Ray cluster answers .*check `ray status`"):
        engine_for("ray", 1, "127.0.0.1:1", tmp_path)
