"""The rows of a run that another trainer recorded.

A score belongs to the checkpoint of its step, or to a row of its own where no checkpoint was reported there. Scores and
checkpoints that a restart left behind are `abandoned`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from treering.config.resolved_blend import ResolvedBlend
from treering.metrics.recorded_summary import path_tokens
from treering.runlog.journal import AttemptEnded, Line, Scored
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory, RecordedSegment
from treering.runlog.recorded_records import RecordedCheckpoint
from treering.runlog.records import RunState
from treering.ship.rows.position import position_of
from treering.ship.rows.shared import (
    NO_SHOTS,
    Documents,
    attempt_row,
    by_key,
    checkpoint_row,
    journal_rows,
    score_rows,
    size_of,
)
from treering.store.ledger.models import AttemptRow, CheckpointRow, ReadRow, ScoreRow
from treering.store.ledger.records import Extent, Row, Rows, RunRecord, run_key


class OtherRun:
    """Reads a recorded run for the ledger; documents are read again only where they changed.

    Args:
        run: the run.
    """

    def __init__(self, run: RecordedRunDirectory) -> None:
        self.run = run
        self._documents = Documents()

    def position(self, state: RunState) -> str | None:
        """How the folder looks, see `position_of`."""
        return position_of(self.run, state, [self.run.journal.path])

    def key(self) -> str | None:
        """The run's key in the ledger, None before its first attempt.

        Raises:
            EvidenceError: the run's record or the header of the first attempt does not hold.
        """
        attempts = self.run.attempts()
        return run_key(self.run.digest, attempts[0].header_digest) if attempts else None

    def blends(self) -> list[ResolvedBlend]:
        """The blend that the run reads, where its trainer reads by one.

        Raises:
            EvidenceError: the blend was changed.
        """
        file = self.run.blend_file
        return [self._documents.get(file, ResolvedBlend.read)] if file.exists() else []

    def record(self, state: RunState, position: str) -> RunRecord | None:
        """All rows of the run, None before its first attempt.

        Args:
            state: of the run.
            position: how the folder looked before this.

        Raises:
            EvidenceError: a record of the run does not hold.
        """
        run, attempts = self.run, self.run.attempts()
        if not attempts:
            return None
        newest, segments, record = attempts[-1], self.run.path_to_end(), self.run.record
        key = run_key(run.digest, attempts[0].header_digest)
        last = newest.ring_log.last()
        step = last.step if last else newest.header.resumed_step
        tokens = path_tokens(run)
        journal = run.journal.path
        lines: list[Line] = self._documents.get(journal, lambda _: run.journal.lines()) if journal.exists() else []
        checkpoints = self._checkpoints(key, segments)
        scores = _scored(lines, attempts)
        checkpoints += _without_checkpoint(key, scores, checkpoints, segments)
        if not any(row["status"] in {"saved", "scored"} for row in checkpoints):
            checkpoints.append(checkpoint_row(key, "unsaved", newest.number, step, tokens=tokens))
        blends, end = self.blends(), newest.end
        columns = {
            "key": key,
            "id": run.id,
            "digest": run.digest,
            "experiment": record.experiment,
            "name": f"{record.experiment}-{run.id[:8]}",
            "trainer": "recorded",
            "state": state,
            "started_at": attempts[0].header.started_at,
            "updated_at": end.ended_at if end else last.ended_at if last else newest.header.started_at,
            "step": step,
            "tokens": tokens,
            "blend": record.blend,
            "corpora": bool(blends),
            "folder": str(run.path.absolute()),
        }
        rows: Rows = {
            AttemptRow: [attempt_row(key, each, each.header.world_size, segments) for each in attempts],
            CheckpointRow: by_key(checkpoints, "key"),
            ReadRow: [row for each in by_key(checkpoints, "key") for row in _reads(each, blends)],
            ScoreRow: by_key(_score_rows(checkpoints, scores), "checkpoint", "task", "metric", "shots"),
            **journal_rows(key, lines),
        }
        return RunRecord.of(columns, Extent(newest.number, step, size_of(journal), 0), position, rows)

    def _checkpoints(self, key: str, segments: Sequence[RecordedSegment]) -> list[Row]:
        on_path = {segment.attempt.number: segment for segment in segments}
        rows = []
        for file in self.run.checkpoint_files():
            found, digest = self._documents.get(file, RecordedCheckpoint.read)
            segment = on_path.get(found.attempt)
            status = "saved" if segment is not None and segment.contains(found.step) else "abandoned"
            size = sum(each.size for each in found.files)
            columns: dict[str, Any] = {"digest": digest, "bytes": size, "created_at": found.created_at}
            rows.append(checkpoint_row(key, status, found.attempt, found.step, place=found.path, **columns))
        return rows


def _scored(lines: Iterable[Line], attempts: Sequence[RecordedAttempt]) -> list[tuple[int, Scored]]:
    """The scores in the order in which they were reported, each with the attempt that reached its step.

    A score is of the newest attempt at the time, or of the attempts before it where that one went on from a later step.
    """
    by_number = {attempt.number: attempt for attempt in attempts}
    newest, ended, found = attempts[0], 0, []
    for line in lines:
        entry = line.entry
        if isinstance(entry, AttemptEnded):
            ended = entry.attempt
        if isinstance(entry, Scored):
            later = [each for each in attempts if newest.number < each.number <= ended + 1]
            newest = next((each for each in reversed(later) if each.header.started_at <= entry.at), newest)
            attempt = newest
            while entry.step <= attempt.header.resumed_step and attempt.header.parent is not None:
                attempt = by_number.get(attempt.header.parent.attempt, attempts[0])
            found.append((attempt.number, entry))
    return found


def _without_checkpoint(
    key: str,
    scores: Iterable[tuple[int, Scored]],
    checkpoints: Sequence[Row],
    segments: Sequence[RecordedSegment],
) -> list[Row]:
    """A row for each step that was scored and has no checkpoint."""
    saved = {(row["attempt"], row["step"]) for row in checkpoints}
    on_path = {segment.attempt.number: segment for segment in segments}
    rows: dict[tuple[int, int], Row] = {}
    for attempt, score in scores:
        if (attempt, score.step) not in saved:
            counts = attempt in on_path and on_path[attempt].contains(score.step)
            name = f"scored-{attempt:04d}-{score.step}"
            status = "scored" if counts else "abandoned"
            rows[attempt, score.step] = checkpoint_row(key, status, attempt, score.step, name=name)
    return list(rows.values())


def _score_rows(checkpoints: Sequence[Row], scores: Iterable[tuple[int, Scored]]) -> list[Row]:
    keys = {(row["attempt"], row["step"]): str(row["key"]) for row in checkpoints}
    return [
        row
        for attempt, score in scores
        for row in score_rows(keys[attempt, score.step], score.task, NO_SHOTS, score.metrics)
    ]


def _reads(checkpoint: Row, blends: Iterable[ResolvedBlend]) -> list[Row]:
    """The corpora of the blend, not counted: how much of the order was read is in the rings of all ranks."""
    return [
        {
            "checkpoint": checkpoint["key"],
            "corpus": each.digest or each.corpus,
            "name": each.corpus,
            "samples": None,
            "tokens": None,
            "epochs": None,
        }
        for blend in blends
        for each in sorted(blend.components, key=lambda each: each.digest or each.corpus)
    ]
