"""Digests in parallel: hashing and reading release Python's lock, so threads are enough."""

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
"""Threads that digest; more threads than a disk serves make nothing faster."""


def digest_range(descriptor: int, start: int, length: int) -> str:
    """`sha256:<hex>` of the bytes [start, start + length) of an open file, or of those up to its end."""
    state = hashlib.sha256()
    while length and (block := os.pread(descriptor, length, start)):
        state.update(block)
        start, length = start + len(block), length - len(block)
    return f"sha256:{state.hexdigest()}"


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int = WORKERS) -> Iterator[Result]:
    """Applies a function to each item in several threads; results come in the items' order.

    At most twice as many items as threads are submitted at a time, so that a long list costs no memory.
    """
    with ThreadPoolExecutor(workers) as pool:
        yield from in_order(pool, function, items, 2 * workers)


def in_order(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], most_pending: int
) -> Iterator[Result]:
    """`map_in_order` in a given pool.

    Args:
        pool: threads or processes.
        function: the function.
        items: what it is applied to.
        most_pending: items that are submitted to the pool at a time.
    """
    remaining = iter(items)
    pending: deque[Future[Result]] = deque(pool.submit(function, item) for item in islice(remaining, most_pending))
    while pending:
        result = pending.popleft().result()
        pending.extend(pool.submit(function, item) for item in islice(remaining, 1))
        yield result
