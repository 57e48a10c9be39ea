"""Everything in some runs that read samples: their attempts, and steps that only the recipe describes.

An attempt did the steps of its rings, and those that a checkpoint or a later attempt continues from: a lost tail must
not make a document look unread.
"""

from collections.abc import Iterable, Iterator, Sequence

from treering.audit.corpora.catalog import Catalog
from treering.audit.corpora.usage import path_usage
from treering.audit.evidence.recovery import HELPS, RecoveredAncestry, recover_ancestry
from treering.audit.evidence.segments import DerivedSegment, Piece, RecordedSegment
from treering.audit.report import Gap, Level
from treering.config.canonical import short
from treering.errors import ConfigError, EvidenceError
from treering.project import Project
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.find import runs_without_config


def lost_runs(project: Project) -> list[Gap]:
    """Runs that have lost their config, so that nothing says what their steps read."""
    found = []
    published = readable_id(RunDirectory(project.published))
    for run in runs_without_config(project.runs):
        stands_in = run.path.name == published
        missing = f"{run.config_file}: missing, so nothing there says what the run's steps read; {HELPS}"
        answered = f"the run as published in {project.published}" if stands_in else "the other runs"
        level = Level.REDERIVED if stands_in else Level.DECLARED
        found.append(Gap(missing, answered, level, str(run.config_file)))
    return found


def readable_id(run: RunDirectory) -> str | None:
    """The run's id by its config, None where that cannot be read."""
    try:
        return run.id
    except EvidenceError:
        return None


def recover_ancestries(runs: Iterable[RunDirectory], project: Project) -> tuple[list[RecoveredAncestry], list[Gap]]:
    """The ways to all checkpoints of some runs, superseded ones too; and the checkpoints of which nothing is known."""
    ancestries, lost = [], []
    for run in runs:
        for checkpoint in (*run.checkpoints(), *run.superseded()):
            try:
                ancestries.append(recover_ancestry(checkpoint, project))
            except EvidenceError as error:
                lost.append(Gap.from_error(error, "the other checkpoints", Level.DECLARED, checkpoint.path))
    return ancestries, lost


def missing_corpora(catalog: Catalog, ancestries: Iterable[RecoveredAncestry]) -> list[Gap]:
    """The missing corpora, each with how much of it the checkpoints read, which the records alone show."""
    read: dict[str, list[str]] = {digest: [] for digest in catalog.missing}
    for ancestry in ancestries if read else ():
        for usage in path_usage(ancestry.pieces):
            if usage.digest in read:
                epochs = f"{usage.samples:,} samples ({usage.realised_epochs:.2f} epochs)"
                read[usage.digest].append(f"step {ancestry.step} of run {short(ancestry.run_id, 8)} {epochs}")
    return [
        Gap(
            finding.text,
            f"how much of it was read on the way to each checkpoint: {', '.join(read[digest]) or 'none is there'}",
            Level.REDERIVED,
            corpus=finding.corpus,
        )
        for digest, finding in catalog.missing.items()
    ]


def attempts_of(run: RunDirectory) -> tuple[list[Piece], list[Gap]]:
    """All steps that each attempt of a run did, whether a path keeps them or not."""
    try:
        resolved, schedule = run.resolved, run.resolved.schedule
    except (EvidenceError, ConfigError) as error:
        return [], [Gap.from_error(error, "the other runs", Level.DECLARED, run.config_file, helps=HELPS)]
    pieces: list[Piece] = []
    gaps = []
    needed = _needed_steps(run)
    for attempt in run.attempts(headless=True):
        first, last, problem = _extent(run, attempt, needed.get(attempt.number, 0))
        if problem:
            answered = (
                f"steps {first} to {last} as schedule and blend of the recipe order them" if last else "the others"
            )
            gaps.append(Gap(f"{problem}; {HELPS}", answered, Level.REDERIVED, str(attempt.path)))
        if last < first:
            continue
        if attempt.has_header:
            pieces.append(RecordedSegment(first, last, schedule, resolved.blend, PathSegment(run, attempt, last)))
        else:
            pieces.append(DerivedSegment(first, last, schedule, resolved.blend, run, attempt))
    return pieces, gaps


def _needed_steps(run: RunDirectory) -> dict[int, int]:
    """By attempt, the last step that a checkpoint or a later attempt of the run says it did."""
    manifests = [each.manifest for each in (*run.checkpoints(), *run.superseded()) if each.has_manifest]
    parents = [each.header.parent for each in run.attempts() if each.has_header]
    needed: dict[int, int] = {}
    for said in (*manifests, *parents):
        if said is not None and said.run == run.resolved.recipe.digest:
            needed[said.attempt] = max(said.step, needed.get(said.attempt, 0))
    return needed


def _extent(run: RunDirectory, attempt: AttemptDirectory, needed: int) -> tuple[int, int, str]:
    """First and last step of an attempt, and what is missing to know them; without steps the last is 0."""
    problems = []
    held = begins = 0
    try:
        begins, held = attempt.first_step(), attempt.last_step()
    except EvidenceError as error:
        problems.append(str(error))
    first = begins or run.resolved.first_step
    try:
        parent = attempt.header.parent
        first = run.resolved.first_step if parent is None else parent.step + 1
    except EvidenceError as error:
        problems.insert(0, str(error))
    if needed > held:
        problems.append(f"{attempt.rings_file}: the rings end at step {held}, a later record stands on step {needed}")
    return first, max(held, needed), "; ".join(problems)


def untold_steps(path: Iterable[Piece], attempts: Sequence[Piece]) -> Iterator[Piece]:
    """Steps on some paths that no available attempt did, each once: only the recipe has their order."""
    spans_by_run: dict[str, list[tuple[int, int]]] = {}
    for piece in attempts:
        spans_by_run.setdefault(str(piece.run.path.resolve()), []).append((piece.first_step, piece.last_step))
    for piece in path:
        if piece.attempt is None:
            spans = spans_by_run.setdefault(str(piece.run.path.resolve()), [])
            for first, last in _without((piece.first_step, piece.last_step), spans):
                yield DerivedSegment(first, last, piece.schedule, piece.blend, piece.run, None)
                spans.append((first, last))


def _without(span: tuple[int, int], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of a span of steps [first, last] without some others, ascending."""
    left, (first, last) = [], span
    for start, end in sorted(others):
        if start > first:
            left.append((first, min(last, start - 1)))
        first = max(first, end + 1)
    return [(a, b) for a, b in (*left, (first, last)) if a <= b]
