"""A recorded run in a page: what `treering show` prints of another trainer's run."""

from dataclasses import asdict, dataclass
from typing import Any

from treering.config.operation import ElectricityConfig
from treering.metrics.energy import AttemptSpan, run_energy
from treering.metrics.lines.read import run_line
from treering.metrics.lines.recorded_path import recorded_path
from treering.metrics.sensors import sensors
from treering.runlog.journal import Scored, notes_and_tags
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory
from treering.runlog.reproductions import reproduction_lines


@dataclass(frozen=True, slots=True)
class ReportedTokens:
    """Tokens that the steps on a run's path read, padding included.

    Attributes:
        count: how many.
        all_ranks: whether they are of all ranks; else of rank 0 alone.
    """

    count: int
    all_ranks: bool


def reported_tokens(run: RecordedRunDirectory) -> ReportedTokens | None:
    """The tokens that the trainer reports, None where it reports none.

    Of several ranks, they are added up where all reported, for at most `SUMMED_RANKS` ranks.

    Raises:
        EvidenceError: a record or a ring does not hold.
    """
    path = recorded_path(run)
    return None if path.tokens is None else ReportedTokens(path.tokens, path.all_ranks)


def path_tokens(run: RecordedRunDirectory) -> int | None:
    """The tokens of all ranks, None where these are not known; see `reported_tokens`.

    Raises:
        EvidenceError: a record or a ring does not hold.
    """
    found = reported_tokens(run)
    return found.count if found is not None and found.all_ranks else None


def recorded_page(run: RecordedRunDirectory, electricity: ElectricityConfig) -> dict[str, Any]:
    """Everything that `treering show` prints of a recorded run, as JSON values.

    Args:
        run: the run.
        electricity: the project's price and factor.

    Raises:
        EvidenceError: the run's record does not hold.
    """
    segments = run.path_to_end()
    entries = [line.entry for line in run.journal.lines()]
    notes, tags = notes_and_tags(entries)
    attempts = []
    for attempt in run.attempts():
        header, end = attempt.header, attempt.end
        attempts.append(
            {
                "attempt": attempt.number,
                "started_at": header.started_at,
                "resumed_step": header.resumed_step,
                "last_step": attempt.last_step(),
                "on_path": any(segment.attempt.number == attempt.number for segment in segments),
                "status": end.status if end else None,
                "reason": end.reason if end else None,
                "host": header.host,
                "world_size": header.world_size,
                "command": list(header.command),
                "commit": header.code["commit"],
                "dirty": header.code["dirty"],
            }
        )
    last = segments[-1].attempt.ring_log.last() if segments else None
    line, tokens = run_line(run), reported_tokens(run)
    return {
        "run": line.to_json(),
        "path_to_run": str(run.path),
        "tokens": None if tokens is None else asdict(tokens),
        "config": run.record.config,
        "energy": recorded_energy(run, line.consumed_tokens if line.all_ranks else None, electricity),
        "sensors": sensors(run.attempts()),
        "metrics": last.metrics if last else {},
        "tags": tags,
        "notes": [each.model_dump(mode="json", exclude={"kind"}) for each in notes],
        "reproductions": reproduction_lines(run),
        "scores": [
            {"step": each.step, "task": each.task, "metrics": each.metrics}
            for each in sorted((entry for entry in entries if isinstance(entry, Scored)), key=lambda entry: entry.step)
        ],
        "attempts": attempts,
        "checkpoints": [
            {"step": each.step, "attempt": each.attempt, "path": each.path, "bytes": sum(f.size for f in each.files)}
            for each in run.checkpoints()
        ],
    }


def recorded_energy(
    run: RecordedRunDirectory, tokens: int | None, electricity: ElectricityConfig
) -> dict[str, Any] | None:
    """The energy of a run, see `run_energy`.

    Args:
        run: the run.
        tokens: of the steps on its path; None where they are not known.
        electricity: the project's price and factor.

    Raises:
        EvidenceError: a header does not hold.
    """
    return run_energy([_span(attempt, electricity) for attempt in run.attempts()], tokens)


def _span(attempt: RecordedAttempt, electricity: ElectricityConfig) -> AttemptSpan:
    header, end, last = attempt.header, attempt.end, attempt.ring_log.last()
    seen = last.ended_at if last is not None else header.started_at
    return AttemptSpan(attempt, header.started_at, end.ended_at if end is not None else seen, None, electricity)
