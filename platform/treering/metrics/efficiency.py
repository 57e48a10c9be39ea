"""How well a step used its devices: MFU, HFU, and the pipeline's bubble beside its ideal; all recomputed from the ring.

Reads a ring, its attempt's header and the model's shape. The ring holds what was measured, the header on what; the
shares are computed whenever they are shown, by formulas with names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from treering.metrics.flops import FLOPS_FORMULAS, ModelShape, Peak, hardware_flops, peak_of
from treering.runlog.columns.rows import Series
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring

MODEL_FLOPS: Final = "megatron-2023"
"""The formula that MFU is counted by."""

STEP_PARTS: Final = ("data_wait", "forward_backward", "communication", "optimizer")
"""Parts of a ring's `time_s` that add up to its step."""


def bubble_share(micro_batches: float, pipeline: int) -> float:
    """Idle share of a step under 1F1B (or GPipe): (p - 1)/(m + p - 1).

    Source: arXiv 2104.04473, section 2.2.1, which gives the ratio to the busy time, (p - 1)/m.
    """
    return (pipeline - 1) / (micro_batches + pipeline - 1)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of one step, 0 to 1; None where they cannot be said.

    Attributes:
        mfu: model FLOPs (`MODEL_FLOPS`) over the peak.
        hfu: the same with recomputed FLOPs (`hardware_flops`); equal without recomputation.
        bubble: of the pipeline's time, the part in which a stage waited, as the mean over ranks: measured.
        ideal_bubble: (p - 1)/(m + p - 1), what 1F1B with equal stages and instant transfers would wait; no formula is
            known for other schedules.
    """

    mfu: float | None
    hfu: float | None
    bubble: float | None
    ideal_bubble: float | None

    def metrics(self) -> Iterator[tuple[str, float]]:
        """What can be said, by keys of the metric catalog."""
        for key, value in (
            ("speed/mfu", self.mfu),
            ("speed/hfu", self.hfu),
            ("speed/pipeline_bubble", self.bubble),
            ("speed/ideal_pipeline_bubble", self.ideal_bubble),
        ):
            if value is not None:
                yield key, value


def efficiency(ring: Ring, header: AttemptHeader, shape: ModelShape) -> Efficiency:
    """Shares of a step.

    Args:
        ring: of the step.
        header: of its attempt.
        shape: of the model.
    """
    mfu = hfu = bubble = ideal = None
    shares = peak_shares(header, shape, ring.flops_formula)
    if shares is not None and ring.tflops_per_device is not None:
        mfu, hfu = (ring.tflops_per_device * share for share in shares)
    if ring.time_s.get("pipeline"):
        bubble = ring.time_s["pipeline_bubble"] / ring.time_s["pipeline"]
    if has_ideal_bubble(header):
        ideal = bubble_share(header.layout.micro_batches(ring.global_batch_size), header.layout.pipeline)
    return Efficiency(mfu, hfu, bubble, ideal)


def derived_series(
    header: AttemptHeader, shape: ModelShape, formula: str | None, metrics: Mapping[str, Series]
) -> dict[str, Series]:
    """The shares of many steps of an attempt, by keys of the metric catalog; those that cannot be said are left out.

    Args:
        header: of the attempt.
        shape: of the model.
        formula: name of the formula that the TFLOP/s are counted by.
        metrics: what the rings of the steps hold.
    """
    found = {}
    shares = peak_shares(header, shape, formula)
    speed = metrics.get("speed/tflops_per_device")
    if shares is not None and speed is not None:
        for key, share in zip(("speed/mfu", "speed/hfu"), shares, strict=True):
            found[key] = Series(speed.values * share, speed.known)
    waited, whole = metrics.get("time/pipeline_bubble"), metrics.get("time/pipeline")
    if waited is not None and whole is not None:
        known = waited.known & whole.known & (whole.values > 0)
        bubble = np.divide(waited.values, whole.values, out=np.full(len(known), np.nan), where=known)
        found["speed/pipeline_bubble"] = Series(bubble, known)
    sizes = metrics.get("optim/global_batch_size")
    if has_ideal_bubble(header) and sizes is not None:
        per_replica: Any = header.layout.micro_batches(sizes.values)  # type: ignore[arg-type]  # of an array
        ideal: Any = bubble_share(per_replica, header.layout.pipeline)
        found["speed/ideal_pipeline_bubble"] = Series(ideal, sizes.known)
    return found


def peak_shares(header: AttemptHeader, shape: ModelShape, formula: str | None) -> tuple[float, float] | None:
    """MFU and HFU of one TFLOP/s a device; every formula is proportional to the batch, so they hold for any batch.

    Args:
        header: of the attempt.
        shape: of the model.
        formula: name of the formula that the TFLOP/s are counted by.

    Returns:
        None where the devices' peak or the formula is unknown.
    """
    peak, counted = peak_of_attempt(header), FLOPS_FORMULAS.get(formula or "")
    if peak is None or counted is None:
        return None
    recompute = header.config.parallel.activation_recompute == "full"
    share = 1 / peak.tflops / counted(shape, 1, recompute)
    return share * FLOPS_FORMULAS[MODEL_FLOPS](shape, 1, recompute), share * hardware_flops(shape, 1, recompute)


def has_ideal_bubble(header: AttemptHeader) -> bool:
    """Whether the attempt's schedule is one whose bubble a formula gives."""
    return header.layout.pipeline > 1 and header.layout.pipeline_schedule == "1f1b"


def peak_of_attempt(header: AttemptHeader) -> Peak | None:
    """Peak of the devices of an attempt; None where they are unknown or of several kinds."""
    kinds = header.environment.get("device_kinds", ())
    return peak_of(kinds[0]) if len(kinds) == 1 else None


def split(rings: Sequence[Ring]) -> dict[str, float]:
    """Shares of the steps' time by part, over all given rings together; empty where they hold no parts.

    What is in no step (checkpoint, validation, record) is set against the same whole, so that it can be more than 1.
    """
    whole = sum(ring.time_s["step"] for ring in rings)
    if not whole or STEP_PARTS[-2] not in rings[-1].time_s:
        return {}
    parts = (*STEP_PARTS, "validation", "checkpoint", "record")
    seconds = {part: sum(ring.time_s.get(part, 0.0) for ring in rings) for part in parts}
    return {part: value / whole for part, value in seconds.items() if value or part in STEP_PARTS}
