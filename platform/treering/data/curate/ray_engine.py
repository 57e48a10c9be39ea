"""The engine on a Ray cluster that runs: the shards of a stage are Ray's tasks.

Ray core's tasks are used, not Ray Data's datasets: those have no resumption by shard, and no way to read a shard again
with another cap. Every node has the same installation, and the project's folder at the same path.
"""

import logging
import os
import pickle
import platform
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from treering.data.curate.engines import MAX_DEATHS, deaths_of
from treering.data.curate.shards import code_version
from treering.errors import StoreError, TreeringError, UserError

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")

_ANSWER_S = 10
"""How long an address may take to answer."""
_NODE_S = 120
"""How long a node may take to start a process that imports Treering."""
_SHOWN = 5
"""Nodes that an error names."""


class RayEngine:
    """Does the tasks on a Ray cluster, a core each.

    Args:
        address: HOST:PORT of a cluster that runs, or auto for the one that this machine belongs to.
        workers: tasks at a time; None for all cores, also of nodes that join later.
        folder: of the project; every node has it at this path.

    Raises:
        UserError: Ray is not installed, the address is of another form, or a node differs from this process.
        StoreError: no cluster answers at the address.
    """

    def __init__(self, address: str, workers: int | None, folder: Path) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # Ray would try an address for a quarter of an hour
        try:
            import ray  # noqa: PLC0415 - an extra
        except ImportError:
            raise UserError("--engine ray: Ray is not installed; pip install 'treering[data,ray]'") from None
        self.workers = workers
        self._ray: Any = ray
        self._end = ExitStack()
        with ExitStack() as stack:
            _connect(ray, address)
            stack.callback(ray.shutdown)
            scratch = folder.resolve() / ".treering"
            scratch.mkdir(parents=True, exist_ok=True)
            token = stack.enter_context(tempfile.NamedTemporaryFile(prefix="ray-", dir=scratch))
            self._expected = (platform.python_version(), code_version(), token.name)
            self._check_nodes()
            self._end = stack.pop_all()

    def map(
        self, function: Callable[[Shared, Task], Result], shared: Shared, tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """See `Engine.map`.

        Raises:
            TreeringError: as there.
        """
        ray = self._ray
        held = [ray.put((self._expected, function, pickle.dumps(shared)))]  # in a list: Ray reads no list for each task
        # Ray's own retries are off: they have no end where memory runs out.
        remote = ray.remote(num_cpus=1, max_retries=0)(_call).options(name=function.__name__)
        left, running = list(range(len(tasks)))[::-1], dict[Any, int]()
        deaths = Counter[int]()
        try:
            while left or running:
                while left and len(running) < (self.workers or self._num_cores()):
                    place = left.pop()
                    running[remote.remote(held, pickle.dumps(tasks[place]))] = place
                [ready], _ = ray.wait(list(running), num_returns=1)
                place = running.pop(ready)
                try:
                    result = ray.get(ready)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause or error) from error
                except ray.exceptions.RayError as error:
                    deaths[place] += 1
                    if deaths[place] == MAX_DEATHS:
                        raise TreeringError(deaths_of([tasks[place]])) from error
                    left.append(place)
                    continue
                yield place, pickle.loads(result)  # noqa: S301 - a worker of this stage wrote it
        finally:
            for each in running:
                ray.cancel(each, force=True)

    def close(self) -> None:
        """See `Engine.close`."""
        self._end.close()

    def _num_cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def _check_nodes(self) -> None:
        """Asks each node that may take tasks whether it is like this process.

        Raises:
            UserError: a node is not.
            StoreError: the cluster has no core.
        """
        ray = self._ray
        on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        if not nodes:
            raise StoreError("--engine ray: the cluster has no core, expected at least one; check `ray status`")
        asked = {
            ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on(node["NodeID"], soft=False))(_look())
            .remote(*self._expected): node["NodeManagerAddress"]
            for node in nodes
        }  # fmt: skip
        answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_NODE_S)
        faults = [f"node {asked[each]}: no answer within {_NODE_S} s; check `ray status`" for each in silent]
        for each in answered:
            try:
                fault = ray.get(each)
            except ray.exceptions.RayError as error:
                fault = f"{str(error).strip().splitlines()[-1]}; check `ray status`"
            if fault:
                faults.append(f"node {asked[each]}: {fault}")
        if faults:
            shown = "; ".join(sorted(faults)[:_SHOWN])
            raise UserError(f"--engine ray: {len(faults)} of {len(nodes)} nodes cannot take part: {shown}")


def difference(python: str, code: str, token: str) -> str | None:
    """What this process lacks to do tasks of the one that runs the stage; None where nothing is missing.

    Args:
        python: its version of Python.
        code: its `code_version`.
        token: a file that it made in the project's folder.
    """
    if platform.python_version() != python:
        return f"found Python {platform.python_version()}, expected {python}"
    if code_version() != code:
        return "found another version of Treering or of its libraries; install the same packages on all nodes"
    if not Path(token).exists():
        return f"found no {token}; mount the project's folder at the same path on all nodes"
    return None


def _look() -> Callable[[str, str, str], str | None]:
    """`difference` for a node that may lack this module: Ray sends a function inside a function as code."""

    def look(python: str, code: str, token: str) -> str | None:
        try:
            from treering.data.curate.ray_engine import difference  # noqa: PLC0415
        except ImportError as error:
            return f"{error}; install the same version of 'treering[data,ray]' where `ray start` finds it"
        return difference(python, code, token)

    return look


def _connect(ray: Any, address: str) -> None:
    """Connects this process to a cluster.

    Raises:
        UserError: the address is of another form.
        StoreError: no cluster answers.
    """
    if "://" in address:
        raise UserError(
            f"--address {address}: expected HOST:PORT or auto, on a node of the cluster: this process reads and writes "
            "the project's folder; from elsewhere use `ray job submit`"
        )
    try:
        found = ray._private.services.canonicalize_bootstrap_address_or_die(address)  # noqa: SLF001 - what `auto` means
        host, port = found.rsplit(":", 1)
        socket.create_connection((host, int(port)), _ANSWER_S).close()  # Ray itself would wait for many minutes
        ray.init(found, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise StoreError(f"--address {address}: no Ray cluster answers ({error}); check `ray status`") from None


def _call(held: list[Any], task: bytes) -> bytes:
    """Does a task in a worker.

    Everything is sent as bytes, since arrays that Ray sends are read-only.
    """
    function, shared = _loaded(held[0])
    return pickle.dumps(function(shared, pickle.loads(task)))  # noqa: S301 - the stage's process wrote it


@lru_cache(maxsize=1)
def _loaded(reference: Any) -> tuple[Callable[[Any, Any], Any], Any]:
    """What the tasks share; each worker reads it once, and looks whether its node, which may have joined late, is fit.

    Raises:
        UserError: it is not.
    """
    import ray  # noqa: PLC0415 - an extra

    expected, function, shared = ray.get(reference)
    fault = difference(*expected)
    if fault is not None:
        raise UserError(f"--engine ray: node {socket.gethostname()} cannot take part: {fault}")
    return function, pickle.loads(shared)  # noqa: S301 - the stage's process wrote it
