"""How fast a training was, from its rings: wall-clock numbers, which differ from run to run."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from treering.metrics.efficiency import split
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class Speed:
    """Throughput of a path.

    Attributes:
        steps_s: seconds of all steps together.
        step_s: median seconds of a step.
        split: shares of the steps' time by part (`treering.metrics.efficiency.split`); empty where the rings hold none.
        tokens_per_second: tokens over time, all devices together, over the whole path.
        tflops_per_device: median over steps, None where no formula applied.
        flops_formula: its name.
    """

    steps_s: float
    step_s: float
    split: dict[str, float]
    tokens_per_second: float
    tflops_per_device: float | None
    flops_formula: str | None


def speed(rings: Sequence[Ring]) -> Speed:
    """Throughput over the rings of a path, at least one."""
    seconds = [ring.time_s["step"] for ring in rings]
    total = sum(seconds)
    tokens = sum(ring.tokens_per_second * ring.time_s["step"] for ring in rings)
    flops = [ring.tflops_per_device for ring in rings if ring.tflops_per_device is not None]
    return Speed(
        steps_s=total,
        step_s=statistics.median(seconds),
        split=split(rings),
        tokens_per_second=tokens / total if total else 0.0,
        tflops_per_device=statistics.median(flops) if flops else None,
        flops_formula=rings[-1].flops_formula,
    )
