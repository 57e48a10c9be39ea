"""A recorded run in a line and in a page: what `treering runs` and `treering show` print of another trainer's run."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from treering.config.operation import ElectricityConfig
from treering.errors import EvidenceError
from treering.metrics.energy import AttemptSpan, run_energy
from treering.metrics.run_summary import RunLine
from treering.metrics.sensors import sensors
from treering.runlog.columns.path import PathColumns
from treering.runlog.journal import Scored, notes_and_tags
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.ring_file import state_of

LONG_BYTES: Final = 256 << 10
"""Rings of that many bytes are read through columns: some 500 steps."""

_LOSS: Final = ("loss", "train/loss", "train_loss")
_VALIDATION_LOSS: Final = ("eval_loss", "validation/loss", "val_loss")


def recorded_line(run: RecordedRunDirectory) -> RunLine:
    """One run in a line; a record that does not hold is the state `damaged`."""
    checkpoints = len(run.checkpoint_files())
    try:
        experiment = run.record.experiment
        attempts = run.attempts()
        last = attempts[-1].ring_log.last() if attempts else None
        before = attempts[-1].header.resumed_step if attempts else 0
        state = run.state()
        tokens = path_tokens(run)
    except EvidenceError as error:
        line = RunLine(run.path.name, "", "damaged", 0, None, None, None, None, 0, checkpoints, 0, None, error)
        return replace(line, mirror=run.mirror_doubt)
    return RunLine(
        id=run.id,
        experiment=experiment,
        state=state,
        step=last.step if last else before,
        num_steps=None,
        loss=_first_of(last, _LOSS),
        validation_loss=_first_of(last, _VALIDATION_LOSS),
        consumed_tokens=tokens,
        attempts=len(attempts),
        checkpoints=checkpoints,
        incidents=0,
        age_s=time.time() - last.ended_at if last else None,
        mirror=run.mirror_doubt,
    )


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
    segments = run.path_to_end()
    several = any(segment.attempt.header.world_size > 1 for segment in segments)
    if several or sum(state_of(segment.attempt.rings_file)[0] for segment in segments) >= LONG_BYTES:
        path = PathColumns.of_recorded(segments)
        tokens = path.tokens()
        return None if tokens is None else ReportedTokens(tokens, path.all_ranks)
    known = [ring.tokens for segment in segments for ring in segment.rings() if ring.tokens is not None]
    return ReportedTokens(sum(known), all_ranks=True) if known else None


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
    line, tokens = recorded_line(run), reported_tokens(run)
    return {
        "run": line.to_json(),
        "path_to_run": str(run.path),
        "tokens": None if tokens is None else asdict(tokens),
        "config": run.record.config,
        "energy": recorded_energy(run, line.consumed_tokens, electricity),
        "sensors": sensors(run.attempts()),
        "metrics": last.metrics if last else {},
        "tags": tags,
        "notes": [each.model_dump(mode="json", exclude={"kind"}) for each in notes],
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


def _first_of(ring: RecordedRing | None, names: tuple[str, ...]) -> float | None:
    return next((ring.metrics[name] for name in names if name in ring.metrics), None) if ring else None
