"""The line of a run of Treering's trainer, from its run log: heads of columns, the newest rings, and small records."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from treering.config.resolved import Resolved
from treering.errors import EvidenceError
from treering.metrics.alarms import RULES
from treering.metrics.efficiency import peak_shares
from treering.metrics.flops import ModelShape
from treering.metrics.lines.diverging import LEVEL_STEPS, Finding, diverging
from treering.metrics.lines.journal import with_journal
from treering.metrics.lines.line import LineState, RunLine
from treering.metrics.lines.reasons import with_reason
from treering.metrics.path_summary import PathSummary, summary_before_fault, summary_of_path
from treering.metrics.state import condition
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.before_fault import headless_attempts
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring

T = TypeVar("T")

_PACE_STEPS: Final = 20
_BESIDE_STEPS: Final = ("validation", "checkpoint", "record")
"""Parts of a ring's times that are in no step."""


def own_line(run: RunDirectory, now: float, path: PathSummary | None = None) -> RunLine:
    """One run in a line; what does not hold is in `problems`, and never raised.

    Args:
        run: the run.
        now: Unix seconds.
        path: the summary of its path, if it has been read already.
    """
    problems: list[EvidenceError] = list(headless_attempts(run))
    resolved = _held(problems, lambda: run.resolved)
    path = path or _path(run, problems)
    found = _held(problems, lambda: condition(run, now))
    attempts = run.attempts()
    newest = attempts[-1] if attempts else None
    last, rings = path.last, path.newest[-LEVEL_STEPS:]
    alarms = Counter(alarm.rule for alarm in path.alarms)
    line = RunLine(
        id=run.path.name if resolved is None else run.id,
        folder=run.path.name,
        now=now,
        step=last.step if last else 0,
        consumed_tokens=last.consumed_tokens if last else 0,
        loss=last.loss if last else None,
        loss_curve=path.curve,
        validation_loss=path.validation_loss,
        grad_norm=last.grad_norm if last else None,
        tokens_per_second=last.tokens_per_second if last else None,
        attempts=len(attempts),
        incidents=len(_held(problems, run.incidents) or ()),
        alarms={rule: alarms[rule] for rule in RULES if alarms[rule]},
        last_alarm_step=path.alarms[-1].step if path.alarms else None,
        ended_at=last.ended_at if last else None,
        stall=found.stall if found else "",
        missing=path.missing,
    )
    if resolved is not None:
        line = _with_config(line, resolved, rings)
    line = _with_devices(line, newest, resolved, rings, problems)
    line = with_journal(_with_checkpoint(line, run, resolved, rings, problems), run, problems)
    end = _held(problems, lambda: newest.end if newest else None)
    finding: Finding | None = diverging(rings, path.alarms)
    state: LineState = "damaged" if found is None else found.state
    if state == "running" and finding is not None:
        state = "diverging"
    line = replace(line, state=state).with_problems(problems)
    if not line.alive or state == "stalled":
        line = replace(line, remaining_s=None)
    return with_reason(line, finding, path.alarms[-1:], end)


def _path(run: RunDirectory, problems: list[EvidenceError]) -> PathSummary:
    try:
        return summary_of_path(run, LEVEL_STEPS)
    except EvidenceError as error:
        problems.append(error)
        return summary_before_fault(run, problems)


def _with_config(line: RunLine, resolved: Resolved, rings: Sequence[Ring]) -> RunLine:
    """The line with what the run is to do."""
    num_steps = resolved.schedule.num_steps
    return replace(
        line,
        experiment=resolved.experiment,
        num_steps=num_steps,
        train_tokens=resolved.consumed_tokens(num_steps),
        remaining_s=_remaining_s(rings, resolved.consumed_samples(num_steps)),
        checkpoint_every=resolved.attempt.checkpoint.every_steps,
        overrides=resolved.overrides,
    )


def _remaining_s(rings: Sequence[Ring], samples: int) -> float | None:
    """Time of the samples to go: median seconds a sample of the newest steps, and their share of saves and the like."""
    if not rings:
        return None
    pace = statistics.median(ring.time_s["step"] / ring.global_batch_size for ring in rings[-_PACE_STEPS:])
    beside = sum(ring.time_s.get(part, 0.0) for ring in rings for part in _BESIDE_STEPS)
    whole = sum(ring.time_s["step"] for ring in rings)
    return pace * (samples - rings[-1].consumed_samples) * (1 + beside / whole if whole else 1.0)


def _with_devices(
    line: RunLine,
    attempt: AttemptDirectory | None,
    resolved: Resolved | None,
    rings: Sequence[Ring],
    problems: list[EvidenceError],
) -> RunLine:
    header = _held(problems, lambda: attempt.header if attempt else None)
    if header is None:
        return line
    kind = "CPU" if header.layout.device == "cpu" else ", ".join(header.environment.get("device_kinds", ()))
    line = replace(line, devices=header.layout.world_size, device=kind)
    speeds = [ring.tflops_per_device for ring in rings if ring.tflops_per_device is not None]
    if resolved is None or not speeds:
        return line
    shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
    shares = peak_shares(header, shape, rings[-1].flops_formula)
    return line if shares is None else replace(line, mfu=statistics.median(speeds) * shares[0])


def _with_checkpoint(
    line: RunLine, run: RunDirectory, resolved: Resolved | None, rings: Sequence[Ring], problems: list[EvidenceError]
) -> RunLine:
    """The line with the newest checkpoint on the path, and what a crash costs.

    Steps that are older than the rings at hand count with the mean time of these.
    """
    every = run.checkpoints()
    saved = [each for each in every if each.step <= line.step]
    manifest = _held(problems, lambda: saved[-1].manifest if saved else None)
    base = max(saved[-1].step if saved else 0, resolved.first_step - 1 if resolved else 0)
    steps = max(0, line.step - base)
    seconds = [ring.time_s["step"] for ring in rings if ring.step > base]
    return replace(
        line,
        checkpoints=len(every),
        checkpoint_step=saved[-1].step if saved else 0,
        checkpoint_at=manifest.created_at if manifest else None,
        at_risk_steps=steps,
        at_risk_s=sum(seconds) * steps / len(seconds) if seconds else 0.0,
    )


def _held(problems: list[EvidenceError], read: Callable[[], T]) -> T | None:
    """What a reader returns; None where the evidence does not hold, which goes to `problems`."""
    try:
        return read()
    except EvidenceError as error:
        problems.append(error)
        return None
