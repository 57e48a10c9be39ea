"""How `treering plan --nodes` plans and prints a cluster: memory, bubble, time, and the layouts that fit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from treering.cli.output import console, print_table
from treering.errors import ConfigError

if TYPE_CHECKING:
    from treering.config.resolved import Resolved
    from treering.plan.changes import Change
    from treering.plan.estimate import Plan
    from treering.plan.layout import Cluster, PlannedLayout

SHOWN_LAYOUTS = 10


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of `treering plan` about a cluster.

    Attributes:
        nodes: the number of nodes.
        gpus_per_node: the number of devices in each node.
        device: the name of the device in the table of peaks.
        efficiency: the MFU of a whole step at the full batch size.
        search: list the fastest layouts instead of planning the layout of the config.
    """

    nodes: int
    gpus_per_node: int
    device: str
    efficiency: float
    search: bool


def cluster_document(
    source: str, resolved: "Resolved", options: ClusterOptions, changes: "Sequence[Change]" = ()
) -> dict[str, Any]:
    """Plans the layout of the config on a cluster, or with `search` the fastest layouts.

    Args:
        source: the experiment's file, for errors.
        resolved: the experiment, with the changes.
        options: of the command.
        changes: what was changed so that the layout uses all devices; the efficiency is that of the layout before.

    Raises:
        ConfigError: no layout fits, or the pipeline schedule is not modelled.
        UserError: the device is unknown, or no kernel reaches the efficiency.
    """
    from treering.plan.estimate import kernel_rate, plan, search
    from treering.plan.layout import Cluster, PlannedLayout, Workload

    if resolved.attempt.parallel.pipeline_schedule != "1f1b":
        raise ConfigError(
            source, "parallel.pipeline_schedule", resolved.attempt.parallel.pipeline_schedule,
            "1f1b: memory and bubble of another schedule are not modelled; `--set parallel.pipeline_schedule=1f1b`",
        )  # fmt: skip
    workload = Workload.of(resolved)
    cluster = Cluster.of(options.device, options.nodes, options.gpus_per_node)
    layout = PlannedLayout.of(resolved.attempt.parallel, cluster.num_devices)
    if options.search:  # only the layout that the efficiency was given for
        layout = layout.fitted(workload.schedule)
    replicas = next((change.before for change in changes if change.path == "parallel.data"), layout.data)
    reference = layout.model_copy(update={"data": replicas})
    document: dict[str, Any] = {
        "model": "a model, not a measurement; see docs/planning.md",
        "nodes": cluster.nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "devices": cluster.num_devices,
        "device": asdict(cluster.device),
        "interconnect": asdict(cluster.interconnect),
        "efficiency": options.efficiency,
        "reference": _layout_document(reference),
        "changes": [asdict(change) | {"set": change.setting} for change in changes],
    }
    if options.search:
        rate = kernel_rate(workload, layout, cluster, options.efficiency)
        found = search(source, workload, cluster, rate)
        return document | {
            "kernel_rate": rate,
            "layouts_that_fit": len(found),
            "layouts": [_plan_document(each, cluster) for each in found[:SHOWN_LAYOUTS]],
        }
    found_plan = plan(source, workload, layout, cluster, options.efficiency, reference=reference)
    return document | {"kernel_rate": found_plan.kernel_rate} | _plan_document(found_plan, cluster)


def _layout_document(layout: "PlannedLayout") -> dict[str, Any]:
    return layout.model_dump(mode="json") | {"name": str(layout)}


def _plan_document(plan: "Plan", cluster: "Cluster") -> dict[str, Any]:
    from treering.plan.memory import USABLE_SHARE

    memory = asdict(plan.memory) | {
        "num_bytes": plan.memory.num_bytes,
        "share": plan.memory_share,
        "usable_bytes": USABLE_SHARE * cluster.device.memory_bytes,
    }
    return {
        "layout": _layout_document(plan.layout),
        "memory": memory,
        "first_step": asdict(plan.first),
        "full_step": asdict(plan.full),
        "days": plan.days,
    }


def print_cluster(document: dict[str, Any]) -> None:
    """Prints what `cluster_document` returns."""
    device, links = document["device"], document["interconnect"]
    console.print(
        "",
        f"cluster     {document['nodes']:,} nodes x {document['gpus_per_node']} {device['device']} = "
        f"{document['devices']:,} devices; peak {device['tflops']:g} TFLOP/s, dense bf16 ({device['source']})",
    )
    console.print(f"links       {links['source']}")
    _print_changes(document)
    reference = document["reference"]
    console.print(
        f"efficiency  MFU {document['efficiency']:.1%} at the full batch in {_layout_text(reference)}, as stated: "
        f"kernels then run at {document['kernel_rate']:.1%} of the peak"
    )
    console.print(
        "            This is a model, not a measurement; docs/planning.md compares it with measured trainings.", ""
    )
    if "layouts" in document:
        _print_layouts(document)
    else:
        _print_memory(document)
        _print_steps(document)


def _print_changes(document: dict[str, Any]) -> None:
    for number, change in enumerate(document["changes"]):
        name = "" if number else "changed"
        console.print(f"{name:<11} {change['path']} from {change['before']:,} to {change['after']:,}")
    if document["changes"]:
        layout = document["layout"]
        settings = " ".join(f"--set {change['set']}" for change in document["changes"])
        console.print(
            f"            so that {layout['name']} uses every device and every batch size is divisible by "
            f"micro_batch_size x data = {layout['micro_batch_size']} x {layout['data']}"
        )
        console.print(f"            this page is of the changed experiment: {settings}")


def _layout_text(layout: dict[str, Any]) -> str:
    every = f" every {layout['recompute_interval']} layers" if layout["recompute_interval"] > 1 else ""
    return (
        f"{layout['name']}, micro-batch {layout['micro_batch_size']}, "
        f"{'full' if layout['recompute'] else 'no'} recompute{every}"
    )


def _print_memory(document: dict[str, Any]) -> None:
    memory = document["memory"]
    console.print(f"memory      of a device in the {memory['stage']} stage, {memory['parameters']:,} parameters:")
    for part in memory["parts"]:
        console.print(f"            {part['name']:<11} {part['num_bytes'] / 1e9:6.1f} GB  {part['formula']}")
    console.print(
        f"            {'together':<11} {memory['num_bytes'] / 1e9:6.1f} GB  {memory['share']:.0%} of "
        f"{document['device']['memory_bytes'] / 1e9:.0f} GB; a plan may fill {memory['usable_bytes'] / 1e9:.0f} GB"
    )
    for source in dict.fromkeys(part["source"] for part in memory["parts"]):
        console.print(f"            {source}")
    console.print(
        "            s sequence, b micro-batch, h hidden, f feed-forward, a heads, V vocabulary, t tensor, d data, "
        "e bytes of an activation",
        "",
    )


def _print_steps(document: dict[str, Any]) -> None:
    columns = ("step", "batch", "micro-batches", "bubble", "seconds", "tokens/s", "MFU", "TFLOP/s", "with recompute")
    first, full = document["first_step"], document["full_step"]
    rows = [_step_row("full batch", full)]
    if first["batch_size"] != full["batch_size"]:
        rows.insert(0, _step_row("first", first))
    print_table(columns, rows, numbers=columns[1:])
    console.print("TFLOP/s of a device: model FLOPs, and with what recompute repeats")
    console.print("", f"time        {document['days']:.1f} days for all steps, each batch size at its own speed")


def _step_row(name: str, step: dict[str, Any]) -> list[str]:
    return [
        name,
        f"{step['batch_size']:,}",
        f"{step['micro_batches']:g}",
        f"{step['bubble']:.1%}",
        f"{step['step_s']:.4g}",
        f"{step['tokens_per_second']:,.0f}",
        f"{step['mfu']:.1%}",
        f"{step['tflops']:.1f}",
        f"{step['hardware_tflops']:.1f}",
    ]


def _print_layouts(document: dict[str, Any]) -> None:
    columns = ("TP x PP x DP", "micro-batch", "recompute", "memory", "bubble", "step", "MFU", "days")
    rows = [
        [
            each["layout"]["name"],
            str(each["layout"]["micro_batch_size"]),
            "full" if each["layout"]["recompute"] else "none",
            f"{each['memory']['num_bytes'] / 1e9:.1f} GB",
            f"{each['full_step']['bubble']:.1%}",
            f"{each['full_step']['step_s']:.4g} s",
            f"{each['full_step']['mfu']:.1%}",
            f"{each['days']:.1f}",
        ]
        for each in document["layouts"]
    ]
    fit, listed = document["layouts_that_fit"], len(document["layouts"])
    left_out = f"{listed:,} of {fit:,}, " if listed < fit else ""
    console.print(f"{fit:,} layouts fit; {left_out}the fastest schedules:")
    print_table(columns, rows, numbers=tuple(column for column in columns if column != "recompute"))
