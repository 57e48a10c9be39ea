"""The columns of one attempt: the one door to them. Whoever reads them extends them first.

`attempts/0001/columns/` has `head.json`, a file `rows-…` with a row a ring, and a file `pyramid-…` with minimum,
maximum and last value of 64 and of 4,096 rings, both for each part of at most 131,072 rings.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from treering.runlog.columns.head import Head
from treering.runlog.columns.store import DamagedPartError, FolderStore, MemoryStore, Store, say_unwritable
from treering.runlog.ring_file import open_rings, state_of
from treering.runlog.ring_log import Place, RingLog

if TYPE_CHECKING:
    from treering.runlog.columns.buckets import Buckets
    from treering.runlog.columns.history import History
    from treering.runlog.columns.reading import PyramidReader
    from treering.runlog.columns.rows import Integers, Series

T = TypeVar("T")

COLUMNS: Final = "columns"

_TRIES: Final = 3


class Attempt(Protocol):
    """What of an attempt is read; `AttemptDirectory` and `RecordedAttempt` have it."""

    @property
    def path(self) -> Path:
        """The attempt's folder."""

    @property
    def header_digest(self) -> str:
        """Digest of the header."""

    @property
    def ring_log(self) -> RingLog[Any]:
        """The reader of the rings."""


class AttemptColumns:
    """The columns of one attempt.

    Args:
        attempt: the attempt.
        keep: whether to keep them in the attempt's folder; not of a published run, whose files are digested.
    """

    def __init__(self, attempt: Any, *, keep: bool = True) -> None:
        self._attempt: Attempt = attempt
        self._store: Store = FolderStore(attempt.path / COLUMNS) if keep else MemoryStore()
        self._seen: Head | None = None

    @cached_property
    def _log(self) -> RingLog[Any]:
        return self._attempt.ring_log

    @property
    def rings_file(self) -> Path:
        """The file of the rings."""
        return self._log.path

    def head(self) -> Head:
        """The head, after all durable rings were added.

        Raises:
            EvidenceError: a ring was changed, removed or put in; the error of `RingLog`.
            OSError: the rings cannot be read.
        """
        begin = self._attempt.header_digest
        if self._seen is not None and self._seen.standing(self._log.path, begin) == "current":
            return self._seen  # a path asks several times for one line of a list
        head = self._store.head()
        if head is not None and head.standing(self._log.path, begin) == "current":
            self._seen = head
            return head
        try:
            return self._extended(begin)
        except OSError as error:
            if isinstance(self._store, MemoryStore):
                raise
            say_unwritable(self._attempt.path / COLUMNS, error)
            self._store = MemoryStore()
            return self._extended(begin)

    def _extended(self, begin: str) -> Head:
        state = state_of(self._log.path)
        empty = Head(begin, Place(begin))
        if not state[0]:
            return empty

        from treering.runlog.columns.build import extend  # noqa: PLC0415 - a list that finds its heads loads no Arrow

        with self._store.locked():
            head = self._store.head()
            if head is None or head.standing(self._log.path, begin) == "other":
                return extend(self._store, empty, self._log, state)
            try:
                return extend(self._store, head, self._log, state)
            except DamagedPartError:
                return extend(self._store, empty, self._log, state)

    def _read(self, read: Callable[[Head], T]) -> T:
        """What `read` makes of the head; a missing or damaged part is read again after the columns were built again."""
        for _ in range(_TRIES):
            head = self.head()
            try:
                return read(head)
            except DamagedPartError:
                self._seen = None
                found = self._store.head()
                if found is not None and found.parts == head.parts:  # no other process replaced the part
                    self._forget()
        return read(self.head())

    def rebuild(self) -> None:
        """Drops all parts, and builds them again from the rings; readers build them too, should this be killed.

        Raises:
            EvidenceError: as `head`.
        """
        self._forget()
        self.head()

    def _forget(self) -> None:
        """Drops all parts."""
        self._seen = None
        try:
            with self._store.locked():
                self._store.publish(Head("", Place("")))
        except OSError as error:
            say_unwritable(self._attempt.path / COLUMNS, error)
            self._store = MemoryStore()

    def histories(self, metrics: Sequence[str], last_step: int | None = None) -> "dict[str, History]":
        """Whole series.

        Args:
            metrics: their names; one that no ring has gives an empty series.
            last_step: the last step to return; None: the newest.

        Raises:
            EvidenceError: as `head`.
        """
        from treering.runlog.columns.reading import histories  # noqa: PLC0415 - see above

        return self._read(lambda head: histories(self._store, head, metrics, last_step))

    def history(self, metric: str, last_step: int | None = None) -> "History":
        """One whole series; arguments and errors as `histories`."""
        return self.histories([metric], last_step)[metric]

    def buckets(self, metric: str, count: int, last_step: int | None = None) -> "Buckets":
        """At least `count` buckets of a series, or a bucket a ring: `chart` makes `count` of them.

        Args:
            metric: its name.
            count: how many are needed.
            last_step: the last step that counts; None: the newest.

        Raises:
            EvidenceError: as `head`.
        """
        return self.many_buckets([metric], count, last_step)[metric]

    def many_buckets(
        self, metrics: Sequence[str], count: int, last_step: int | None = None, read: "PyramidReader | None" = None
    ) -> "dict[str, Buckets]":
        """`buckets` of several metrics by name; all have the same buckets.

        Args:
            metrics: their names.
            count: how many are needed.
            last_step: the last step that counts; None: the newest.
            read: reads the pyramid of a part, for a reader that keeps it; None: it is read from the file.

        Raises:
            EvidenceError: as `head`.
        """
        from treering.runlog.columns.parts import read_buckets  # noqa: PLC0415 - see above
        from treering.runlog.columns.reading import buckets  # noqa: PLC0415 - see above

        return self._read(lambda head: buckets(self._store, head, metrics, count, last_step, read=read or read_buckets))

    def series(
        self, names: Sequence[str], after: int = 0, last_step: int | None = None
    ) -> "tuple[Integers, dict[str, Series]]":
        """Steps, and columns of the rows at these steps.

        Args:
            names: metrics with `METRIC_PREFIX`, or `ended_at` or `tokens`, see `Rows`.
            after: the step after which the rows begin.
            last_step: the last step; None: the newest.

        Raises:
            EvidenceError: as `head`.
        """
        from treering.runlog.columns.reading import series  # noqa: PLC0415 - see above

        return self._read(lambda head: series(self._store, head, names, after, last_step))

    def chart(self, metric: str, count: int = 1000, last_step: int | None = None) -> "Buckets":
        """The envelope of a series: at most `count` buckets with minimum and maximum, so that no extreme is hidden.

        Args:
            metric: its name.
            count: most buckets.
            last_step: the last step that counts; None: the newest.

        Raises:
            EvidenceError: as `head`.
        """
        return self.buckets(metric, count, last_step).at_most(count)

    def tokens(self, last_step: int | None = None) -> int | None:
        """Tokens up to a step: consumed on the path (Treering's trainer), or of this attempt's steps (another one).

        Args:
            last_step: the step; None: the newest.

        Returns:
            None where no ring reports tokens.
        """
        head = self.head()
        if last_step is None or last_step >= head.last_step:
            return head.tokens
        from treering.runlog.columns.reading import tokens  # noqa: PLC0415 - see above

        return self._read(lambda head: tokens(self._store, head, last_step, self._log.kind))

    def newest(self, count: int, last_step: int | None = None) -> list[Any]:
        """The last rings, at most `count`, oldest first, read from `rings.jsonl`.

        Args:
            count: how many.
            last_step: the step of the last one; None: the newest.

        Raises:
            EvidenceError: as `head`.
        """
        head = self.head()
        if not head.rings or (last_step is not None and last_step > head.last_step):
            return []
        if last_step in {None, head.last_step}:
            found = self._log.newest(count)
            if found and found[-1].step == head.last_step:  # else more was appended since
                return found
        from treering.runlog.columns.reading import line_bounds  # noqa: PLC0415 - see above

        step = head.last_step if last_step is None else last_step
        bounds = self._read(lambda head: line_bounds(self._store, head, step, count))
        if bounds is None:
            return []
        with open_rings(self._log.path) as file:
            file.seek(bounds[0])
            lines = file.read(bounds[1] - bounds[0]).split(b"\n")[:-1]
        where = f"{self._log.path}, up to step {step}"
        return [self._log.kind.from_line(line.decode(errors="surrogateescape"), where) for line in lines]

    def ring(self, step: int) -> Any | None:
        """The ring of a step, read from `rings.jsonl`; None where the attempt has no such step.

        Raises:
            EvidenceError: as `head`.
        """
        return next(iter(self.newest(1, step)), None)

    def derived(self, name: str) -> str | None:
        """A text that somebody derived from the columns and kept beside them, None where there is none.

        Args:
            name: of its file.
        """
        return self._store.derived(name)

    def keep_derived(self, name: str, text: str) -> None:
        """Keeps a text beside the columns, where their folder can be written."""
        try:
            self._store.keep_derived(name, text)
        except OSError as error:
            say_unwritable(self._attempt.path / COLUMNS, error)
