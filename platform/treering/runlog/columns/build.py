"""Extends an attempt's columns by the rings that were appended since.

Parts are written whole and the head last: a process that is killed leaves a head that names whole parts, and parts that
no head names, which the next one removes.
"""

from collections.abc import Iterator
from typing import Any

from treering.runlog.columns.blocks import BlockReader
from treering.runlog.columns.head import Head, Part
from treering.runlog.columns.parts import MERGED, PART_ROWS, pyramid_content, read_rows, rows_content, summaries
from treering.runlog.columns.rows import Rows
from treering.runlog.columns.store import Store
from treering.runlog.ring import Ring
from treering.runlog.ring_log import Place, RingLog


def extend(store: Store, head: Head, log: RingLog[Any], state: tuple[int, int]) -> Head:
    """Adds all durable rings behind a head.

    Args:
        store: where the columns are kept.
        head: what they hold.
        log: the attempt's rings.
        state: size and time of the last write of the rings' file, taken before.

    Returns:
        The new head, which is published.

    Raises:
        EvidenceError: a ring was changed, removed or put in; rings before it may have been added.
        OSError: the store cannot be written.
    """
    for rows, place in _batches(BlockReader(log).after(head.place)):
        head = _added(store, head, rows, place, cumulative=log.kind is Ring)
        store.publish(head)
    head = Head(head.begin, head.place, *state, head.tokens, head.metrics, head.parts)
    store.publish(head)
    return head


def _batches(blocks: Iterator[Any]) -> Iterator[tuple[Rows, Place]]:
    """The rows of blocks, as many at once as make a part."""
    found: list[Rows] = []
    place = None
    for block in blocks:
        found.append(block.rows)
        place = block.place
        if sum(map(len, found)) >= PART_ROWS:
            yield Rows.joined(found), place
            found = []
    if found and place is not None:
        yield Rows.joined(found), place


def _added(store: Store, head: Head, rows: Rows, place: Place, *, cumulative: bool) -> Head:
    metrics = dict(head.metrics)
    for name, summary in summaries(rows).items():
        metrics[name] = metrics[name].followed_by(summary) if name in metrics else summary
    parts = list(head.parts)
    taken: list[Rows] = [rows]
    while parts and parts[-1].rows < PART_ROWS and parts[-1].rows <= MERGED * sum(map(len, taken)):
        taken.insert(0, read_rows(store, parts.pop()))
    whole = Rows.joined(taken)
    first = sum(part.rows for part in parts)
    for start in range(0, len(whole), PART_ROWS):
        piece = whole.cut(start, min(start + PART_ROWS, len(whole)))
        parts.append(_written(store, piece, first + start, place.prev))
    tokens = _tokens(head.tokens, rows, cumulative=cumulative)
    return Head(head.begin, place, head.size, head.modified_ns, tokens, metrics, tuple(parts))


def _written(store: Store, rows: Rows, first: int, digest: str) -> Part:
    """Writes a part.

    Args:
        store: where.
        rows: of the part.
        first: number of its first row in the attempt.
        digest: of a ring at or behind its end: other rings have other names, so no head names the file of another one.
    """
    name = f"rows-{first:09d}-{first + len(rows):09d}-{digest.removeprefix('sha256:')[:16]}.parquet"
    part = Part(name, len(rows), int(rows.steps[0]), int(rows.steps[-1]))
    store.write(part.pyramid, pyramid_content(rows))
    store.write(part.name, rows_content(rows))
    return part


def _tokens(before: int | None, rows: Rows, *, cumulative: bool) -> int | None:
    known = rows.tokens.values[rows.tokens.known]
    if not len(known):
        return before
    return int(known[-1]) if cumulative else (before or 0) + int(known.sum())
