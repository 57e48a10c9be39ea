"""A run in a line and in a page: what `treering runs` and `treering show` print, from the run log alone."""

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.judge.efficiency import efficiency, peak_of_attempt, split
from treering.judge.parameters import Parameters
from treering.judge.ranks import rank_speeds
from treering.judge.spikes import Spike, SpikeRule, ring_spikes
from treering.judge.throughput import ModelShape
from treering.runlog.directory import AttemptDirectory, PathSegment, RunDirectory
from treering.runlog.ring import Ring

THROUGHPUT_STEPS: Final = 100
"""Throughput is the median over that many of the newest steps: start-up and single slow steps do not count."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in a list.

    Attributes:
        id: the run's id in short.
        experiment: whose run it is.
        state: of the run; `damaged` where its log does not hold, with the reason in `problem`.
        step: newest step on the path; `num_steps` is the schedule's end.
        num_steps: steps of the whole schedule.
        loss: of that step, nats a token.
        validation_loss: newest one on the path, None before the first.
        consumed_tokens: up to and with that step.
        attempts: process starts.
        checkpoints: complete ones on disk.
        incidents: of all attempts.
        age_s: seconds since the newest ring, None before the first.
        problem: why the log does not hold, empty where it does.
    """

    id: str
    experiment: str
    state: str
    step: int
    num_steps: int
    loss: float | None
    validation_loss: float | None
    consumed_tokens: int
    attempts: int
    checkpoints: int
    incidents: int
    age_s: float | None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def run_line(run: RunDirectory, rings: Sequence[Ring] | None = None) -> RunLine:
    """One run in a line.

    Args:
        run: the run.
        rings: those of its path, if they have been read already.

    A config or log that does not hold is a state, not an error: one damaged run must not hide the others.
    """
    try:
        resolved = run.resolved
    except EvidenceError as error:
        checkpoints = len(run.checkpoints())
        return RunLine(run.path.name, "", "damaged", 0, 0, None, None, 0, 0, checkpoints, 0, None, str(error))
    state, problem = "damaged", ""
    last: Ring | None = None
    validation_loss, incidents = None, 0
    try:
        state = str(run.state())
        incidents = len(run.incidents())
        for ring in run.path_rings() if rings is None else rings:
            last = ring
            validation_loss = validation_loss if ring.validation_loss is None else ring.validation_loss
    except EvidenceError as error:
        state, problem = "damaged", str(error)
    return RunLine(
        id=run.id,
        experiment=resolved.experiment,
        state=state,
        step=last.step if last else 0,
        num_steps=resolved.schedule.num_steps,
        loss=last.loss if last else None,
        validation_loss=validation_loss,
        consumed_tokens=last.consumed_tokens if last else 0,
        attempts=len(run.attempts()),
        checkpoints=len(run.checkpoints()),
        incidents=incidents,
        age_s=time.time() - last.ended_at if last else None,
        problem=problem,
    )


def run_page(run: RunDirectory) -> dict[str, Any]:
    """Everything that `treering show` prints, as JSON values.

    Raises:
        EvidenceError: the run's config or log does not hold.
    """
    resolved = run.resolved
    rings = list(run.path_rings())
    attempts = run.attempts()
    segments = run.path_to()
    shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
    newest = attempts[-1] if attempts else None
    return {
        "run": run_line(run, rings).to_json(),
        "path_to_run": str(run.path),
        "overrides": list(resolved.overrides),
        "digests": resolved.digests,
        "parameters": Parameters.of(resolved.recipe.model, resolved.blend.sequence_length).total,
        "recipe": resolved.recipe.model_dump(mode="json"),
        "blend": resolved.blend.model_dump(mode="json"),
        "attempts": [_attempt(attempt, segments) for attempt in attempts],
        "path": [
            {"run": segment.run.id, "attempt": segment.attempt.number, "last_step": segment.last_step}
            for segment in segments
        ],
        "layout": newest.header.layout.model_dump(mode="json") if newest else None,
        "kernels": [kernel.model_dump(mode="json") for kernel in newest.header.kernels] if newest else [],
        "throughput": throughput(rings, newest, shape),
        "spikes": [spike.to_dict() for spike in spikes_of(run, rings)],
        "checkpoints": [
            {
                "step": checkpoint.step,
                "consumed_tokens": checkpoint.manifest.consumed_tokens,
                "attempt": checkpoint.manifest.attempt,
                "bytes": sum(file.size for file in checkpoint.manifest.files),
                "digest": checkpoint.digest,
                "path": str(checkpoint.path),
            }
            for checkpoint in run.checkpoints()
        ],
        "evaluations": [evaluation.model_dump(mode="json") for evaluation in run.evaluations()],
    }


def spikes_of(run: RunDirectory, rings: Sequence[Ring]) -> list[Spike]:
    """The spikes on a run's path, by the thresholds of its config."""
    config = run.resolved.attempt.spikes
    return ring_spikes(rings, SpikeRule(config.threshold, config.window, config.min_points))


def throughput(rings: Sequence[Ring], attempt: AttemptDirectory | None, shape: ModelShape) -> dict[str, Any] | None:
    """Medians over the newest steps, with the formula's name and the peak that MFU and HFU stand on."""
    if not rings or attempt is None:
        return None
    newest = rings[-THROUGHPUT_STEPS:]
    tflops = [ring.tflops_per_device for ring in newest if ring.tflops_per_device is not None]
    peak = peak_of_attempt(attempt.header)
    found = [efficiency(ring, attempt.header, shape) for ring in newest]
    return {
        "steps": len(newest),
        "step_time_s": statistics.median(ring.time_s["step"] for ring in newest),
        "tokens_per_second": statistics.median(ring.tokens_per_second for ring in newest),
        "tflops_per_device": statistics.median(tflops) if tflops else None,
        "flops_formula": newest[-1].flops_formula,
        "device": ", ".join(attempt.header.environment.get("device_kinds", ())),
        "peak_tflops": peak.tflops if peak else None,
        "peak_source": peak.source if peak else None,
        "mfu": _median(each.mfu for each in found),
        "hfu": _median(each.hfu for each in found),
        "pipeline_bubble": _median(each.bubble for each in found),
        "ideal_pipeline_bubble": _median(each.ideal_bubble for each in found),
        "split": split(newest),
        "ranks": [asdict(speed) for speed in rank_speeds(attempt)],
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _attempt(attempt: AttemptDirectory, segments: Sequence[PathSegment]) -> dict[str, Any]:
    header, end = attempt.header, attempt.end
    on_path = next((segment for segment in segments if segment.attempt.path == attempt.path), None)
    return {
        "attempt": attempt.number,
        "origin": header.origin,
        "started_at": header.started_at,
        "from_step": header.parent.step if header.parent else 0,
        "parent": f"{short(header.parent.run, 16)}@{header.parent.step}" if header.parent else None,
        "layout": str(header.layout),
        "device": header.layout.device,
        "backend": header.layout.backend,
        "host": header.host,
        "code": header.code.get("digest"),
        "commit": header.code.get("commit"),
        "environment": header.environment.get("digest"),
        "changed": list(header.changed),
        "continue_changed": header.continue_changed,
        "on_path": on_path is not None,
        "last_step_on_path": on_path.last_step if on_path else None,
        "status": end.status if end else None,
        "reason": end.reason if end else None,
        "launch": header.launch,
        "nodes": [node["host"] for node in header.nodes or ()],
        "incidents": [
            {**incident.model_dump(mode="json"), "title": incident.title} for incident in attempt.incidents()
        ],
    }
