"""The rows of a run of Treering's trainer.

Every checkpoint that the run ever saved has a row: those that are there by their manifests, those that were removed by
the journal. A checkpoint off the path to the run's newest step is `abandoned`.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from treering.config.resolved import ReadRange, ranges_before
from treering.config.resolved_blend import ResolvedBlend
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, UserError
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.journal import CheckpointSaved, Line
from treering.runlog.records import Evaluation, RunState
from treering.ship.rows.position import position_of
from treering.ship.rows.shared import (
    NO_SHOTS,
    Documents,
    attempt_row,
    by_key,
    checkpoint_row,
    journal_rows,
    score_rows,
)
from treering.store.ledger.models import AttemptRow, CheckpointRow, ReadRow, ScoreRow
from treering.store.ledger.records import Extent, Row, Rows, RunRecord, run_key

_NOT_METRICS = frozenset({"items", "examples", "truncated"})


class OwnRun:
    """Reads a run of Treering's trainer for the ledger; documents are read again only where they changed.

    Args:
        run: the run.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._documents = Documents()
        self._reads: dict[int, tuple[list[Row], bool]] = {}

    def position(self, state: RunState) -> str | None:
        """How the folder looks, see `position_of`."""
        run = self.run
        return position_of(run, state, [run.journal_file, run.evaluation_journal_file, run.evaluations_folder])

    def key(self) -> str | None:
        """The run's key in the ledger, None before its first attempt.

        Raises:
            EvidenceError: the config or the header of the first attempt does not hold.
        """
        attempts = self.run.attempts()
        return run_key(self.run.resolved.recipe.digest, attempts[0].header_digest) if attempts else None

    def record(self, state: RunState, position: str) -> RunRecord | None:
        """All rows of the run, None before its first attempt.

        Args:
            state: of the run.
            position: how the folder looked before this.

        Raises:
            EvidenceError: a record of the run does not hold.
        """
        attempts = [self._documents.get(each.header_file, _attempt) for each in self.run.attempts()]
        if not attempts:
            return None
        run, resolved, newest = self.run, self.run.resolved, attempts[-1]
        key = run_key(resolved.recipe.digest, attempts[0].header_digest)
        segments = run.path_to(own=True)
        last = newest.ring_log.last()
        parent = newest.header.parent
        step = last.step if last else parent.step if parent else 0
        lines = self._lines(run.journal_file)
        checkpoints = self._checkpoints(key, segments, lines)
        evaluations = self._evaluations()
        if not any(row["status"] in {"saved", "removed"} for row in checkpoints):
            checkpoints.append(
                checkpoint_row(key, "unsaved", newest.number, step, tokens=resolved.consumed_tokens(step))
            )
        read = {row["key"]: self._read(int(row["step"])) for row in checkpoints}
        end = newest.end
        columns = {
            "key": key,
            "id": resolved.run_id,
            "digest": resolved.recipe.digest,
            "experiment": resolved.experiment,
            "name": f"{resolved.experiment}-{resolved.run_id[:8]}",
            "trainer": "treering",
            "state": state,
            "started_at": attempts[0].header.started_at,
            "updated_at": end.ended_at if end else last.ended_at if last else newest.header.started_at,
            "step": step,
            "tokens": resolved.consumed_tokens(step),
            "blend": resolved.blend.digest,
            "corpora": all(whole for _, whole in read.values()),
            "folder": str(run.path.absolute()),
        }
        rows: Rows = {
            AttemptRow: [attempt_row(key, each, each.header.layout.world_size, segments) for each in attempts],
            CheckpointRow: by_key(checkpoints, "key"),
            ReadRow: [{"checkpoint": each, **row} for each, (rows, _) in sorted(read.items()) for row in rows],
            ScoreRow: [row for each in checkpoints for row in _scores(each, evaluations)],
            **journal_rows(key, lines),
        }
        sizes = [
            file.stat().st_size if file.exists() else 0 for file in (run.journal_file, run.evaluation_journal_file)
        ]
        return RunRecord.of(columns, Extent(newest.number, step, *sizes), position, rows)

    def blends(self) -> list[ResolvedBlend]:
        """The blends that the run reads or that led to it."""
        try:
            before = ranges_before(self.run.path, self.run.resolved.recipe.start_from)
        except EvidenceError:
            before = []
        return [*(each.blend for each in before), self.run.resolved.blend]

    def _lines(self, journal: Path) -> list[Line]:
        return self._documents.get(journal, lambda _: self.run.journal.lines()) if journal.exists() else []

    def _evaluations(self) -> dict[str, Evaluation]:
        """The evaluations by the digest of their checkpoint."""
        files = sorted(self.run.evaluations_folder.glob("step-*.json"))
        found = [self._documents.get(file, Evaluation.read)[0] for file in files]
        return {each.checkpoint: each for each in found}

    def _checkpoints(self, key: str, segments: Sequence[PathSegment], lines: Iterable[Line]) -> list[Row]:
        """The rows of all checkpoints that were ever saved; one that is being replaced does not count."""
        rows: dict[str, Row] = {}
        for line in lines:
            entry = line.entry
            if isinstance(entry, CheckpointSaved):
                on_path = any(segment.holds(entry.attempt, entry.step) for segment in segments)
                tokens = self.run.resolved.consumed_tokens(entry.step)
                rows[entry.checkpoint] = checkpoint_row(
                    key,
                    "removed" if on_path else "abandoned",
                    entry.attempt,
                    entry.step,
                    digest=entry.checkpoint,
                    tokens=tokens,
                    created_at=None if entry.found else entry.at,
                )
        for checkpoint in (*self.run.superseded(), *self.run.checkpoints()):
            try:
                loaded = self._documents.get(checkpoint.manifest_file, _checkpoint)
            except (EvidenceError, FileNotFoundError):
                continue
            manifest = loaded.manifest
            on_path = any(segment.holds(manifest.attempt, manifest.step) for segment in segments)
            rows[loaded.digest] = checkpoint_row(
                key,
                "saved" if on_path else "abandoned",
                manifest.attempt,
                manifest.step,
                digest=loaded.digest,
                tokens=manifest.consumed_tokens,
                bytes=sum(file.size for file in manifest.files),
                created_at=manifest.created_at,
                place=str(checkpoint.path.relative_to(self.run.path)),
            )
        return list(rows.values())

    def _read(self, step: int) -> tuple[list[Row], bool]:
        """What the run had read of each corpus up to a step, and whether the runs before it are known."""
        if step not in self._reads:
            resolved = self.run.resolved
            whole, before = True, []
            try:
                before = ranges_before(self.run.path, resolved.recipe.start_from)
            except EvidenceError:
                whole = False
            ranges = [*before, *([ReadRange.of(resolved, step)] if step >= resolved.first_step else [])]
            self._reads[step] = _reads(ranges), whole
        return self._reads[step]


def _reads(ranges: Iterable[ReadRange]) -> list[Row]:
    """Samples, tokens and epochs of each corpus that was read, by the data order alone.

    Raises:
        EvidenceError: no data order can be made of a blend.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in ranges:
        try:
            order = DataOrder(each.blend)
            counts = [high - low for low, high in zip(order.counts(each.lo), order.counts(each.hi), strict=True)]
        except UserError as error:
            raise EvidenceError(f"run {each.run}: {error}") from error
        for component, part, samples in zip(each.blend.components, order.components, counts, strict=True):
            if samples:
                name = component.digest or component.corpus
                row = found.setdefault(name, {"corpus": name, "samples": 0, "tokens": 0, "epochs": Fraction(0)})
                row["name"] = component.corpus
                row["samples"] += samples
                row["tokens"] += samples * order.sequence_length
                row["epochs"] += Fraction(samples, part.num_samples)
    return [{**found[name], "epochs": float(found[name]["epochs"])} for name in sorted(found)]


def _scores(checkpoint: Row, evaluations: dict[str, Evaluation]) -> list[Row]:
    evaluation = evaluations.get(str(checkpoint["digest"]))
    if evaluation is None:
        return []
    key = str(checkpoint["key"])
    rows = [
        row
        for task, by_shots in evaluation.scores.items()
        for shots, metrics in by_shots.items()
        for row in score_rows(
            key, task, int(shots), {name: value for name, value in metrics.items() if name not in _NOT_METRICS}
        )
    ]
    for corpus, metrics in evaluation.perplexity.items():
        shown = {name: value for name, value in metrics.items() if name in {"loss", "perplexity"}}
        rows += score_rows(key, f"heldout/{corpus}", NO_SHOTS, shown)
    return [*rows, *score_rows(key, "validation", NO_SHOTS, {"loss": evaluation.validation_loss})]


def _attempt(header: Path) -> AttemptDirectory:
    """The attempt with its header."""
    attempt = AttemptDirectory(header.parent)
    attempt.header  # noqa: B018 - read now, and kept with the attempt
    return attempt


def _checkpoint(manifest: Path) -> CheckpointDirectory:
    """The checkpoint with its manifest."""
    checkpoint = CheckpointDirectory(manifest.parent)
    checkpoint.manifest  # noqa: B018 - read now, and kept with the checkpoint
    return checkpoint
