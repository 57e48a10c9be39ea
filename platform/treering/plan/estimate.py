"""How long a training would take on a cluster that nobody has bought yet: bubble, step time, days, the best layouts.

A model, not a measurement. It uses one stated number, the MFU of a whole step at the full batch, and splits that
step: transfers by the interconnect's bandwidth, the idle time of 1F1B, and the rest, in which kernels run at a rate
that follows. That rate is then taken for every other batch size and layout. What it does not know: that kernels run
faster on larger matrices and micro-batches, overlap of transfers and computation, stalls, restarts, checkpoints,
evaluation.

Legend as in `memory`; m micro-batches of a step, p stages.
"""

from dataclasses import dataclass

from treering.errors import ConfigError, UserError
from treering.metrics.efficiency import bubble_share
from treering.metrics.flops import hardware_flops, megatron_2023
from treering.plan.fit import check_device_memory
from treering.plan.layout import Cluster, PlannedLayout, Workload, check_layout, layouts
from treering.plan.memory import USABLE_SHARE, DeviceMemory, device_memory, element_bytes, stage_parameters

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of one batch size.

    Attributes:
        batch_size: global batch, samples.
        micro_batches: of one replica (m).
        bubble: share of the time in which a stage waits for the pipeline, (p - 1)/(m + p - 1).
        compute_s: one micro-batch in the slowest stage, forward and backward.
        tensor_s: its all-reduces between tensor ranks.
        pipeline_s: its transfers between stages.
        data_s: reduction of gradients and gathering of weights at the step's end.
        step_s: the whole step: (m + p - 1)(compute + tensor + pipeline) + data.
        tokens_per_second: over all devices.
        mfu: model FLOPs over peak.
        tflops: model TFLOP/s of a device, by `megatron-2023`.
        hardware_tflops: with what recompute repeats, TFLOP/s of a device; equals `ptdp-2021` for the plain block.
    """

    batch_size: int
    micro_batches: float
    bubble: float
    compute_s: float
    tensor_s: float
    pipeline_s: float
    data_s: float
    step_s: float
    tokens_per_second: float
    mfu: float
    tflops: float
    hardware_tflops: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout on a cluster.

    Attributes:
        layout: the layout.
        memory: of the device that needs most, at the full batch.
        memory_share: of the device's memory.
        kernel_rate: hardware FLOP/s over peak while kernels run.
        first: the first step, at the ramp's start.
        full: a step at the full batch.
        days: of the whole schedule, every stage of the batch ramp by its own step time.
    """

    layout: PlannedLayout
    memory: DeviceMemory
    memory_share: float
    kernel_rate: float
    first: StepTime
    full: StepTime
    days: float

    @property
    def fits(self) -> bool:
        """Whether the memory leaves room for what the model does not count."""
        return self.memory_share <= USABLE_SHARE


def kernel_rate(workload: Workload, layout: PlannedLayout, cluster: Cluster, mfu: float) -> float:
    """Hardware FLOP/s over peak while kernels run, from the MFU of a whole step at the full batch.

    Raises:
        UserError: no kernels are fast enough for such an MFU beside the transfers and the bubble.
    """
    batch = workload.schedule.global_batch_size
    full_speed = step_time(workload, layout, cluster, batch, 1.0)
    slots = full_speed.micro_batches + layout.pipeline - 1
    compute_s = (full_speed.step_s * full_speed.mfu / mfu - full_speed.data_s) / slots
    compute_s -= full_speed.tensor_s + full_speed.pipeline_s
    if compute_s < full_speed.compute_s:
        raise UserError(
            f"--efficiency: found {mfu:g}, expected at most {full_speed.mfu:.3f}: with transfers, recompute and bubble "
            f"of {layout} that is the MFU of kernels that run at the peak of {cluster.device.device}"
        )
    return full_speed.compute_s / compute_s


def step_time(workload: Workload, layout: PlannedLayout, cluster: Cluster, batch_size: int, rate: float) -> StepTime:
    """Time of one step: m + p - 1 micro-batches of the slowest stage, then the exchange between replicas.

    The slowest stage is the last: its share of the layers and the logits. FLOPs by `megatron-2023`, layers four thirds
    of that with recompute. Tensor ranks do four all-reduces of esbh bytes a layer over NVLink, six with recompute.
    Between stages activations go there and gradients back, cut by tensor rank. Replicas reduce fp32 gradients and
    gather weights over the network. All-reduces go around a ring, 2(n - 1)/n of the data a device; nothing overlaps.

    Args:
        workload: what is trained.
        layout: how it is cut.
        cluster: where it runs.
        batch_size: global batch, samples.
        rate: hardware FLOP/s over peak while kernels run.
    """
    model, t, p, d = workload.model, layout.tensor, layout.pipeline, layout.data
    b, s, e = layout.micro_batch_size, workload.sequence_length, element_bytes(workload)
    links = cluster.interconnect
    m = layout.micro_batches(batch_size)
    logits = 6.0 * b * s * model.hidden_size * model.padded_vocab_size
    layers = megatron_2023(workload.shape, b, False) - logits
    compute_s = (layers * (4 / 3 if layout.recompute else 1) / p + logits) / t / (cluster.device.tflops * 1e12 * rate)
    hidden = float(e * s * b * model.hidden_size)
    reductions = (6 if layout.recompute else 4) * model.num_layers / p
    tensor_s = reductions * 2 * (t - 1) / t * hidden / links.node
    between = links.node if layout.world_size <= cluster.gpus_per_node else links.network
    pipeline_s = 2 * hidden / t / between if p > 1 else 0.0
    # A ring over nodes leaves each of them by as many ports as it has replicas there.
    ports = max(1, cluster.gpus_per_node // t)
    between = links.node if t * d <= cluster.gpus_per_node else min(links.node, ports * links.network)
    exchanged = stage_parameters(workload, layout, "first") * (2 * 4 + e)  # gradients in fp32 both ways, weights once
    data_s = (d - 1) / d * exchanged / between
    total = (m + p - 1) * (compute_s + tensor_s + pipeline_s) + data_s
    tflops = megatron_2023(workload.shape, batch_size, layout.recompute) / total / layout.world_size / 1e12
    computed = hardware_flops(workload.shape, batch_size, layout.recompute) / total / layout.world_size / 1e12
    return StepTime(
        batch_size=batch_size,
        micro_batches=m,
        bubble=bubble_share(m, p),
        compute_s=compute_s,
        tensor_s=tensor_s,
        pipeline_s=pipeline_s,
        data_s=data_s,
        step_s=total,
        tokens_per_second=batch_size * s / total,
        mfu=tflops / cluster.device.tflops,
        tflops=tflops,
        hardware_tflops=computed,
    )


def schedule_seconds(workload: Workload, layout: PlannedLayout, cluster: Cluster, rate: float) -> float:
    """Time of all steps of the schedule, each stage of the batch ramp by its own step time."""
    schedule = workload.schedule
    stages = [stage for stage in schedule.stages if stage.first_step <= schedule.num_steps]
    ends = [stage.first_step for stage in stages[1:]] + [schedule.num_steps + 1]
    return sum(
        (end - stage.first_step) * step_time(workload, layout, cluster, stage.batch_size, rate).step_s
        for stage, end in zip(stages, ends, strict=True)
    )


def estimate(workload: Workload, layout: PlannedLayout, cluster: Cluster, rate: float) -> Plan:
    """Everything about one layout, whether it fits or not."""
    schedule = workload.schedule
    memory = device_memory(workload, layout, schedule.global_batch_size)
    return Plan(
        layout=layout,
        memory=memory,
        memory_share=memory.num_bytes / cluster.device.memory_bytes,
        kernel_rate=rate,
        first=step_time(workload, layout, cluster, schedule.batch_size(1), rate),
        full=step_time(workload, layout, cluster, schedule.global_batch_size, rate),
        days=schedule_seconds(workload, layout, cluster, rate) / _DAY_S,
    )


def plan(
    source: str,
    workload: Workload,
    layout: PlannedLayout,
    cluster: Cluster,
    mfu: float,
    *,
    reference: PlannedLayout | None = None,
) -> Plan:
    """The plan of one layout, by kernels of the rate with which a step at the full batch reaches a stated MFU.

    Args:
        source: the experiment's file, for errors.
        workload: what is trained.
        layout: how it is cut.
        cluster: where it would run.
        mfu: model FLOPs over peak of a whole step at the full batch.
        reference: the layout that reaches the MFU, on as many devices as it takes; default the planned one.

    Raises:
        ConfigError: the layout does not divide, or does not fit into memory.
        UserError: the MFU cannot be reached.
    """
    check_layout(source, workload, layout, cluster)
    device = cluster.device
    check_device_memory(
        source, workload, layout, device=device.device, memory_bytes=device.memory_bytes, share=USABLE_SHARE
    )
    return estimate(workload, layout, cluster, kernel_rate(workload, reference or layout, cluster, mfu))


def search(source: str, workload: Workload, cluster: Cluster, rate: float) -> list[Plan]:
    """All layouts of a cluster that fit, fastest schedule first.

    Ties go to the layout that needs less memory. The kernel's rate is the same for all: the model does not know that
    larger micro-batches and fewer tensor ranks make larger, faster matrix products.

    Raises:
        ConfigError: none fits.
    """
    tried = [estimate(workload, layout, cluster, rate) for layout in layouts(workload, cluster)]
    found = [each for each in tried if each.fits]
    if not found:
        least = min(tried, key=lambda each: each.memory.num_bytes, default=None)
        what = f"the leanest, {least.layout}, needs {least.memory.num_bytes / 1e9:.1f} GB" if least else "none divides"
        raise ConfigError(
            source, "parallel", f"no layout of {cluster.num_devices:,} {cluster.device.device}: {what}",
            "more nodes or devices with more memory, or layers, heads and batch stages that divide",
        )  # fmt: skip
    return sorted(found, key=lambda each: (each.days, each.memory.num_bytes, str(each.layout)))
