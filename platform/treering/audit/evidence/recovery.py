"""The way to a checkpoint as far as its records reach.

Where every record exists, the way is `recorded_segments_to`. Where a record is missing, its steps are derived from the
recipe: schedule and blend alone decide which samples a step reads. Each missing record is a gap.

What is missing, what is still answered, and the level of that:

- rings, at the end or the beginning of a file, or all of an attempt's: the steps whose rings are left are recorded; the
  others as schedule and blend order them (re-derived);
- an attempt's header, while its rings are there: its steps by their rings; layout, code and environment are unknown
  (recorded);
- an attempt, or all of them: what its steps read, by schedule and blend; loss and gradient norm are unknown
  (re-derived);
- the checkpoint's `manifest.json`: what the run read up to the step of the folder's name (re-derived);
- `resolved.json`: everything, by the published run log of the same run (recorded); else what the manifest says
  (declared);
- the run that a run starts from: the steps of the run itself (declared);
- the run around a checkpoint, or the checkpoint is in another run's folder: the checkpoint, audited against its own
  run, which is found by its digest (recorded);
- a corpus of the blend, or another corpus is in its place: samples, epochs and token ranges; never another corpus's
  text (recorded);
- `corpus.bin`: documents without their text, and what read them (recorded);
- the document table: text and documents by number; none can be searched by id (recorded);
- the tokenizer: samples and documents without text (content-bound);
- a step's ring: what schedule and blend give the step (re-derived).
"""

from contextlib import suppress
from dataclasses import dataclass

from treering.audit.evidence.config_edits import name_edited_fields
from treering.audit.evidence.segments import (
    DerivedSegment,
    Piece,
    RecordedSegment,
    recorded_segments_of,
    recorded_segments_to,
)
from treering.audit.report import Gap, Level
from treering.config.canonical import short
from treering.config.resolved import ANCESTORS, RUN_ID_LENGTH, Resolved
from treering.errors import ConfigError, EvidenceError
from treering.project import Project
from treering.runlog.ancestry import PathSegment, origin_of, path_of
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader, CheckpointManifest

HELPS = (
    "a copy of the run log brings it back (the published checkpoint carries one; `treering find` looks for a digest), "
    "`treering verify` names what else is damaged"
)


@dataclass(frozen=True, slots=True)
class RecoveredAncestry:
    """The way to a checkpoint.

    Attributes:
        checkpoint: the checkpoint, at the run that it belongs to.
        manifest: its manifest, None where it is gone.
        pieces: the steps whose order is known, from the root on; without a config of the run there are none.
        gaps: what is missing on the way.
    """

    checkpoint: CheckpointDirectory
    manifest: CheckpointManifest | None
    pieces: tuple[Piece, ...]
    gaps: tuple[Gap, ...]

    @property
    def step(self) -> int:
        """The checkpoint's step, by its manifest, or by its folder's name where that is gone."""
        return self.checkpoint.step if self.manifest is None else self.manifest.step

    @property
    def consumed_samples(self) -> int:
        """Samples read up to it, by its manifest, or by the recipe where that is gone."""
        if self.manifest is None:
            return self.checkpoint.run.resolved.consumed_samples(self.step)
        return self.manifest.consumed_samples

    @property
    def run_id(self) -> str:
        """The run's id, by its config, or by the manifest where that is gone."""
        if self.pieces or self.manifest is None:
            return self.checkpoint.run.id
        return short(self.manifest.run, RUN_ID_LENGTH)


def pieces_to(run: RunDirectory, number: int | None, step: int) -> tuple[list[Piece], list[Gap]]:
    """The way to a step of a run as far as its records reach.

    Args:
        run: the run.
        number: the attempt that did the step, None if unknown.
        step: the step.
    """
    gaps: list[Gap] = []
    problem: EvidenceError | None = None
    if number is not None:
        try:
            return list(recorded_segments_of(path_of(PathSegment(run, run.attempt(number), step)))), gaps
        except EvidenceError as error:
            problem = error
    return _trace_back(run, number, step, problem, gaps), gaps


def recover_ancestry(checkpoint: CheckpointDirectory, project: Project) -> RecoveredAncestry:
    """Follows the records to a checkpoint as far as they reach, and derives the rest from the recipe.

    Args:
        checkpoint: the checkpoint.
        project: where the checkpoint's run is looked for, if the checkpoint is not in its run's folder.

    Raises:
        EvidenceError: neither a manifest nor a config is left, so that nothing is known.
    """
    gaps: list[Gap] = []
    checkpoint, manifest = _at_home(checkpoint, project, gaps)
    try:
        return RecoveredAncestry(checkpoint, manifest, tuple(recorded_segments_to(checkpoint)), tuple(gaps))
    except EvidenceError as error:
        if manifest is None:
            number, step, problem = _attempt_of(checkpoint), checkpoint.step, None
        else:
            number, step, problem = manifest.attempt, manifest.step, error
        pieces = _trace_back(checkpoint.run, number, step, problem, gaps)
        return RecoveredAncestry(checkpoint, manifest, tuple(pieces), tuple(gaps))


def find_home(project: Project, digest: str) -> RunDirectory | None:
    """The run of a recipe in a project, with its config: among the runs, as published, or carried along by one."""
    name = short(digest, RUN_ID_LENGTH)
    places = [project.runs / name, project.published, project.published / ANCESTORS / name]
    for place in (*places, *sorted(project.runs.glob(f"*/{ANCESTORS}/{name}"))):
        run = RunDirectory(place)
        with suppress(EvidenceError):
            if run.resolved.recipe.digest == digest:
                return run
    return None


def readable_run(run: RunDirectory, project: Project) -> tuple[RunDirectory, tuple[Gap, ...]]:
    """A run whose config can be read: the given one, or the published copy of the same run.

    Raises:
        EvidenceError: neither can be read.
    """
    config = run.config_file
    try:
        run.resolved.schedule  # noqa: B018 - reading it is the check
    except (EvidenceError, ConfigError) as error:
        published = RunDirectory(project.published)
        with suppress(EvidenceError):
            if published.id == run.path.resolve().name:
                answered = f"everything of it, by the published run log in {published.path}"
                return published, (Gap.from_error(error, answered, Level.RECORDED, config, helps=HELPS),)
        raise EvidenceError(
            f"{error}; without it no record says what a step reads; {HELPS}", file=config, remedy=HELPS
        ) from error
    return run, ()


def _at_home(
    checkpoint: CheckpointDirectory, project: Project, gaps: list[Gap]
) -> tuple[CheckpointDirectory, CheckpointManifest | None]:
    """The checkpoint at the run that its manifest names, and that manifest, None if it is missing.

    Raises:
        EvidenceError: neither manifest nor config can be read.
    """
    file, config = checkpoint.manifest_file, checkpoint.run.config_file
    try:
        own, problem = checkpoint.run.resolved.recipe.digest, None
    except EvidenceError as error:
        own, problem = None, name_edited_fields(error, checkpoint.run, project)
    try:
        manifest = checkpoint.manifest
    except EvidenceError as error:
        if own is None:
            raise EvidenceError(
                f"{error}; and {problem}: no record is left to answer from; {HELPS}", file=file, remedy=HELPS
            ) from error
        answered = (
            f"what run {checkpoint.run.id} reads up to step {checkpoint.step}, which is the step of the folder's name; "
            "nothing binds the files to it"
        )
        gaps.append(Gap.from_error(error, answered, Level.REDERIVED, file, helps=HELPS))
        return checkpoint, None
    if own == manifest.run:
        return checkpoint, manifest
    home = find_home(project, manifest.run)
    if home is not None:
        lies = f"lies in the folder of run {short(own, RUN_ID_LENGTH)}" if own else f"has no run around it ({problem})"
        missing = (
            f"{file}: the checkpoint {lies}, but is step {manifest.step} of run {short(manifest.run, RUN_ID_LENGTH)} "
            f"by its manifest, found in {home.path}; move it to {home.checkpoints_folder}"
        )
        answered = f"everything of it, by the run log in {home.path}"
        gaps.append(Gap(missing, answered, Level.RECORDED, str(file)))
        return CheckpointDirectory(checkpoint.path, home), manifest
    if problem is not None:
        answered = (
            f"what the manifest says: step {manifest.step}, {manifest.consumed_samples} samples, "
            f"{manifest.consumed_tokens} tokens, blend {manifest.blend}; no corpus, no order"
        )
        helps = f"no available run is {manifest.run}; {HELPS}"
        gaps.append(Gap.from_error(problem, answered, Level.DECLARED, config, helps=helps))
    return checkpoint, manifest


def _attempt_of(checkpoint: CheckpointDirectory) -> int | None:
    """The newest attempt that laid a ring for a checkpoint's step: the best guess where no manifest names one."""
    for attempt in reversed(checkpoint.run.attempts()):
        with suppress(EvidenceError):
            parent = attempt.header.parent
            if attempt.last_step() >= checkpoint.step > (0 if parent is None else parent.step):
                return attempt.number
    return None


def _trace_back(
    run: RunDirectory, number: int | None, last: int, problem: EvidenceError | None, gaps: list[Gap]
) -> list[Piece]:
    """The pieces up to a step, from the root on.

    Args:
        run: the run that did the step.
        number: the attempt that did it, None if unknown.
        last: the step.
        problem: why the records cannot be followed, None where `gaps` already has the reason.
        gaps: each missing record is appended.
    """
    pieces: list[Piece] = []
    seen: set[tuple[str, int]] = set()
    before = len(gaps)
    while last:
        try:
            resolved, schedule = run.resolved, run.resolved.schedule
        except (EvidenceError, ConfigError) as error:
            if pieces or not gaps:  # of the checkpoint's own run it has been said
                gaps.append(_without_config(run, last, error, pieces))
            return pieces
        header, why = _header(run, resolved, number, last, problem, seen)
        if header is not None and number is not None:
            segment = PathSegment(run, run.attempt(number), last)
            origin = origin_of(run, header, resolved.recipe.digest)
            first = 1 if origin is None else origin.step + 1
            pieces.insert(0, RecordedSegment(first, last, schedule, resolved.blend, segment))
            if origin is None:
                break
            run, number, last = origin.run, origin.attempt, origin.step
            continue
        attempt, first = _headless(run, resolved, number, last)
        pieces.insert(0, DerivedSegment(first, last, schedule, resolved.blend, run, attempt))
        if why is not None and number is not None:
            gaps.append(_without_header(pieces[0], resolved, number, why))
        number, last = None, first - 1
        start = resolved.recipe.start_from
        if start is not None and last == start.step:
            run = run.ancestor(start.run)
    if problem is not None and len(gaps) == before:
        answered = "the order of all steps, by schedule and blend of the recipe"
        gaps.append(Gap.from_error(problem, answered, Level.REDERIVED, helps=HELPS))
    return pieces


def _header(  # noqa: PLR0917 - private, called once
    run: RunDirectory,
    resolved: Resolved,
    number: int | None,
    last: int,
    problem: EvidenceError | None,
    seen: set[tuple[str, int]],
) -> tuple[AttemptHeader | None, EvidenceError | None]:
    """The header of the attempt that did a step, if the way continues from it; otherwise the reason, if it is known."""
    if number is None:
        return None, None
    attempt = _attempt(run, number)
    try:
        header = attempt.header
    except EvidenceError as error:
        return None, error
    parent, start = header.parent, resolved.recipe.start_from
    own = parent is not None and parent.run == resolved.recipe.digest
    came_from = None if parent is None else (parent.run, parent.step)
    fits = own or came_from == (None if start is None else (start.run, start.step))
    place = (str(run.path), number)
    if not fits or place in seen or (parent is not None and parent.step >= last):
        return None, problem
    seen.add(place)
    return header, None


def _attempt(run: RunDirectory, number: int) -> AttemptDirectory:
    return AttemptDirectory(run.attempt_folder(number))


def _headless(
    run: RunDirectory, resolved: Resolved, number: int | None, last: int
) -> tuple[AttemptDirectory | None, int]:
    """An attempt without a header that has rings on the way to a step, and the first step that they tell of."""
    if number is not None:
        attempt = _attempt(run, number)
        with suppress(EvidenceError):
            ring = attempt.ring_log.first()
            if ring is not None and resolved.first_step <= ring.step <= last:
                return attempt, ring.step
    return None, resolved.first_step


def _without_header(piece: Piece, resolved: Resolved, number: int, why: EvidenceError) -> Gap:
    first, last = piece.first_step, piece.last_step
    derived = f"as schedule and blend of {piece.run.config_file} order them"
    if piece.attempt is None:
        answered, level = f"what steps {first} to {last} read, {derived}; no ring shows it", Level.REDERIVED
    else:
        answered = f"steps {first} to {last} by the rings that are left, whose chain holds from step {first} on"
        level = Level.RECORDED
        if first > resolved.first_step:
            answered += f"; steps {resolved.first_step} to {first - 1} {derived}"
            level = Level.REDERIVED
    helps = f"layout, code and environment of attempt {number} of run {resolved.run_id} are not known; {HELPS}"
    return Gap.from_error(why, answered, level, _attempt(piece.run, number).header_file, helps=helps)


def _without_config(run: RunDirectory, last: int, why: Exception, pieces: list[Piece]) -> Gap:
    rest = (
        f"steps {pieces[0].first_step} to {pieces[-1].last_step}; of steps 1 to {last}" if pieces else "nothing; of it"
    )
    answered = f"{rest} only that they were done, by the recipe that goes on from them"
    return Gap.from_error(why, answered, Level.DECLARED, run.config_file, helps=HELPS)
