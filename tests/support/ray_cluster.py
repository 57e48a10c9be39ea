"""A real Ray cluster of several nodes, which are processes of this machine."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 alone
    "RAY_health_check_period_ms": "300",  # a dead node is noticed soon
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "PYTHONPATH": str(Path(__file__).parent),
}
STORE_BYTES = 80 << 20


@contextmanager
def ray_cluster(cores: int) -> Iterator[Any]:
    """A cluster of two nodes with so many cores each: Ray's `Cluster`."""
    folder = tempfile.mkdtemp(prefix="tr-ray-", dir="/tmp")  # the path of a socket has at most 107 bytes
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        patch.setenv("RAY_TMPDIR", folder)  # where the address of the newest cluster is written: not the machine's
        (Path(folder) / "ray").mkdir()
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        stack.callback(cluster.shutdown)
        add_node(cluster, cores, include_dashboard=False, include_log_monitor=False, temp_dir=folder)
        add_node(cluster, cores)
        yield cluster


def add_node(cluster: Any, cores: int, variables: Mapping[str, str] = MappingProxyType({}), **options: Any) -> Any:
    """Starts a node with some variables in its environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return cluster.add_node(num_cpus=cores, node_ip_address="127.0.0.1", object_store_memory=STORE_BYTES, **options)


def working(*functions: str) -> list[psutil.Process]:
    """The processes that do a task of one of the functions now."""
    found = []
    for each in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if each.name().removeprefix("ray::") in functions:
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def add_to_both(shared: Any, task: Any) -> Any:
    """Adds one to two arrays in their place, and returns their sum."""
    shared += 1
    task += 1
    return shared + task
