"""Engines: where the shards of a stage are done. The result never depends on the engine.

An engine has one method, which maps a function over tasks. The function is a module's own function, so that a worker
finds it by its name. What an engine promises, beyond that: a task whose worker died is done again, and whoever leaves
the iteration early ends the work.
"""

import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from treering.errors import TreeringError, UserError
from treering.files import open_regular
from treering.workers import worker_pool

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")

ENGINES = ("process", "pool", "ray")
MAX_DEATHS = 3
"""Deaths of workers in a row, without a task that was finished between them, after which an engine gives up."""


class Engine(Protocol):
    """Maps a function over tasks."""

    def map(
        self, function: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """Yields the place of each task and the function's result, in any order.

        Args:
            function: of a module; it gets `shared` and a task.
            shared: sent to each worker once.
            tasks: started in their order.

        Raises:
            TreeringError: workers die again and again.
        """
        ...

    def close(self) -> None:
        """Ends the workers."""
        ...


class ProcessEngine:
    """Does the tasks in this process, one after another."""

    def map(
        self, function: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """See `Engine.map`."""
        for place, task in enumerate(tasks):
            yield place, function(shared, task)

    def close(self) -> None:
        """See `Engine.close`."""


class PoolEngine:
    """Does the tasks in processes of this machine.

    Args:
        workers: number of processes.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._end = ExitStack()

    def map(
        self, function: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """See `Engine.map`.

        Raises:
            TreeringError: as there.
        """
        left, deaths = dict(enumerate(tasks)), 0
        with tempfile.NamedTemporaryFile(prefix="treering-", suffix=".shared") as file:
            pickle.dump((function, shared), file)
            file.flush()
            while left:
                try:
                    for place, result in self._round(function.__module__, file.name, left):
                        del left[place]
                        deaths = 0
                        yield place, result
                except BrokenProcessPool:
                    deaths += 1
                    if deaths == MAX_DEATHS:
                        raise TreeringError(deaths_of(list(left.values())[: self._workers])) from None

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool = None
        self._end.close()

    def _round(self, module: str, shared: str, tasks: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        """Yields what the workers finish.

        Raises:
            BrokenProcessPool: a worker died.
        """
        modules = [module, *getattr(sys.modules[module], "PRELOADED", ())]
        pool = self._pool = self._pool or self._end.enter_context(worker_pool(self._workers, modules))
        try:
            try:
                futures = {pool.submit(_call, shared, task): place for place, task in tasks.items()}
            except (EOFError, ConnectionError) as error:
                raise BrokenProcessPool("a worker died while it started") from error
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException as error:
            self._pool = None
            self._end.__exit__(type(error), error, error.__traceback__)
            raise


def until_fault(
    results: Iterator[tuple[int, Result]],
    num_tasks: int,
    is_fault: Callable[[int, Result], bool],
    count_done: Callable[[int], None],
) -> list[Result | None]:
    """The results of `Engine.map` in order of their tasks; the work ends when it is certain which fault is the first.

    Args:
        results: of all tasks, in any order.
        num_tasks: how many there are.
        is_fault: whether a task's result, given with its place, ends the work.
        count_done: told how many tasks are done.

    Returns:
        A result for each task; None behind the first fault, where it was given up.
    """
    found: list[Result | None] = [None] * num_tasks
    end = num_tasks
    for count, (place, result) in enumerate(results, 1):
        found[place] = result
        count_done(count)
        if is_fault(place, result):
            end = min(end, place)
        if end < num_tasks and None not in found[: end + 1]:
            break
    return found


def engine_for(name: str | None, workers: int | None, address: str | None = None, folder: Path = Path()) -> Engine:
    """The engine of a name.

    Args:
        name: process, pool or ray; None for a pool of several workers, or this process alone.
        workers: number of processes; on Ray, tasks at a time: None for all cores of the cluster.
        address: of a Ray cluster.
        folder: of the project; every node of the cluster has it.

    Raises:
        UserError: the name is unknown, Ray and an address do not come together, or see `RayEngine`.
        StoreError: no cluster answers at the address.
    """
    if name not in (*ENGINES, None):
        raise UserError(f"--engine {name}: expected one of {', '.join(ENGINES)}")
    if name == "ray" and address is None:
        raise UserError(
            "--engine ray: expected --address HOST:PORT of a cluster, or --address auto on one of its nodes; on one "
            "machine use --engine pool"
        )
    if name != "ray" and address is not None:
        raise UserError(f"--address {address}: expected engine ray; add --engine ray")
    if address is not None:
        from treering.data.curate.ray_engine import RayEngine  # noqa: PLC0415 - it imports this module

        return RayEngine(address, workers, folder)
    if name == "process" or (name is None and workers == 1):
        return ProcessEngine()
    return PoolEngine(workers or 1)


def deaths_of(tasks: Sequence[object]) -> str:
    """The text about tasks whose workers died again and again."""
    shown = "; ".join(map(str, tasks))
    return (
        f"workers were killed {MAX_DEATHS} times in a row, at one of: {shown}. The system does that when "
        "memory runs out: use fewer workers; finished shards are kept, so the same command continues"
    )


def _call(shared: str, task: Any) -> Any:
    function, value = _loaded(shared)
    return function(value, task)


@lru_cache(maxsize=1)
def _loaded(path: str) -> tuple[Callable[[Any, Any], Any], Any]:
    with open_regular(Path(path)) as file:
        found: tuple[Callable[[Any, Any], Any], Any] = pickle.load(file)  # noqa: S301 - the parent wrote it
    return found
