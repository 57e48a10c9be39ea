"""The rows that runs of every trainer have: of the journal, and of scores."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from treering.config.canonical import short
from treering.metrics.compare import STDERR
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.journal import Line, Noted, Promoted, Tagged
from treering.runlog.recorded_directory import RecordedAttempt, RecordedSegment
from treering.store.ledger.models import NoteRow, PromotionRow, TagRow
from treering.store.ledger.records import FROM_RUN, Row, Rows

NO_SHOTS: Final = -1

T = TypeVar("T")


class Documents:
    """Documents that were read from files, kept until their file changes."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[tuple[int, int], Any]] = {}

    def get(self, file: Path, read: Callable[[Path], T]) -> T:
        """What `read` makes of a file, made again only where the file has another time or size."""
        status = file.stat()
        stamp = status.st_mtime_ns, status.st_size
        if file not in self._kept or self._kept[file][0] != stamp:
            self._kept[file] = stamp, read(file)
        found: T = self._kept[file][1]
        return found


def journal_rows(key: str, lines: Iterable[Line]) -> Rows:
    """Notes and promotions of a journal, and the last word on each tag.

    Args:
        key: of the run.
        lines: of the journal.
    """
    notes: list[Row] = []
    tags: list[Row] = []
    promotions: list[Row] = []
    for line in lines:
        entry = line.entry
        if isinstance(entry, Noted):
            common = {"run": key, "at": entry.at, "by": entry.by, "host": None, "origin": FROM_RUN}
            note = {"key": line.digest, "text": entry.text, "folded": entry.text.casefold()}
            notes.append(common | note)
        if isinstance(entry, Tagged):
            common = {"run": key, "at": entry.at, "by": entry.by, "host": None, "origin": FROM_RUN}
            # A tag of both lists is taken away, as `notes_and_tags` reads it.
            given = {**dict.fromkeys(entry.added, True), **dict.fromkeys(entry.removed, False)}
            tags += [
                common | {"key": f"{line.digest} {tag}", "tag": tag, "given": added} for tag, added in given.items()
            ]
        if isinstance(entry, Promoted):
            fields = entry.model_dump(mode="json", exclude={"kind"})
            promotions.append({"key": line.digest, "run": key, **fields})
    return {NoteRow: notes, TagRow: by_key(tags, "tag"), PromotionRow: promotions}


def score_rows(checkpoint: str, task: str, shots: int, metrics: Mapping[str, float]) -> list[Row]:
    """The rows of a task's metrics; `<metric>_stderr` is the standard error of a metric beside it.

    Args:
        checkpoint: key of the checkpoint.
        task: name of the task.
        shots: number of shots, `NO_SHOTS` where none was said.
        metrics: value by name.
    """
    return [
        {
            "checkpoint": checkpoint,
            "task": task,
            "metric": metric,
            "shots": shots,
            "value": _finite(value),
            "stderr": _finite(metrics.get(metric + STDERR)),
        }
        for metric, value in metrics.items()
        if not (metric.endswith(STDERR) and metric.removesuffix(STDERR) in metrics)
    ]


def attempt_row(
    key: str,
    attempt: AttemptDirectory | RecordedAttempt,
    world_size: int,
    segments: Iterable[PathSegment] | Iterable[RecordedSegment],
) -> Row:
    """The row of an attempt.

    Args:
        key: of the run.
        attempt: the attempt.
        world_size: number of its ranks.
        segments: of the path to the run's newest step.
    """
    header, end = attempt.header, attempt.end
    return {
        "run": key,
        "number": attempt.number,
        "started_at": header.started_at,
        "ended_at": end.ended_at if end else None,
        "status": end.status if end else None,
        "reason": end.reason if end else None,
        "host": header.host,
        "world_size": world_size,
        "code": header.code.get("digest"),
        "commit": header.code.get("commit"),
        "environment": header.environment.get("digest"),
        "parent_step": header.parent.step if header.parent else None,
        "on_path": any(segment.attempt.number == attempt.number for segment in segments),
    }


def checkpoint_row(key: str, status: str, attempt: int, step: int, *, name: str = "", **columns: Any) -> Row:
    """The row of a checkpoint, by its digest, or by a name where it has none.

    Args:
        key: of the run.
        status: as `CheckpointRow` lists them.
        attempt: number of the attempt that reached it.
        step: the step after which it was saved or scored.
        name: its name in the run; default the digest, or the status.
        columns: what else is known.
    """
    digest = columns.get("digest")
    known = {"digest": None, "tokens": None, "bytes": None, "created_at": None, "place": None}
    name = name or (status if digest is None else short(digest, 16))
    return {"key": f"{key}/{name}", "run": key, "attempt": attempt, "step": step, "status": status, **known, **columns}


def size_of(file: Path) -> int:
    """Bytes of a file, 0 where it is missing."""
    return file.stat().st_size if file.exists() else 0


def by_key(rows: Sequence[Row], *names: str) -> list[Row]:
    """The rows ordered by some columns; of several rows with the same values the last one counts."""
    found = {tuple(row[name] for name in names): row for row in rows}
    return [found[key] for key in sorted(found)]


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
