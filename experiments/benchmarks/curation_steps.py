"""Processor time of each step of curation: the stage's functions are timed where the stage calls them."""

import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from treering.data.curate import (
    checks,
    decontaminate,
    extract,
    heldout,
    ingest,
    intake,
    minhash,
    pipeline,
    shards,
    shelf,
)
from treering.data.curate import filter as rules

REST = "all else: start, imports, loops"
STEPS: dict[str, tuple[tuple[Any, str], ...]] = {
    "reading of the sources": ((ingest, "read_shard"), (intake, "source_of")),
    "extraction": ((ingest, "extract"), (extract, "extract_plain_text")),
    "text repair": ((extract, "_fix"),),
    "quality rules": ((ingest, "judge"),),
    "language": ((rules, "language"),),
    "words and their hashes": ((rules, "scan"), (checks, "word_hashes")),
    "shingles and MinHash": ((ingest, "shingle_runs"), (minhash.MinHasher, "bands"), (checks, "shingle_set")),
    "digests": ((ingest, "_sha256"),),
    "shelf": ((ingest, "_line"), (shelf.SignatureWriter, "add"), (shelf.Shelf, "document")),
    "rows of documents": ((ingest, "_rows"), (ingest, "write_rows")),
    "records of shards": ((ingest, "finish"), (ingest, "finished"), (shards.Shard, "inputs")),
    "deduplication": ((pipeline, "find_duplicates"),),
    "held-out split": ((pipeline, "choose_heldout"), (pipeline, "TwinIndex")),
    "tasks": ((pipeline, "write_tasks"), (pipeline, "task_ngrams")),
    "twins of held-out documents": ((heldout.TwinIndex, "twin"),),
    "decontamination": ((decontaminate.TaskNgrams, "contaminated_by"),),
    "writing of corpora and decisions": ((pipeline, "write_corpus"),),
}
"""By step: the places of its functions. A function's time is its own: what it calls of another step is that step's."""


class Clock:
    """Sums the processor time of steps inside each other.

    Attributes:
        seconds: by step.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._open = [REST]
        self._since = time.process_time()

    def _count(self) -> None:
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """The body is part of a step."""
        self._count()
        self._open.append(name)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function as part of a step."""
        if inspect.isgeneratorfunction(function):

            @wraps(function)
            def each(*args: Any, **kwargs: Any) -> Iterator[Any]:
                found, end = function(*args, **kwargs), object()
                while True:
                    with self.step(name):
                        item = next(found, end)
                    if item is end:
                        return
                    yield item

            return each

        @wraps(function)
        def whole(*args: Any, **kwargs: Any) -> Any:
            with self.step(name):
                return function(*args, **kwargs)

        return whole


def seconds_by_step(work: Callable[[], Any]) -> dict[str, float]:
    """Processor time of each step while `work` runs the stage in this process, most first."""
    clock, before = Clock(), []
    for step, places in STEPS.items():
        for owner, name in places:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, clock.timed(getattr(owner, name), step))
    try:
        with clock.step(REST):
            work()
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
    return dict(clock.seconds.most_common())
