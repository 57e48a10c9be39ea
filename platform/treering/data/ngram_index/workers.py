"""The worker processes that build an index; they end when the process that started them ends, even if it is killed."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol, TypeVar

from treering.data.corpus.chunks import in_order
from treering.errors import StoreError
from treering.workers import worker_pool

Item = TypeVar("Item")
Result = TypeVar("Result")


class OrderedMap(Protocol):
    """What `worker_map` gives."""

    def __call__(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> Iterator[Result]:
        """Applies a function to each item; the results come in the items' order."""


@contextmanager
def worker_map(workers: int) -> Iterator[OrderedMap]:
    """`map` in this process for one worker, or over that many worker processes.

    Raises:
        StoreError: a worker was killed.
    """
    if workers == 1:
        yield map
        return
    try:
        with worker_pool(workers) as pool:
            yield lambda function, items: in_order(pool, function, items, 2 * workers)
    except BrokenProcessPool as error:
        raise StoreError(
            "index: a worker process was killed, expected it to finish; it may have had too little memory: "
            "`treering index --workers 1` needs least"
        ) from error
