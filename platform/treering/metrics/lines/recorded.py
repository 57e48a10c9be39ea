"""The line of a run that another trainer reported.

Such a run has no schedule, so no time to go. Its loss and gradient norm are judged while it runs, over the newest steps
alone: an alarm on an earlier step is not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from treering.errors import EvidenceError
from treering.metrics.alarms import GRAD_NORM, LOSS, Alarm
from treering.metrics.lines.diverging import diverging
from treering.metrics.lines.journal import with_journal
from treering.metrics.lines.line import LineState, RunLine
from treering.metrics.lines.reasons import with_reason
from treering.metrics.lines.recorded_path import RecordedPath, path_before_fault, recorded_path
from treering.metrics.spikes import RingAlarms
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint
from treering.runlog.records import AttemptEnd

_SPEED = "speed/tokens_per_second"
_MFU = "speed/mfu"


@dataclass(frozen=True, slots=True)
class _Judged:
    """What of a reported step is judged."""

    step: int
    loss: float
    grad_norm: float | None
    learning_rate: float = 0.0
    applied: bool = True


def recorded_line(run: RecordedRunDirectory, now: float) -> RunLine:
    """One run in a line; what does not hold is in `problems`, and never raised."""
    problems: list[EvidenceError] = []
    line = RunLine(run.path.name, run.path.name, now, recorded=True, checkpoints=len(run.checkpoint_files()))
    state: LineState = "damaged"
    end: AttemptEnd | None = None
    try:
        line = replace(line, id=run.id, experiment=run.record.experiment)
        state, attempts = run.state(), run.attempts()
        path = recorded_path(run)
        end = attempts[-1].end if attempts else None
        line = replace(_with_attempts(line, attempts), attempts=len(attempts))
        line = _with_checkpoint(line, run, attempts, path)
    except EvidenceError as error:
        problems.append(error)
        path = path_before_fault(run)
    last = path.newest[-1] if path.newest else None
    if last is not None:
        line = replace(
            line,
            step=last.step,
            ended_at=last.ended_at,
            loss=path.value(last, LOSS),
            grad_norm=path.value(last, GRAD_NORM),
            tokens_per_second=path.value(last, _SPEED),
            mfu=path.value(last, _MFU),
        )
    line = replace(
        line,
        consumed_tokens=path.tokens,
        all_ranks=path.all_ranks,
        loss_curve=path.curve,
        validation_loss=path.validation_loss,
    )
    line = with_journal(line, run, problems)
    judged, alarms = _judged(path) if state == "running" else ([], [])
    finding = diverging(judged, alarms)
    if state == "running" and finding is not None:
        state = "diverging"
    line = replace(line, state=state, last_alarm_step=alarms[-1].step if alarms else None)
    return with_reason(line.with_problems(problems), finding, alarms[-1:], end)


def _with_attempts(line: RunLine, attempts: Sequence[RecordedAttempt]) -> RunLine:
    if not attempts:
        return line
    header = attempts[-1].header
    names = {str(name) for each in header.devices if (name := _name_of(each))}
    return replace(
        line, step=header.resumed_step, devices=header.world_size, device=", ".join(sorted(names)) or "process"
    )


def _name_of(device: dict[str, Any]) -> Any:
    return device.get("name") if device.get("kind") != "cpu" else "CPU"


def _with_checkpoint(
    line: RunLine, run: RecordedRunDirectory, attempts: Sequence[RecordedAttempt], path: RecordedPath
) -> RunLine:
    """The line with the newest checkpoint on the path, and what a crash costs."""
    saved: list[RecordedCheckpoint] = run.checkpoints_on(path.segments)
    newest = saved[-1] if saved else None
    base = newest.step if newest else 0
    since = max(newest.created_at if newest else 0.0, attempts[-1].header.started_at if attempts else 0.0)
    last = path.newest[-1] if path.newest else None
    return replace(
        line,
        checkpoint_step=base,
        checkpoint_at=newest.created_at if newest else None,
        at_risk_steps=max(0, last.step - base) if last else 0,
        at_risk_s=max(0.0, last.ended_at - since) if last and last.step > base else 0.0,
    )


def _judged(path: RecordedPath) -> tuple[list[_Judged], list[Alarm]]:
    """The newest steps that report a loss, and what the rules of health find in them."""
    judge, judged, alarms = RingAlarms(), [], []
    for ring in path.newest:
        loss = path.value(ring, LOSS)
        if loss is not None:
            judged.append(_Judged(ring.step, loss, path.value(ring, GRAD_NORM)))
            alarms += judge.update(judged[-1])
    return judged, alarms
