"""TFLOP/s of a device against the number of devices: own runs, and published trainings beside them.

All count FLOPs by one formula, `ptdp-2021`, which counts what recompute repeats: so do the publications.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from treering.metrics.efficiency import peak_of_attempt
from treering.metrics.flops import ModelShape, peak_of, tflops_per_device
from treering.metrics.parameters import Parameters
from treering.metrics.path_summary import summary_of_path
from treering.metrics.references import PublishedSpeed, Reference
from treering.runlog.directory import RunDirectory

FORMULA: Final = "ptdp-2021"
OWN: Final = "own runs"


@dataclass(frozen=True, slots=True)
class Speed:
    """One training on one number of devices.

    Attributes:
        series: the publication, or `OWN`.
        name: id of the run, or name of the published model.
        parameters: of the model as text.
        devices: how many trained.
        device: which; the processor where a run has no other.
        batch: global batch size, samples.
        seconds: of a step, the median of the newest; None where it is not published.
        tflops: of a device, by `FORMULA`.
        peak_share: of the device's peak; None where that is unknown.
        efficiency: against the same model on the fewest devices of the series; None there.
    """

    series: str
    name: str
    parameters: str
    devices: int
    device: str
    batch: int
    seconds: float | None
    tflops: float
    peak_share: float | None
    efficiency: float | None = None


def own_speed(run: RunDirectory) -> Speed | None:
    """The speed of a run's newest steps, None before its first step.

    Raises:
        EvidenceError: the run's config or log does not hold.
    """
    newest, attempts = summary_of_path(run).newest, run.attempts()
    if not newest or not attempts:
        return None
    header, resolved = attempts[-1].header, run.resolved
    batch = newest[-1].global_batch_size
    same = [ring.time_s["step"] for ring in newest if ring.global_batch_size == batch]
    seconds = statistics.median(same)
    tflops = tflops_per_device(
        FORMULA,
        ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length),
        batch_size=batch,
        step_time_s=seconds,
        num_devices=header.layout.world_size,
        recompute=resolved.attempt.parallel.activation_recompute == "full",
    )
    peak = peak_of_attempt(header)
    return Speed(
        series=OWN,
        name=run.id,
        parameters=f"{Parameters.of(resolved.recipe.model, resolved.blend.sequence_length).total / 1e9:.3g}B",
        devices=header.layout.world_size,
        device=", ".join(header.environment.get("device_kinds", ())),
        batch=batch,
        seconds=seconds,
        tflops=tflops,
        peak_share=tflops / peak.tflops if peak else None,
    )


def published_speeds(references: Sequence[Reference]) -> list[Speed]:
    """The published trainings, each series by number of devices."""
    found = []
    for reference in references:
        fewest: dict[str, PublishedSpeed] = {}
        for each in sorted(reference.speeds, key=lambda speed: speed.devices):
            base, peak = fewest.setdefault(each.model, each), peak_of(each.device)
            found.append(
                Speed(
                    series=reference.model,
                    name=each.model,
                    parameters=each.model,
                    devices=each.devices,
                    device=each.device,
                    batch=each.batch,
                    seconds=each.seconds,
                    tflops=each.tflops,
                    peak_share=each.tflops / peak.tflops if peak else None,
                    efficiency=None if base is each else each.tflops / base.tflops,
                )
            )
    return found
