"""Digests in parallel: hashing and reading leave Python's lock, so threads are enough."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

WORKERS = min(8, len(os.sched_getaffinity(0)))
"""Threads that digest: more than a disk serves bring nothing."""


def digest_range(descriptor: int, start: int, length: int) -> str:
    """`sha256:<hex>` of the bytes [start, start + length) of an open file, of fewer where it ends before."""
    state = hashlib.sha256()
    while length and (block := os.pread(descriptor, length, start)):
        state.update(block)
        start, length = start + len(block), length - len(block)
    return f"sha256:{state.hexdigest()}"


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int = WORKERS) -> Iterator[Result]:
    """Applies a function to each item in several threads; results come in the items' order.

    Twice as many items as threads are under way at a time, so that a long list costs no memory.
    """
    with ThreadPoolExecutor(workers) as pool:
        yield from in_order(pool, function, items, 2 * workers)


def in_order(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], under_way: int
) -> Iterator[Result]:
    """The same in a pool that is there already, with so many items under way at a time."""
    remaining = iter(items)
    pending: deque[Future[Result]] = deque(pool.submit(function, item) for item in islice(remaining, under_way))
    while pending:
        result = pending.popleft().result()
        pending.extend(pool.submit(function, item) for item in islice(remaining, 1))
        yield result
