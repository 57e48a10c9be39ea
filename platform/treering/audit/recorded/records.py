"""The records of a run of another trainer: each against its own digest and its chain, and against the others."""

from collections.abc import Callable, Iterator
from pathlib import Path

from treering.audit.expected_file import ExpectedFile, file_problem
from treering.audit.report import Finding
from treering.config.resolved_blend import ResolvedBlend
from treering.errors import EvidenceError
from treering.runlog.journal import AttemptEnded
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint


def check_recorded(run: RecordedRunDirectory, note: Callable[[str], None]) -> Iterator[Finding]:
    """Everything of a run: attempts off the path and every rank's rings too, and files of checkpoints that are there.

    Args:
        run: the run.
        note: is called with what is not damaged but cannot be verified.
    """
    try:
        digest = run.digest
    except EvidenceError as error:
        yield Finding.from_error(error, "record")
        return
    rings: dict[int, set[str]] = {}
    for attempt in run.attempts():
        try:
            rings[attempt.number] = _check_attempt(attempt, digest)
        except EvidenceError as error:
            yield Finding.from_error(error, "ring")
            return  # what else is compared reads these headers and rings
    yield from lost_rings(run)
    yield from incomplete_ranks(run)
    ended = rings.keys() - _counted(run) if run.state() != "running" else set()
    for number in sorted(ended):
        note(
            f"{run.attempt_folder(number)}: attempt {number}: no entry of the journal counts its rings, so the loss of "
            "its last ones would not be seen"
        )
    for file in run.checkpoint_files():
        try:
            checkpoint = RecordedCheckpoint.read(file)[0]
        except EvidenceError as error:
            yield Finding.from_error(error, "checkpoint")
            continue
        yield from _check_checkpoint(file, checkpoint, digest, rings.get(checkpoint.attempt, set()))
        if Path(checkpoint.path).exists():
            yield from damaged_files(checkpoint)
        else:
            note(f"{file}: checkpoint {checkpoint.path} is not there, so its files were not checked")
    if run.blend_file.exists():
        try:
            ResolvedBlend.read(run.blend_file)
        except EvidenceError as error:
            yield Finding.from_error(error, "record")


def _counted(run: RecordedRunDirectory) -> set[int]:
    """The attempts whose rings an entry of the journal counts."""
    try:
        return {line.entry.attempt for line in run.journal.lines() if isinstance(line.entry, AttemptEnded)}
    except EvidenceError:  # `lost_rings` names it
        return set()


def _check_attempt(attempt: RecordedAttempt, run: str) -> set[str]:
    """The digests that a checkpoint of an attempt may name: of the header's parent, and of every ring of rank 0.

    Raises:
        EvidenceError: a header, a ring or the end does not hold, or the header is of another run or attempt.
    """
    header = attempt.header
    for field, found, expected in (("run", header.run, run), ("attempt", header.attempt, attempt.number)):
        if found != expected:
            raise EvidenceError(
                f"{attempt.header_file}: {field} is {found}, expected {expected}: the folder was copied or moved; "
                "restore the run's folder from a copy",
                file=attempt.header_file,
                found=found,
                expected=expected,
            )
    digests = {ring.digest for ring in attempt.rings()}
    for rank in attempt.ranks()[1:]:
        for _ring in attempt.rings(rank):
            pass  # reading checks the chain
    _ = attempt.end
    return digests | ({header.parent.ring} if header.parent else set())


def _check_checkpoint(file: Path, checkpoint: RecordedCheckpoint, run: str, rings: set[str]) -> Iterator[Finding]:
    if checkpoint.run != run:
        text = f"{file}: is of run {checkpoint.run}, expected {run}: it was copied; restore the file from a copy"
        yield Finding("checkpoint", text, str(file))
    elif checkpoint.ring not in rings:
        text = (
            f"{file}: names ring {checkpoint.ring}, which attempt {checkpoint.attempt} does not have; restore the "
            "run's folder from a copy"
        )
        yield Finding("checkpoint", text, str(file), step=checkpoint.step)


def lost_rings(run: RecordedRunDirectory) -> Iterator[Finding]:
    """Attempts that have fewer rings than the journal says, or other ones."""
    try:
        entries = [line.entry for line in run.journal.lines()]
    except EvidenceError as error:
        yield Finding.from_error(error, "record")
        return
    attempts = {attempt.number: attempt for attempt in run.attempts()}
    for entry in entries:
        if not isinstance(entry, AttemptEnded):
            continue
        attempt = attempts.get(entry.attempt)
        if attempt is None:
            folder = run.attempt_folder(entry.attempt)
            yield Finding(
                "record", f"{folder}: the journal names attempt {entry.attempt}, which is missing", str(folder)
            )
            continue
        file = attempt.rings_file
        found = attempt.ring_log.num_lines()
        if found != entry.rings:
            text = f"{file}: found {found} rings, expected {entry.rings} by the journal; restore the file from a copy"
            yield Finding("ring", text, str(file))


def incomplete_ranks(run: RecordedRunDirectory) -> Iterator[Finding]:
    """Ranks that reported nothing, or that stop before rank 0 in an attempt that ended by itself."""
    for attempt in run.attempts():
        expected = attempt.header.world_size
        ranks = attempt.ranks()
        if ranks and len(ranks) < expected:
            absent = sorted(set(range(expected)) - set(ranks))
            text = f"{attempt.path}: found rings of {len(ranks)} ranks, expected {expected}; missing: {absent}"
            yield Finding("record", text, str(attempt.path))
        if attempt.end is None or attempt.end.status != "finished":
            continue
        for rank in ranks[1:]:
            last = attempt.last_step(rank)
            if last != attempt.last_step():
                file = attempt.rank_file(rank)
                text = f"{file}: the rings end at step {last}, expected {attempt.last_step()} as on rank 0"
                yield Finding("ring", text, str(file), step=last)


def damaged_files(checkpoint: RecordedCheckpoint) -> Iterator[Finding]:
    """Files of a checkpoint that are not what the trainer reported."""
    root = Path(checkpoint.path)
    folder = root.parent if root.is_file() else root
    for each in checkpoint.files:
        if problem := file_problem(folder, ExpectedFile(each.path, each.digest, each.size)):
            file = folder / each.path
            text = f"{file}: {problem} by the record of step {checkpoint.step}; restore the file from a copy"
            yield Finding("checkpoint", text, str(file))
