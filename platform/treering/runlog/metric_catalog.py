"""Every metric once: key, title, unit, meaning, good direction.

MLflow's keys, the dashboard's axis titles and the docs come from here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run.

    Attributes:
        key: `area/noun`, without unit.
        title: for an axis or a heading.
        unit: as printed, empty for pure numbers.
        meaning: definition, reduction and source in a sentence.
        better: which direction is good, None where neither is.
        logarithmic: whether a log axis serves it best.
    """

    key: str
    title: str
    unit: str
    meaning: str
    better: Literal["lower", "higher"] | None = None
    logarithmic: bool = False


_METRICS = (
    Metric("train/loss", "Loss", "nat/token", "Mean cross-entropy of the step's global batch.", "lower"),
    Metric(
        "validation/loss",
        "Validation loss",
        "nat/token",
        "Mean cross-entropy of the same held-out samples each time, corpora weighted as in the blend.",
        "lower",
    ),
    Metric(
        "train/grad_norm",
        "Gradient norm",
        "",
        "Global L2 norm of the gradients before clipping, over all ranks.",
        logarithmic=True,
    ),
    Metric("train/applied", "Applied", "", "1 where the optimizer moved the weights, 0 where it skipped."),
    Metric("optim/learning_rate", "Learning rate", "", "What the optimizer used in this step."),
    Metric("optim/global_batch_size", "Batch size", "samples", "Samples of the step over all replicas."),
    Metric("optim/loss_scale", "Loss scale", "", "Dynamic loss scale of fp16."),
    Metric("data/consumed_tokens", "Tokens", "tokens", "Tokens read up to and with this step."),
    Metric("speed/tokens_per_second", "Tokens per second", "tokens/s", "All devices together.", "higher"),
    Metric(
        "speed/tflops_per_device",
        "TFLOP/s per device",
        "TFLOP/s",
        "Model FLOPs of the step by the ring's named formula, over step time and devices.",
        "higher",
    ),
    Metric("time/step", "Step time", "s", "Wall clock of the whole step on the rank that writes the ring.", "lower"),
    Metric(
        "time/report",
        "Time between reports",
        "s",
        "From one report to the next, over the steps between; what the trainer does between steps included.",
        "lower",
    ),
    Metric(
        "speed/reported_tokens_per_second",
        "Tokens per second by reports",
        "tokens/s",
        "Tokens of a step over the time since the report before; of a trainer whose one process reports.",
        "higher",
    ),
    Metric(
        "time/data_wait",
        "Data wait",
        "s",
        "Part of the step: reading and digesting its tokens, until all ranks agree on them.",
        "lower",
    ),
    Metric(
        "time/forward_backward",
        "Forward and backward",
        "s",
        "Part of the step: model passes on the rank that writes the ring, without communication.",
    ),
    Metric(
        "time/communication",
        "Communication",
        "s",
        "Part of the step: blocked in collectives and in transfers between stages, on the rank that writes the ring; "
        "waiting for other ranks included, what overlaps with computation not.",
        "lower",
    ),
    Metric("time/optimizer", "Optimizer", "s", "Part of the step: clipping and update, without communication."),
    Metric(
        "time/compute_fastest",
        "Computing, fastest rank",
        "s",
        "Forward, backward and optimizer without communication on the rank that computed least.",
    ),
    Metric(
        "time/compute_slowest",
        "Computing, slowest rank",
        "s",
        "The same on the rank that computed longest, which the others wait for.",
        "lower",
    ),
    Metric(
        "time/pipeline",
        "Pipeline",
        "s",
        "From the step's first pass to the end of its last one, over all stages; within the step, across its parts.",
    ),
    Metric(
        "time/pipeline_bubble",
        "Pipeline bubble",
        "s",
        "Mean over ranks of the pipeline's time in which a rank is in no forward or backward pass; transfers included.",
        "lower",
    ),
    Metric(
        "time/validation", "Validation", "s", "Measuring held-out loss after the step; in no other number.", "lower"
    ),
    Metric(
        "time/record",
        "Record",
        "s",
        "Recording the step before: timings of the ranks, ring, hooks; in no other number.",
        "lower",
    ),
    Metric("time/checkpoint", "Checkpoint", "s", "Saving after the step before; in no other number.", "lower"),
    Metric(
        "speed/mfu",
        "MFU",
        "",
        "Model FLOPs (megatron-2023) as a fraction of the device's published dense bf16 peak; none without a peak.",
        "higher",
    ),
    Metric("speed/hfu", "HFU", "", "The same with recomputed FLOPs counted; equal without recomputation.", "higher"),
    Metric(
        "speed/pipeline_bubble",
        "Bubble",
        "",
        "Measured: time/pipeline_bubble as a fraction of time/pipeline.",
        "lower",
    ),
    Metric(
        "speed/ideal_pipeline_bubble",
        "Ideal bubble",
        "",
        "(p - 1)/(m + p - 1) for p stages and m micro-batches: 1F1B with equal stages and instant transfers.",
        "lower",
    ),
    Metric(
        "judge/spike", "Spike", "", "Robust z-score of a flagged loss or gradient norm; see `treering.metrics.spikes`."
    ),
    Metric("judge/early_blowup", "Early blow-up", "", "1 where the rule fires; see `treering.metrics.health`."),
    Metric("judge/too_good", "Too good", "", "1 where the rule fires; see `treering.metrics.health`."),
    Metric("judge/flat", "Flat", "", "1 where the rule fires; see `treering.metrics.health`."),
    Metric("judge/divergence", "Divergence", "", "1 where the rule fires; see `treering.metrics.health`."),
    Metric(
        "rank/step", "Step time by rank", "s", "Each rank's own clock, mean over the steps of an interval.", "lower"
    ),
    Metric(
        "rank/compute",
        "Computing by rank",
        "s",
        "Forward, backward and optimizer of a step without communication; the rank that others wait for has most.",
        "lower",
    ),
    Metric(
        "rank/communication", "Communication by rank", "s", "Blocked in collectives and transfers, in a step.", "lower"
    ),
    Metric(
        "rank/tflops",
        "TFLOP/s by rank",
        "TFLOP/s",
        "Model FLOPs of a step over devices and the rank's own time.",
        "higher",
    ),
    Metric("run/incidents", "Incidents", "", "How many the run has had, at the last step before each.", "lower"),
    Metric("host/cpu_utilisation", "CPU of the node", "%", "All cores together, 100 % is every core."),
    Metric("host/memory_used", "Memory of the node", "bytes", "In use by every process."),
    Metric("host/disk_read", "Disk reads of the node", "bytes/s", "All disks together."),
    Metric("host/disk_written", "Disk writes of the node", "bytes/s", "All disks together."),
    Metric("host/disk_free", "Free disk", "bytes", "Of the file system that the run is on.", "higher"),
    Metric("host/network_received", "Network in", "bytes/s", "All interfaces of the node together."),
    Metric("host/network_sent", "Network out", "bytes/s", "All interfaces of the node together."),
    Metric("process/cpu_utilisation", "CPU of the rank", "%", "100 % is one core."),
    Metric("process/rss", "Memory of the rank", "bytes", "Resident set of the rank's process."),
    Metric("process/read", "Disk reads of the rank", "bytes/s", "What its process had read from disks."),
    Metric("process/written", "Disk writes of the rank", "bytes/s", "What its process had written to disks."),
    Metric("device/utilisation", "Utilisation", "%", "Share of time with a kernel running (NVML); a hang shows 100 %."),
    Metric("device/memory_utilisation", "Memory traffic", "%", "Share of time in which memory was accessed (NVML)."),
    Metric("device/memory_used", "Device memory", "bytes", "In use by every process (NVML)."),
    Metric("device/power", "Power", "W", "Board power (NVML)."),
    Metric("device/power_limit", "Power limit", "W", "What the driver keeps the board below (NVML)."),
    Metric("device/energy", "Energy", "J", "Counter since the driver was loaded (NVML)."),
    Metric("device/temperature", "Temperature", "°C", "Of the chip (NVML).", "lower"),
    Metric("device/memory_temperature", "Memory temperature", "°C", "Of the memory (NVML).", "lower"),
    Metric("device/sm_clock", "SM clock", "MHz", "(NVML)", "higher"),
    Metric("device/memory_clock", "Memory clock", "MHz", "(NVML)", "higher"),
    Metric("device/throttle_reasons", "Throttle reasons", "", "Bits of `nvmlClocksEventReasons` (NVML)."),
    Metric("device/ecc_corrected", "Corrected ECC errors", "", "Since the driver was loaded (NVML).", "lower"),
    Metric("device/ecc_uncorrected", "Uncorrected ECC errors", "", "Since the driver was loaded (NVML).", "lower"),
    Metric("device/retired_pages", "Retired pages", "", "Memory pages out of use, before Ampere (NVML).", "lower"),
    Metric("device/remapped_rows", "Remapped rows", "", "Memory rows replaced by spare ones (NVML).", "lower"),
    Metric("device/remapping_pending", "Remapping pending", "", "1: a reset of the device is due (NVML).", "lower"),
    Metric("device/remapping_failed", "Remapping failed", "", "1: no spare row is left; replace the device.", "lower"),
    Metric("device/nvlink_sent", "NVLink out", "bytes/s", "Data over all links (NVML)."),
    Metric("device/nvlink_received", "NVLink in", "bytes/s", "Data over all links (NVML)."),
    Metric("device/nvlink_errors", "NVLink errors", "", "CRC errors, replays and recoveries of all links.", "lower"),
    Metric("device/pcie_sent", "PCIe out", "bytes/s", "Over 20 ms, every tenth sample (NVML)."),
    Metric("device/pcie_received", "PCIe in", "bytes/s", "Over 20 ms, every tenth sample (NVML)."),
    Metric("device/pcie_replays", "PCIe replays", "", "Counter of packets sent again (NVML).", "lower"),
    Metric("device/xid", "XID", "", "NVIDIA's number of an error that the driver reported in the interval."),
    Metric("device/tensor_activity", "Tensor activity", "%", "Share of cycles with a tensor pipe active (NVML GPM)."),
    Metric("device/sm_activity", "SM activity", "%", "Share of cycles with work on an SM, over all SMs (NVML GPM)."),
    Metric(
        "device/tensor_tflops",
        "Measured TFLOP/s",
        "TFLOP/s",
        "Tensor activity times cores, FLOPs a cycle and clock, as dense bf16 (Hopper); beside the model's TFLOP/s.",
        "higher",
    ),
)

METRICS = {metric.key: metric for metric in _METRICS}

REPORTED_NAMES = {
    "loss": "train/loss",
    "train_loss": "train/loss",
    "eval_loss": "validation/loss",
    "val_loss": "validation/loss",
    "grad_norm": "train/grad_norm",
    "lr": "optim/learning_rate",
    "learning_rate": "optim/learning_rate",
    "loss_scale": "optim/loss_scale",
    "tokens_per_second": "speed/tokens_per_second",
    "step_time": "time/step",
}
"""What other trainers call a metric of the catalog."""


def ring_metrics(ring: Ring) -> dict[str, float]:
    """A ring's numbers under their keys of the metric catalog; what a ring does not hold is left out."""
    return dict(_items(ring))


def _items(ring: Ring) -> Iterator[tuple[str, float]]:
    yield "train/loss", ring.loss
    yield "train/grad_norm", ring.grad_norm
    yield "train/applied", float(ring.applied)
    yield "optim/learning_rate", ring.learning_rate
    yield "optim/global_batch_size", float(ring.global_batch_size)
    yield "data/consumed_tokens", float(ring.consumed_tokens)
    yield "speed/tokens_per_second", ring.tokens_per_second
    if ring.loss_scale is not None:
        yield "optim/loss_scale", ring.loss_scale
    if ring.tflops_per_device is not None:
        yield "speed/tflops_per_device", ring.tflops_per_device
    if ring.validation is not None:
        yield "validation/loss", ring.validation["loss"]
        for corpus, loss in ring.validation["by_corpus"].items():
            yield f"validation/loss/{corpus}", loss
    for part, seconds in ring.time_s.items():
        yield f"time/{part}", seconds


def describe(key: str) -> Metric:
    """The metric of a key; `validation/loss/<corpus>` is described by `validation/loss`.

    Raises:
        KeyError: no such metric.
    """
    if key in METRICS:
        return METRICS[key]
    base, _, corpus = key.rpartition("/")
    metric = METRICS[base]
    return Metric(key, f"{metric.title}: {corpus}", metric.unit, metric.meaning, metric.better, metric.logarithmic)


def described(names: Iterable[str]) -> dict[str, Metric]:
    """The metrics of another trainer: name as the trainer reported it, to its metric.

    A name of the catalog, or one of `REPORTED_NAMES`, has the catalog's key and title; of several names of one key the
    first one. The unit of such a name is not known. Any other name is its own key and title.
    """
    found: dict[str, Metric] = {}
    for name in names:
        key = name if name in METRICS else REPORTED_NAMES.get(name, name)
        taken = any(metric.key == key for metric in found.values())
        if key not in METRICS or taken:
            found[name] = Metric(name, name, "", "As the trainer reported it.")
        else:
            found[name] = METRICS[key] if key == name else replace(METRICS[key], unit="")
    return found
