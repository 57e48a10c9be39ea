"""Checks a run log by itself: every record against its digest, every ring against its chain, records against others.

The audit of a checkpoint walks one path; this reads what is off it as well. `audit.evidence.agreement` holds the
records against each other.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from treering.audit.evidence.config_edits import name_edited_fields
from treering.audit.evidence.record_fields import check_config
from treering.audit.report import Finding
from treering.config.resolved import Resolved
from treering.config.schedule import Schedule
from treering.errors import ConfigError, EvidenceError
from treering.project import Project
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.lock import is_held
from treering.runlog.records import AttemptEnd, AttemptHeader
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class Mark:
    """What the rings of an attempt say up to one of its steps.

    Attributes:
        ring: the ring of the step.
        applied: rings of the attempt up to it whose step moved the weights.
        validation_loss: newest held-out loss among them.
    """

    ring: Ring
    applied: int
    validation_loss: float | None


@dataclass(slots=True)
class AttemptRecords:
    """What was read of one attempt.

    Attributes:
        directory: the attempt.
        header: its header, None where it is missing or was changed.
        digest: the header's digest.
        end: how it ended, None where nothing says so.
        end_digest: of that record.
        first_prev: what the first ring goes on from, None without rings.
        first_step: step of the first ring, 0 without rings.
        rings: rings whose chain holds.
        last: the last of them.
        whole: whether no ring was changed.
        marks: by step, of the steps that other records name.
    """

    directory: AttemptDirectory
    header: AttemptHeader | None = None
    digest: str | None = None
    end: AttemptEnd | None = None
    end_digest: str | None = None
    first_prev: str | None = None
    first_step: int = 0
    rings: int = 0
    last: Ring | None = None
    whole: bool = True
    marks: dict[int, Mark] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Number of the attempt, from its folder's name."""
        return self.directory.number

    @property
    def is_empty(self) -> bool:
        """Whether the attempt left nothing: it died before its header, or everything of it was deleted."""
        return self.last is None and self.whole and not self.directory.started

    @property
    def header_file(self) -> Path:
        """Where its header is."""
        return self.directory.header_file

    @property
    def last_step(self) -> int:
        """The last step with a ring, or the one that it went on from."""
        if self.last is not None:
            return self.last.step
        return 0 if self.header is None or self.header.parent is None else self.header.parent.step


def check_run_config(run: RunDirectory, project: Project) -> Iterator[Finding]:
    """A run's config against its digests and against itself."""
    try:
        yield from check_config(run)
    except EvidenceError as error:
        yield Finding.from_error(name_edited_fields(error, run, project), "record", run.config_file)


def read_attempts(
    run: RunDirectory, wanted: Callable[[int], set[int]], found: list[Finding], note: Callable[[str], None]
) -> list[AttemptRecords]:
    """Reads every attempt of a run, with all its rings.

    Args:
        run: the run.
        wanted: the steps of an attempt that other records name.
        found: takes what does not hold.
        note: is called with what is not damaged but cannot be verified.
    """
    folders = [path for path in sorted(run.attempts_folder.glob("*")) if path.name.isdigit() and path.is_dir()]
    return [_read_attempt(run, AttemptRecords(AttemptDirectory(path)), wanted, found, note) for path in folders]


def _read_attempt(
    run: RunDirectory,
    records: AttemptRecords,
    wanted: Callable[[int], set[int]],
    found: list[Finding],
    note: Callable[[str], None],
) -> AttemptRecords:
    attempt = records.directory
    end = attempt.end_file
    if not attempt.started and not attempt.rings_file.exists():
        return records  # died before it had anything to say
    try:
        records.header, records.digest = AttemptHeader.read(records.header_file)
    except EvidenceError as error:
        found.append(Finding.from_error(error, "record"))
    if end.exists() or end.is_symlink():
        try:
            records.end, records.end_digest = AttemptEnd.read(end)
        except EvidenceError as error:
            found.append(Finding.from_error(error, "record"))
    found += _check_rings(run, records, wanted(attempt.number), note)
    try:
        late = [each for each in attempt.incidents() if records.whole and each.step > records.last_step]
    except EvidenceError as error:
        found.append(Finding.from_error(error, "record", attempt.incidents_file))
        late = []
    found += [
        Finding(
            "ring",
            f"{attempt.rings_file}: the rings end at step {records.last_step}, but an incident in "
            f"{attempt.incidents_file} happened after the ring of step {each.step}: rings were removed, or the "
            "incident was put in",
            file=str(attempt.rings_file),
        )
        for each in late[:1]
    ]
    return records


def _check_rings(
    run: RunDirectory, records: AttemptRecords, wanted: set[int], note: Callable[[str], None]
) -> Iterator[Finding]:
    """The chain of an attempt's rings from the first of them on, and each against the schedule."""
    attempt, line = records.directory, 1
    path, file = attempt.rings_file, str(attempt.rings_file)
    if not path.is_file():
        if path.exists() or path.is_symlink():
            records.whole = False
            yield Finding("ring", f"{file}: not a regular file, expected the attempt's rings", file=file)
        return
    resolved, schedule = _config(run)
    applied, loss = 0, None
    try:
        first = attempt.ring_log.first()
        if first is not None:
            records.first_prev, records.first_step = first.prev, first.step
        for ring in attempt.headless_rings():
            wrong = "" if resolved is None or schedule is None else _differs(ring, resolved, schedule)
            if wrong:
                text = f"{file} line {line}: ring of step {ring.step} says {wrong} by the schedule in "
                text += f"{run.config_file}"
                yield Finding("ring", text, file=file, line=line, step=ring.step)
                schedule = None  # one is enough: the others would say the same
            line += 1
            applied += ring.applied
            loss = ring.validation_loss if ring.validation_loss is not None else loss
            records.rings, records.last = records.rings + 1, ring
            if ring.step in wanted:
                records.marks[ring.step] = Mark(ring, applied, loss)
    except EvidenceError as error:
        records.whole = False
        yield Finding.from_error(error, "ring")
        return
    rest = attempt.ring_log.unfinished()
    if _begins_with_a_value(rest):
        text = f"{file} line {line}: a whole ring that no newline ends: the end of the line was changed"
        yield Finding("ring", text, file=file, line=line)
    elif rest and not is_held(run.lock):
        note(f"{file} line {line}: {len(rest)} bytes of a line that was never finished; its writer died, it is no ring")


def _config(run: RunDirectory) -> tuple[Resolved | None, Schedule | None]:
    try:
        return run.resolved, run.resolved.schedule
    except (EvidenceError, ConfigError):  # it has its own finding
        return None, None


def _differs(ring: Ring, resolved: Resolved, schedule: Schedule) -> str:
    """What a ring says that the schedule gives otherwise, in words."""
    if not resolved.first_step <= ring.step <= schedule.num_steps:
        return f"step {ring.step}, expected one of {resolved.first_step} to {schedule.num_steps}"
    lo, hi = schedule.sample_range(ring.step)
    expected = {
        "sample_start": lo,
        "sample_end": hi,
        "global_batch_size": hi - lo,
        "consumed_samples": resolved.consumed_samples(ring.step),
        "consumed_tokens": resolved.consumed_tokens(ring.step),
        "learning_rate": schedule.step_learning_rate(ring.step),
    }
    return ", ".join(
        f"{name} {getattr(ring, name)}, expected {value}"
        for name, value in expected.items()
        if getattr(ring, name) != value
    )


def _begins_with_a_value(text: bytes) -> bool:
    try:
        json.JSONDecoder().raw_decode(text.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        return False
    return True
