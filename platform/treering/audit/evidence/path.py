"""The way from a run's root to a checkpoint: attempts, rings against the schedule, records against each other.

Nothing here reads a token. It finds what the rings *say*; `audit.corpora.content` holds that against the corpora.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

from treering.audit.report import AttemptOnPath, Finding, Gap, Level, PassedOver
from treering.config.canonical import short
from treering.config.resolve import CONFIG_FILE, RUN_ID_LENGTH, ReadRange, ResolvedBlend
from treering.config.schedule import Schedule
from treering.data.blend.continuation import positions_after
from treering.data.blend.joins import CorpusJoin, corpus_joins
from treering.data.order.treering1 import DataOrder
from treering.errors import ConfigError, EvidenceError
from treering.runlog.ancestry import PathSegment, broken_seam
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """Steps that one attempt did on the path.

    Attributes:
        segment: the attempt.
        first_step: first step of the stretch.
        last_step: last step of the stretch.
        schedule: which samples each step reads.
        blend: which tokens each sample is.
    """

    segment: PathSegment
    first_step: int
    last_step: int
    schedule: Schedule
    blend: ResolvedBlend

    @property
    def sample_range(self) -> tuple[int, int]:
        """The samples [lo, hi) that the stretch reads, by the schedule."""
        return self.schedule.samples_of(self.first_step, self.last_step)

    @property
    def run(self) -> RunDirectory:
        """The run that did them."""
        return self.segment.run

    @property
    def attempt(self) -> AttemptDirectory:
        """The attempt that did them."""
        return self.segment.attempt

    def describe(self) -> AttemptOnPath:
        """The stretch for a report."""
        header = self.segment.attempt.header
        return AttemptOnPath(
            run=self.segment.run.id,
            attempt=header.attempt,
            first_step=self.first_step,
            last_step=self.last_step,
            code=str(header.code["digest"]),
            environment=str(header.environment["digest"]),
            changed=header.changed,
            path=str(self.segment.attempt.path),
        )


@dataclass(frozen=True, slots=True)
class DerivedSegment:
    """Steps of a run that no attempt's header tells of: only their order is known, by schedule and blend.

    Attributes:
        run: the run that did them, by its recipe or by a record that goes on from it.
        attempt: an attempt that lost its header and still has rings from `first_step` on; None where there is none.
        first_step: first of the steps.
        last_step: last of the steps.
        schedule: which samples each step reads.
        blend: which tokens each sample is.
    """

    run: RunDirectory
    attempt: AttemptDirectory | None
    first_step: int
    last_step: int
    schedule: Schedule
    blend: ResolvedBlend

    @property
    def sample_range(self) -> tuple[int, int]:
        """The samples [lo, hi) that the steps read, by the schedule."""
        return self.schedule.samples_of(self.first_step, self.last_step)


Piece = RecordedSegment | DerivedSegment
"""Steps on a path: an attempt's, as its header tells, or derived ones."""


def recorded_segments_to(checkpoint: CheckpointDirectory) -> list[RecordedSegment]:
    """The attempts that led to a checkpoint, each with the steps that count.

    Raises:
        EvidenceError: a manifest, header or config on the way is missing or was changed.
    """
    return recorded_segments_of(checkpoint.run.path_to(checkpoint))


def recorded_segments_of(path: Sequence[PathSegment]) -> list[RecordedSegment]:
    """The same of a path whose last attempt counts to its `last_step`, or to its last ring.

    Raises:
        EvidenceError: as `recorded_segments_to`.
    """
    found: list[RecordedSegment] = []
    done = 0
    for segment in path:
        last = segment.attempt.last_step() if segment.last_step is None else segment.last_step
        if last <= done:
            raise EvidenceError(
                f"{segment.attempt.path}: goes on after step {done} but ends on the path at step {last}"
            )
        resolved = segment.run.resolved
        try:
            schedule = resolved.schedule
        except ConfigError as error:
            raise EvidenceError(
                f"{segment.run.config_file}: no schedule can be made of it ({error})", file=segment.run.config_file
            ) from error
        _check_start(segment, found)
        found.append(RecordedSegment(segment, done + 1, last, schedule, resolved.blend))
        done = last
    return found


def passed_over(pieces: Sequence[Piece]) -> Iterator[PassedOver]:
    """The samples that runs on a path passed over where they started, by their recipes."""
    for before, piece in pairwise(pieces):
        run, start = piece.run, piece.run.resolved.recipe.start_from
        if start is None or run.path == before.run.path:
            continue
        lo, _ = piece.sample_range
        expected = before.sample_range[1] if start.schedule == "continue" else 0
        if expected < lo:
            yield PassedOver(run.id, piece.first_step, expected, lo)


def path_joins(pieces: Sequence[Piece]) -> Iterator[CorpusJoin]:
    """Where each corpus goes on at the places of a path where a run starts from another one."""
    for at, (before, piece) in enumerate(pairwise(pieces), 1):
        if piece.run.path == before.run.path:
            continue
        mine = [each.sample_range for each in pieces[at:] if each.run.path == piece.run.path]
        after = ReadRange(piece.run.id, piece.blend, mine[0][0], mine[-1][1])
        yield from corpus_joins(_read_ranges(pieces[:at]), after, piece.first_step)


def _read_ranges(pieces: Sequence[Piece]) -> list[ReadRange]:
    return [ReadRange(piece.run.id, piece.blend, *piece.sample_range) for piece in pieces]


def _check_continuation(segment: PathSegment, before: Sequence[RecordedSegment]) -> None:
    """Holds the positions where a run's blend goes on against what the runs before it have read."""
    resolved, other = segment.run.resolved, before[-1].run.resolved
    continues, start = resolved.blend.continues, resolved.recipe.start_from
    if continues is None or start is None:
        return
    earlier = other.schedule.skipped_samples if start.schedule == "continue" else 0
    first = resolved.schedule.sample_range(resolved.first_step)[0] - (start.skipped_samples - earlier)
    expected = positions_after(resolved.blend, _read_ranges(before))
    found = DataOrder(resolved.blend).counts(first) if first >= continues.sample else continues.positions
    if found != expected:
        raise EvidenceError(
            f"{segment.run.config_file}: blend.continues lets the corpora go on at positions "
            f"{list(found)}, expected {list(expected)}, where the runs before stopped reading them",
            file=segment.run.config_file,
            found=list(found),
            expected=list(expected),
        )


def _check_start(segment: PathSegment, before: Sequence[RecordedSegment]) -> None:
    """Holds where a run starts, by its recipe, against what stands before its first attempt on the path."""
    recipe, start = segment.run.resolved.recipe, segment.run.resolved.recipe.start_from
    came_from = None if not before else (before[-1].segment.run.resolved.recipe.digest, before[-1].last_step)
    if came_from is not None and came_from[0] == recipe.digest:
        return
    expected = None if start is None else (start.run, start.step)
    if came_from != expected:
        raise EvidenceError(
            f"{segment.attempt.header_file}: the path comes from {_place(came_from)}, expected "
            f"{_place(expected)} by start_from in {segment.run.config_file}",
            file=segment.attempt.header_file,
            found=came_from,
            expected=expected,
        )
    if before:
        _check_continuation(segment, before)


def _place(place: tuple[str, int] | None) -> str:
    return "nothing" if place is None else f"step {place[1]} of run {short(place[0], RUN_ID_LENGTH)}"


@dataclass(slots=True)
class Recorded:
    """What the rings of a path say.

    Attributes:
        pieces: the steps of the path.
        steps: rings that stand in the chain with the schedule's range.
        applied_steps: rings whose step moved the weights.
        validation_loss: newest held-out loss that the checkpoint's own run measured.
        last: the last ring that stands in the chain.
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
    """Walks the rings to a checkpoint, checks chain and seams, and holds each ring against the schedule.

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
    """Reads the rings of one piece; tells whether those after it can be read, for no ring of it was changed."""
    step = piece.first_step
    try:
        rings, step = _rings_of(piece, recorded)
        for ring in rings:
            if ring.step != step:
                stands = "nothing" if recorded.last is None else f"step {recorded.last.step}"
                raise EvidenceError(f"{recorded.where(step)[0]}: step {ring.step} follows {stands}")
            _hold(checkpoint, piece, ring, before, recorded)
            step += 1
            if ring.step == piece.last_step:
                break  # what follows lies off the path, whole or not
    except EvidenceError as error:
        recorded.broken(step, str(error))
        return False
    if step <= piece.last_step and piece.attempt is not None:
        end = f"end at step {step - 1}" if step > piece.first_step else "are gone, all of them"
        text = f"{piece.attempt.rings_file}: the rings {end}, the path needs them to step {piece.last_step}"
        recorded.broken(step, text)
    return True


def _rings_of(piece: Piece, recorded: Recorded) -> tuple[Iterator[Ring], int]:
    """The rings of a piece, the chain checked, and the step that the first of them must be about.

    Raises:
        EvidenceError: the attempt goes on from another ring than the one that stands before it.
    """
    attempt, last = piece.attempt, recorded.last
    if attempt is None:
        return iter(()), piece.first_step
    if isinstance(piece, DerivedSegment):
        return attempt.headless_rings(), piece.first_step
    parent = attempt.header.parent
    if parent is not None and last is not None and last.step == parent.step and (wrong := broken_seam(attempt, last)):
        raise EvidenceError(wrong)
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
    """Holds a ring against the schedule; `before` are the samples and tokens consumed before the piece."""
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


def check_records(checkpoint: CheckpointDirectory, recorded: Recorded) -> list[Finding]:
    """Holds config, headers and manifest against each other and against the rings.

    Each of these carries its own digest; this finds the one that was rewritten consistently in itself, but not with the
    others.
    """
    findings = [finding for piece in recorded.pieces for finding in _check_piece(piece)]
    if checkpoint.has_manifest:
        findings += _check_manifest(checkpoint, recorded)
    return list(dict.fromkeys(findings))  # attempts of one run share its config


def differs(file: Path, name: str, found: object, expected: object, by: str) -> Iterator[Finding]:
    """A finding where a field of a record is not what another record says."""
    if found != expected:
        text = f"{file}: {name} is {_shown(found)}, expected {_shown(expected)} by {by}"
        yield Finding("record", text, file=str(file))


def check_config(run: RunDirectory) -> Iterator[Finding]:
    """A run's config against itself: its blend against the recipe, which the run's id covers.

    Raises:
        EvidenceError: it cannot be read, or does not give its own digests.
    """
    config, recipe, blend = run.config_file, run.resolved.recipe, run.resolved.blend
    by = "{} in the same file, which the run's id covers"
    yield from differs(config, "blend", blend.digest, recipe.blend, by.format("recipe.blend"))
    yield from differs(config, "blend.tokenizer", blend.tokenizer, recipe.tokenizer, by.format("recipe.tokenizer"))


def _check_piece(piece: Piece) -> Iterator[Finding]:
    """A run's config against itself, and against the header of an attempt."""
    yield from check_config(piece.run)
    if isinstance(piece, RecordedSegment):
        yield from check_header(piece.run, piece.attempt, piece.attempt.header)


def check_header(run: RunDirectory, attempt: AttemptDirectory, header: AttemptHeader) -> Iterator[Finding]:
    """An attempt's header against its folder and the run's config.

    Raises:
        EvidenceError: the config cannot be read.
    """
    recipe, blend, config = run.resolved.recipe, run.resolved.blend, run.config_file
    file = attempt.header_file
    yield from differs(file, "attempt", header.attempt, attempt.number, "its folder")
    yield from differs(file, "run", header.run, recipe.digest, config.name)
    yield from differs(file, "blend", header.blend, recipe.blend, config.name)
    names = {digest: name for name, digest in header.corpora.items()}
    for number, component in enumerate(blend.components):
        opened = header.corpora.get(component.corpus)
        if component.digest in names and opened is None:
            field, by = f"blend.components.{number}.corpus", f"{file}, which opened that digest as it"
            yield from differs(config, field, component.corpus, names[component.digest], by)
        elif component.digest is not None and component.digest != opened:
            text = (
                f"{file}: as corpus {component.corpus} {opened or 'nothing'} was opened, expected "
                f"{component.digest} by the blend in {config}"
            )
            yield Finding("record", text, file=str(file), corpus=component.corpus)


def _check_manifest(checkpoint: CheckpointDirectory, recorded: Recorded) -> Iterator[Finding]:
    """The manifest against the run's config, the last attempt's header, and the rings."""
    manifest, file = checkpoint.manifest, checkpoint.manifest_file
    recipe, end, last = checkpoint.run.resolved.recipe, recorded.pieces[-1], recorded.last
    said: list[tuple[str, object, str]] = [
        ("run", recipe.digest, CONFIG_FILE),
        ("blend", recipe.blend, CONFIG_FILE),
        ("tokenizer", recipe.tokenizer, CONFIG_FILE),
        ("step", checkpoint.step, "its folder"),
    ]
    if isinstance(end, RecordedSegment):
        header = end.attempt.header
        by = f"the header of attempt {header.attempt}"
        said += [("code", header.code["digest"], by), ("environment", header.environment["digest"], by)]
        said += [("upstream", header.upstream, by), ("layout", header.layout, by)]
    if last is not None and last.step == manifest.step:
        by = f"the ring of step {last.step}"
        said += [("consumed_samples", last.consumed_samples, by), ("consumed_tokens", last.consumed_tokens, by)]
    if recorded.whole:
        said.append(("applied_steps", recorded.applied_steps, "the rings on the path"))
        if manifest.validation_loss is not None:  # None as well in what was saved before there was such a field
            said.append(("validation_loss", recorded.validation_loss, "the rings on the path"))
    for name, expected, by in said:
        yield from differs(file, name, getattr(manifest, name), expected, by)


def _shown(value: object) -> str:
    return short(value) + "…" if isinstance(value, str) and value.startswith("sha256:") else str(value)
