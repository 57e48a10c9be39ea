"""A run in a page: what `treering show` prints, from the run log alone."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from treering.collect.code import rule_of
from treering.config.canonical import short
from treering.metrics.compare import scores
from treering.metrics.efficiency import efficiency, peak_of_attempt, split
from treering.metrics.energy import AttemptSpan, run_energy
from treering.metrics.flops import ModelShape
from treering.metrics.lines.read import run_line
from treering.metrics.parameters import Parameters
from treering.metrics.path_summary import PathSummary, summary_of_path
from treering.metrics.ranks import rank_speeds
from treering.metrics.references import Reference, beside
from treering.metrics.sensors import sensors
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.find import runs_without_config
from treering.runlog.journal import notes_and_tags
from treering.runlog.reproductions import reproduction_lines
from treering.runlog.ring import Ring


def unlisted_runs(folder: Path) -> list[str]:
    """A line for each run below a folder that no list shows, since its config is missing."""
    return [
        f"{run.config_file}: missing, so the run is not listed; restore the file from a copy of the run"
        for run in runs_without_config(folder)
    ]


def run_page(run: RunDirectory, references: Sequence[Reference] = ()) -> dict[str, Any]:
    """Everything that `treering show` prints, as JSON values.

    Args:
        run: the run.
        references: published scores of other models, which stand beside the newest evaluation where they may.

    Raises:
        EvidenceError: the run's config or log does not hold.
    """
    resolved = run.resolved
    path = summary_of_path(run)
    segments = path.segments
    notes, tags = notes_and_tags(line.entry for line in run.journal.lines())
    attempts = run.attempts()
    shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
    newest = attempts[-1] if attempts else None
    speed = throughput(path.newest, newest, shape)
    tflops = speed["tflops_per_device"] if speed is not None else None
    evaluations = run.evaluations()
    return {
        "run": run_line(run, path=path).to_json(),
        "path_to_run": str(run.path),
        "tags": tags,
        "notes": [each.model_dump(mode="json", exclude={"kind"}) for each in notes],
        "reproductions": reproduction_lines(run),
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
        "nondeterminism": newest.header.nondeterminism.model_dump(mode="json")
        if newest and newest.header.nondeterminism
        else None,
        "throughput": speed,
        "energy": own_energy(run, path, tflops),
        "sensors": sensors(attempts),
        "spikes": [alarm.to_dict() for alarm in path.alarms],
        "checkpoints": [
            {
                "step": checkpoint.step,
                "consumed_tokens": checkpoint.manifest.consumed_tokens,
                "attempt": checkpoint.manifest.attempt,
                "bytes": sum(file.size for file in checkpoint.manifest.files),
                "validation_loss": checkpoint.manifest.validation_loss,
                "digest": checkpoint.digest,
                "path": str(checkpoint.path),
            }
            for checkpoint in run.checkpoints()
        ],
        "evaluations": [evaluation.model_dump(mode="json") for evaluation in evaluations],
        "published": [
            {
                "model": each.reference.model,
                "task": each.own.task,
                "shots": each.own.shots,
                "metric": each.own.metric,
                "published": each.published,
                "own": each.own.value,
                "step": evaluations[-1].step,
                "citation": each.reference.citation,
                "caveat": each.reference.caveat,
            }
            for each in beside(scores(evaluations[-1]) if evaluations else (), references)
        ],
    }


def throughput(newest: Sequence[Ring], attempt: AttemptDirectory | None, shape: ModelShape) -> dict[str, Any] | None:
    """Medians over the newest steps, with the formula's name and the peak that MFU and HFU refer to."""
    if not newest or attempt is None:
        return None
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


def own_energy(run: RunDirectory, path: PathSummary, tflops_per_device: float | None = None) -> dict[str, Any] | None:
    """The energy of a run, see `run_energy`.

    Args:
        run: the run.
        path: the summary of its path.
        tflops_per_device: the model's, of the newest steps.

    Raises:
        EvidenceError: the run's config or a header does not hold.
    """
    return run_energy([_span(each) for each in run.attempts()], _own_tokens(run, path), tflops_per_device)


def _span(attempt: AttemptDirectory) -> AttemptSpan:
    header, end, last = attempt.header, attempt.end, attempt.ring_log.last()
    seen = last.ended_at if last is not None else header.started_at
    devices = header.layout.world_size if header.layout.device != "cpu" else 0
    return AttemptSpan(
        attempt, header.started_at, end.ended_at if end is not None else seen, devices, header.config.telemetry
    )


def _own_tokens(run: RunDirectory, path: PathSummary) -> int | None:
    """Tokens that the run itself has trained on its path, without those of a run that it starts from."""
    own = [segment.attempt for segment in path.segments if segment.run.path == run.path]
    first = own[0].ring_log.first() if own else None
    if first is None or path.last is None:
        return None
    before = first.consumed_tokens - first.global_batch_size * run.resolved.blend.sequence_length
    return path.last.consumed_tokens - before


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
        "code_rule": rule_of(header.code),
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
