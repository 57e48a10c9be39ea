"""`treering launch`: starts a training on several nodes, over a hostfile or as a batch job of Slurm."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from treering.cli.commands.train import ContinueOption, NoPublishOption, RunsOption, TimeLimitOption
from treering.cli.launchers import launch_over_hosts, print_batch_job, read_hostfile, write_batch_job
from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, SetOption, project
from treering.cli.output import print_json
from treering.cli.sweep import SweepOption, print_plan
from treering.cli.trainer import Value, option_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treering.config.resolved import Resolved
    from treering.launch.start import Start
    from treering.project import Project

HostfileOption = Annotated[
    Path | None,
    typer.Option("--hostfile", metavar="FILE", help="Start on these hosts now: lines like `dgx001 slots=8`."),
]
SlurmOption = Annotated[bool, typer.Option("--slurm", help="Write a batch script for Slurm.")]
LauncherOption = Annotated[
    Literal["pdsh", "openmpi"],
    typer.Option("--launcher", metavar="NAME", help="How DeepSpeed reaches the hosts: pdsh or openmpi."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST", help="The address at which rank 0 listens; default: the first host of the hostfile."),
]
NodesOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Slurm: number of nodes.")]
GpusOption = Annotated[
    int, typer.Option(metavar="N", min=0, help="Slurm: GPUs of a node, with one rank each; 0 trains on CPUs.")
]
TasksOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Slurm: ranks of a node without GPUs.")]
TimeOption = Annotated[str, typer.Option("--time", metavar="TIME", help="Slurm: the time limit of the job.")]
WarningOption = Annotated[
    str, typer.Option("--warning", metavar="TIME", help="Slurm: save a checkpoint this long before the time limit.")
]
PartitionOption = Annotated[str | None, typer.Option(metavar="NAME", help="Slurm: the partition.")]
AccountOption = Annotated[str | None, typer.Option(metavar="NAME", help="Slurm: the account.")]
ContainerOption = Annotated[
    str | None, typer.Option(metavar="IMAGE", help="Slurm: the container image, for the pyxis plug-in of srun.")
]
SbatchOption = Annotated[
    list[str] | None, typer.Option("--sbatch", metavar="OPTION", help="Slurm: a further option of sbatch; repeatable.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Slurm: also write the script to this file.")
]
SubmitOption = Annotated[bool, typer.Option("--submit", help="Slurm: submit the script with sbatch.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Check that the model fits this GPU: A100 40GB, A100 80GB, H100 80GB or H200 141GB."
    ),
]
PythonOption = Annotated[
    str,
    typer.Option(
        metavar="PATH", help="The Python with the trainer, at the same path on every node.", show_default="this one"
    ),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only check and print; nothing is written or started.")]


def launch(
    config: ConfigArgument = DEFAULT_CONFIG,
    *,
    hostfile: HostfileOption = None,
    slurm: SlurmOption = False,
    nodes: NodesOption = None,
    gpus_per_node: GpusOption = 8,
    tasks_per_node: TasksOption = None,
    time: TimeOption = "24h",
    warning: WarningOption = "10m",
    partition: PartitionOption = None,
    account: AccountOption = None,
    container: ContainerOption = None,
    sbatch: SbatchOption = None,
    output: OutputOption = None,
    submit: SubmitOption = False,
    launcher: LauncherOption = "pdsh",
    master_address: AddressOption = None,
    device: DeviceOption = None,
    python: PythonOption = sys.executable,
    overrides: SetOption = None,
    continue_changed: ContinueOption = False,
    no_publish: NoPublishOption = False,
    runs: RunsOption = None,
    time_limit: TimeLimitOption = None,
    sweep: SweepOption = None,
    dry_run: DryOption = False,
    json: JsonOption = False,
) -> None:
    """Start a training on several nodes: over a hostfile, or as a batch job of Slurm.

    Layout, batch schedule and number of ranks are checked before anything starts; with `--device`, the memory too. The
    hostfile or the script is kept in `runs/<id>/launch/`, and every attempt that it starts records its text.

    With `--hostfile`, the command becomes DeepSpeed's launcher and has its exit code. With `--slurm`, it prints the
    path of the script. The job of that script saves a checkpoint before its time limit, and requeues itself. With
    `--slurm --sweep`, each run of the sweep that is not finished gets a job; a run that is training gets none. With
    `--submit`, a run whose job is in the queue already gets no other one.

    Exit codes:
        0: the training is finished, or the script is written
        2: the usage, the config or a file is wrong, or the layout does not fit the nodes
        75: start the same command again (`--hostfile`)

    Examples:
        treering launch experiments/demo.yaml --hostfile hosts --dry-run
        treering launch experiments/demo.yaml --slurm --nodes 2 --time 4h --dry-run
        treering launch --slurm --nodes 1 --sweep sweep.yaml --submit
    """
    from treering.config.duration import parse_duration

    of_slurm = {
        "--nodes": nodes, "--tasks-per-node": tasks_per_node, "--partition": partition, "--account": account,
        "--container": container, "--sbatch": sbatch, "--output": output, "--submit": submit or None,
    }  # fmt: skip
    of_hosts = {"--master-address": master_address, "--time-limit": time_limit}
    _check_usage(of_slurm, of_hosts, slurm=slurm, hosts=hostfile is not None)
    if sweep is not None:
        _check_sweep({"CONFIG": config != DEFAULT_CONFIG, "--hostfile": hostfile, "--output": output})
    here = project()
    options: dict[str, Value] = {
        "--set": overrides, "--continue-changed": continue_changed, "--no-publish": no_publish, "--runs": runs,
    }  # fmt: skip
    start = _Starts(here, (runs or here.runs).resolve(), python)
    if hostfile is not None:
        resolved = _resolve(config, here, overrides or [], runs, no_publish=no_publish, dry_run=dry_run)
        text, hosts = read_hostfile(hostfile)
        layout = _check_layout(str(config), resolved, len(hosts), hosts[0].slots, device)
        options["--time-limit"] = None if time_limit is None else parse_duration(time_limit)
        begin = start(config, resolved, layout, options)
        launch_over_hosts(begin, text, hosts, launcher, master_address, dry_run=dry_run, json=json)
        return
    from treering.launch.slurm import Job, render

    nodes, ranks = _ranks(nodes, gpus_per_node, tasks_per_node)
    job = Job(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tasks_per_node=ranks,
        time_s=parse_duration(time),
        warning_s=parse_duration(warning),
        container=container,
        options=(*option_words({"--partition": partition, "--account": account}), *(sbatch or ())),
    )
    if sweep is not None:
        plan = print_plan(sweep, overrides, runs, json=json, dry_run=False)
        waiting = [run for run in plan.left if run.state != "running"]
        starts = [
            start(
                plan.experiment,
                run.resolved,
                _check_layout(str(sweep), run.resolved, nodes, ranks, device),
                {**options, "--set": list(run.overrides), "--no-publish": True},
            )
            for run in waiting
        ]
        jobs = [write_batch_job(each, render(each, job), None, submit=submit, dry_run=dry_run) for each in starts]
        if json:
            print_json({"runs": jobs})
        elif not dry_run:
            for each in jobs:
                print_batch_job(each, dry_run=False)
        return
    resolved = _resolve(config, here, overrides or [], runs, no_publish=no_publish, dry_run=dry_run)
    begin = start(config, resolved, _check_layout(str(config), resolved, nodes, ranks, device), options)
    text = render(begin, job)
    document = write_batch_job(begin, text, output, submit=submit, dry_run=dry_run)
    if json:
        print_json(document)
    else:
        print_batch_job(document, dry_run=dry_run)


class _Starts:
    """Makes what is started of a run."""

    def __init__(self, here: "Project", runs: Path, python: str) -> None:
        self._here, self._runs, self._python = here, runs, python

    def __call__(self, config: Path, resolved: "Resolved", layout: str, options: "Mapping[str, Value]") -> "Start":
        from treering.launch.start import Start

        folder = self._runs / resolved.run_id
        return Start(self._here.root.resolve(), config, folder, layout, self._python, tuple(option_words(options)))


def _check_sweep(others: "Mapping[str, object]") -> None:
    """Refuses what a sweep has no use for.

    Raises:
        UserError: names it.
    """
    from treering.errors import UserError

    if found := [name for name, value in others.items() if value]:
        raise UserError(
            f"launch --sweep: found {found[0]}, expected --slurm and the sweep's file, which names the experiment; "
            "`treering train --sweep` trains on this machine"
        )


def _check_usage(
    of_slurm: "Mapping[str, object]", of_hosts: "Mapping[str, object]", *, slurm: bool, hosts: bool
) -> None:
    """Checks that the options fit together.

    Args:
        of_slurm: the options that only `--slurm` uses.
        of_hosts: the options that only `--hostfile` uses.
        slurm: whether `--slurm` was given.
        hosts: whether `--hostfile` was given.

    Raises:
        UserError: both or neither of `--hostfile` and `--slurm` were given, or an option that is not used.
    """
    from treering.errors import UserError

    if slurm == hosts:
        raise UserError(
            f"launch: found {'both' if slurm else 'neither'} --hostfile and --slurm, expected one of them; "
            "`treering train` trains on this machine"
        )
    unused = of_hosts if slurm else of_slurm
    found = [name for name, value in unused.items() if value is not None]
    if found:
        derived = " (the script derives the time limit from --time)" if slurm and "--time-limit" in found else ""
        raise UserError(
            f"launch: found {', '.join(found)}, which {'--slurm' if slurm else '--hostfile'} does not use; leave it "
            f"out{derived}"
        )


def _ranks(nodes: int | None, gpus_per_node: int, tasks_per_node: int | None) -> tuple[int, int]:
    """The number of nodes of a batch job, and the number of ranks on each.

    Raises:
        UserError: a number is missing, or a node has more or fewer ranks than GPUs.
    """
    from treering.errors import UserError

    if nodes is None:
        raise UserError("launch --slurm: found no --nodes, expected the number of nodes")
    if gpus_per_node and tasks_per_node not in (None, gpus_per_node):
        raise UserError(
            f"--tasks-per-node: found {tasks_per_node}, expected {gpus_per_node}, one rank a GPU; leave it out"
        )
    if not gpus_per_node and tasks_per_node is None:
        raise UserError(
            "--gpus-per-node 0: found no --tasks-per-node, expected the number of ranks on a node without GPUs"
        )
    return nodes, gpus_per_node or tasks_per_node or 1


def _resolve(
    config: Path, here: "Project", overrides: list[str], runs: Path | None, *, no_publish: bool, dry_run: bool
) -> "Resolved":
    """Resolves the config with the blend that its ranks will read; a dry run also accepts a declared blend.

    Raises:
        UserError: the blend has corpora without content, and this is not a dry run.
    """
    from treering.cli.commands.plan import choose_blend
    from treering.config.load import load_experiment
    from treering.config.resolved_blend import ResolvedBlend
    from treering.data.blend.continuation import resolve_run
    from treering.data.blend.corpora import resolve_blend
    from treering.errors import UserError

    experiment = load_experiment(config, overrides)
    if dry_run and not no_publish:
        blend, _source = choose_blend(experiment, here)
    else:
        blend = resolve_blend(experiment, here) if no_publish else ResolvedBlend.read(here.blend)
    resolved = resolve_run(experiment, blend, str(config), tuple(overrides), runs=runs or here.runs)
    if blend.declared and not dry_run:
        raise UserError(
            f"{config}: found corpora declared without content ({', '.join(blend.declared[:3])}…), expected corpora "
            "with a digest; `treering tokenize` makes them, `--dry-run` shows what would start"
        )
    return resolved


def _check_layout(source: str, resolved: "Resolved", nodes: int, per_node: int, device: str | None) -> str:
    """Checks that the experiment can run on these ranks; returns the layout as text.

    Raises:
        ConfigError: layout, batch size or memory do not fit.
    """
    from treering.plan.fit import check_device_memory
    from treering.plan.layout import Cluster, PlannedLayout, Workload, check_world

    workload = Workload.of(resolved)
    layout = PlannedLayout.of(resolved.attempt.parallel, nodes * per_node)
    check_world(source, workload, layout, nodes, per_node)
    if device is not None:
        planned = Cluster.of(device, nodes, per_node).device
        check_device_memory(source, workload, layout, device=planned.device, memory_bytes=planned.memory_bytes)
    return str(layout)
