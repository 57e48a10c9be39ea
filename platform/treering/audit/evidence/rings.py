"""The rings on the path to a checkpoint, against the schedule.

Nothing here reads a token. It finds what the rings *say*; `audit.corpora.content` compares that with the corpora.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from treering.audit.evidence.segments import DerivedSegment, Piece
from treering.audit.report import Finding, Gap, Level
from treering.errors import EvidenceError
from treering.runlog.ancestry import broken_seam
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.ring import Ring


@dataclass(slots=True)
class Recorded:
    """What the rings of a path say.

    Attributes:
        pieces: the steps of the path.
        steps: rings that are in the chain with the schedule's range.
        applied_steps: rings whose step moved the weights.
        validation_loss: newest held-out loss that the checkpoint's own run measured.
        last: the last ring in the chain.
        batch_digests: by step, the digest of its batch as laid; steps without a ring in the chain are left out.
        findings: what does not hold.
    """

    pieces: Sequence[Piece]
    steps: int = 0
    applied_steps: int = 0
    validation_loss: float | None = None
    last: Ring | None = None
    batch_digests: dict[int, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _heads: dict[Path, int] = field(default_factory=dict, repr=False)

    @property
    def whole(self) -> bool:
        """Whether every step of the path has its ring."""
        return bool(self.pieces) and len(self.batch_digests) == self.pieces[-1].last_step

    def where(self, step: int) -> tuple[Path, int]:
        """File and line (from 1) of the ring of a step on the path."""
        piece = next(each for each in self.pieces if each.last_step >= step)
        file = piece.run.attempts_folder if piece.attempt is None else piece.attempt.rings_file
        return file, step - self._heads.get(file, piece.first_step) + 1

    @property
    def gap(self) -> Gap | None:
        """What is answered where rings of the path are missing or were changed; None where all hold."""
        if self.whole or not self.findings:
            return None
        held = ", ".join(f"{first} to {last}" for first, last in _runs_of(self.batch_digests)) or "none"
        answered = f"recorded are the steps {held}; the others as schedule and blend of the recipe order them"
        return Gap(self.findings[0].text, answered, Level.REDERIVED, self.findings[0].file)

    def broken(self, step: int, text: str) -> None:
        """Notes that the chain breaks at a step of the path."""
        file, line = self.where(step)
        self.findings.append(Finding("ring", text, file=str(file), line=line, step=step))

    def begins_at(self, file: Path, step: int) -> None:
        """Notes which step the first line of a file that lost its head is about."""
        self._heads[file] = step


def _runs_of(steps: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of ascending steps without a gap."""
    first = last = None
    for step in steps:
        if first is None or last is None or step != last + 1:
            if first is not None and last is not None:
                yield first, last
            first = step
        last = step
    if first is not None and last is not None:
        yield first, last


def read_path(checkpoint: CheckpointDirectory, pieces: Sequence[Piece]) -> Recorded:
    """Walks the rings to a checkpoint, checks chain and seams, and compares each ring with the schedule.

    Where rings are missing it goes on with those that are there; where one was changed it ends.
    """
    recorded = Recorded(pieces)
    first = pieces[0]
    samples = first.run.resolved.consumed_samples(first.first_step - 1) if first.first_step > 1 else 0
    tokens = samples * first.blend.sequence_length
    for piece in pieces:
        if not _read_piece(checkpoint, piece, (samples, tokens), recorded):
            return recorded
        lo, hi = piece.sample_range
        samples, tokens = samples + hi - lo, tokens + (hi - lo) * piece.blend.sequence_length
    last = recorded.last
    if last is not None and last.step == pieces[-1].last_step and checkpoint.has_manifest:
        cut_at = checkpoint.manifest.ring
        if last.digest != cut_at:
            text = f"{checkpoint.path}: was cut at ring {cut_at}, but the path ends at {last.digest}"
            recorded.findings.append(Finding("ring", text, file=str(checkpoint.manifest_file)))
    return recorded


def _read_piece(checkpoint: CheckpointDirectory, piece: Piece, before: tuple[int, int], recorded: Recorded) -> bool:
    """Reads the rings of one piece; returns whether no ring was changed, so that the next piece can be read."""
    step = piece.first_step
    try:
        rings, step = _rings_of(piece, recorded)
        for ring in rings:
            _check_step(ring, step, recorded)
            _hold(checkpoint, piece, ring, before, recorded)
            step += 1
            if ring.step == piece.last_step:
                break  # later rings are off the path, whole or not
    except EvidenceError as error:
        recorded.broken(step, str(error))
        return False
    if step <= piece.last_step and piece.attempt is not None:
        end = f"end at step {step - 1}" if step > piece.first_step else "are gone, all of them"
        text = f"{piece.attempt.rings_file}: the rings {end}, the path needs them to step {piece.last_step}"
        recorded.broken(step, text)
    return True


def _check_step(ring: Ring, step: int, recorded: Recorded) -> None:
    """Checks that a ring is about the step that comes next on the path.

    Raises:
        EvidenceError: it is about another step.
    """
    if ring.step != step:
        before = "nothing" if recorded.last is None else f"step {recorded.last.step}"
        file, line = recorded.where(step)
        raise EvidenceError(
            f"{file}: step {ring.step} follows {before}",
            file=file,
            line=line,
            step=ring.step,
            found=ring.step,
            expected=step,
        )


def _rings_of(piece: Piece, recorded: Recorded) -> tuple[Iterator[Ring], int]:
    """The rings of a piece, the chain checked, and the step that the first of them must be about.

    Raises:
        EvidenceError: the attempt continues from another ring than the last one before it.
    """
    attempt, last = piece.attempt, recorded.last
    if attempt is None:
        return iter(()), piece.first_step
    if isinstance(piece, DerivedSegment):
        return attempt.headless_rings(), piece.first_step
    parent = attempt.header.parent
    if parent is not None and last is not None and last.step == parent.step and (wrong := broken_seam(attempt, last)):
        raise EvidenceError(wrong, file=attempt.header_file, step=last.step, found=last.digest, expected=parent.ring)
    rings = attempt.rings()
    try:
        first = next(rings, None)
    except EvidenceError as error:
        head = attempt.ring_log.first()
        if head is None or head.step <= piece.first_step:
            raise
        recorded.broken(piece.first_step, str(error))
        recorded.begins_at(attempt.rings_file, head.step)
        return attempt.headless_rings(), head.step
    return (iter(()) if first is None else chain([first], rings)), piece.first_step


def _hold(
    checkpoint: CheckpointDirectory, piece: Piece, ring: Ring, before: tuple[int, int], recorded: Recorded
) -> None:
    """Compares a ring with the schedule; `before` are the samples and tokens consumed before the piece."""
    (start, _), (lo, hi) = piece.sample_range, piece.schedule.sample_range(ring.step)
    expected = {
        "sample_start": lo,
        "sample_end": hi,
        "global_batch_size": hi - lo,
        "consumed_samples": before[0] + hi - start,
        "consumed_tokens": before[1] + (hi - start) * piece.blend.sequence_length,
        "learning_rate": piece.schedule.step_learning_rate(ring.step),
    }
    wrong = [name for name, value in expected.items() if getattr(ring, name) != value]
    if wrong:
        said = ", ".join(f"{name} {getattr(ring, name)}, expected {expected[name]}" for name in wrong)
        file, line = recorded.where(ring.step)
        recorded.broken(ring.step, f"{file} line {line}: ring of step {ring.step} says {said} by the run's schedule")
    recorded.steps += not wrong
    recorded.applied_steps += ring.applied
    if ring.validation_loss is not None and piece.run.path == checkpoint.run.path:
        recorded.validation_loss = ring.validation_loss
    recorded.batch_digests[ring.step] = ring.batch_digest
    recorded.last = ring
