"""`treering launch`: a training on several nodes, over a hostfile or as a batch job of Slurm."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from treering.cli.commands.train import ContinueOption, NoPublishOption, RunsOption, TimeLimitOption
from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, SetOption, project
from treering.cli.output import console, print_json
from treering.files import read_text, write_durably

if TYPE_CHECKING:
    from treering.config.resolve import Resolved
    from treering.launch.hostfile import Host
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
    dry_run: DryOption = False,
    json: JsonOption = False,
) -> None:
    """Start a training on several nodes: over a hostfile, or as a batch job of Slurm.

    Layout, batch schedule and number of ranks are checked before anything starts; with `--device`, the memory too. The
    hostfile or the script is kept in `runs/<id>/launch/`, and every attempt that it starts records its text.

    With `--hostfile`, the command becomes DeepSpeed's launcher and has its exit code. With `--slurm`, it prints the
    path of the script. The job of that script saves a checkpoint before its time limit, and requeues itself.

    Exit codes:
        0: the training is finished, or the script is written
        2: the usage, the config or a file is wrong, or the layout does not fit the nodes
        75: start the same command again (`--hostfile`)

    Examples:
        treering launch experiments/demo.yaml --hostfile hosts --dry-run
        treering launch experiments/demo.yaml --slurm --nodes 2 --time 4h --dry-run
    """
    from treering.config.duration import parse_duration
    from treering.errors import UserError
    from treering.launch.start import Start

    if slurm == (hostfile is not None):
        raise UserError(
            f"launch: found {'both' if slurm else 'neither'} --hostfile and --slurm, expected one of them; "
            "`treering train` trains on this machine"
        )
    if hostfile is not None:
        given = {
            "--nodes": nodes, "--tasks-per-node": tasks_per_node, "--partition": partition, "--account": account,
            "--container": container, "--sbatch": sbatch, "--output": output, "--submit": submit or None,
        }  # fmt: skip
    else:
        given = {"--master-address": master_address, "--time-limit": time_limit}
    idle = [name for name, value in given.items() if value is not None]
    if idle:
        raise UserError(
            f"launch: found {', '.join(idle)}, which {'--slurm' if slurm else '--hostfile'} has no use for; expected "
            f"it left out{' (the script derives the time limit from --time)' if time_limit and slurm else ''}"
        )
    here = project()
    resolved = _resolve(config, here, overrides or [], runs, no_publish=no_publish, dry_run=dry_run)
    arguments = [f"--set={override}" for override in overrides or ()]
    arguments += ["--continue-changed"] if continue_changed else []
    arguments += ["--no-publish"] if no_publish else []
    arguments += [f"--runs={runs}"] if runs is not None else []
    root, folder = here.root.resolve(), (runs or here.runs).resolve() / resolved.run_id
    if hostfile is not None:
        from treering.launch.hostfile import parse_hostfile

        try:
            text = read_text(hostfile)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{hostfile}: found no hostfile to read ({error}), expected lines like `dgx001 slots=8`"
            ) from None
        hosts = parse_hostfile(text, str(hostfile))
        layout = _check(str(config), resolved, len(hosts), hosts[0].slots, device)
        arguments += [f"--time-limit={parse_duration(time_limit)}"] if time_limit is not None else []
        start = Start(root, config, folder, layout, python, tuple(arguments))
        _over_hosts(start, text, hosts, launcher, master_address, dry_run=dry_run, json=json)
        return
    from treering.launch.slurm import Job, render

    if nodes is None:
        raise UserError("launch --slurm: found no --nodes, expected how many the job takes")
    if gpus_per_node and tasks_per_node not in (None, gpus_per_node):
        raise UserError(
            f"--tasks-per-node: found {tasks_per_node}, expected {gpus_per_node}, one rank a GPU; leave it out"
        )
    if not gpus_per_node and tasks_per_node is None:
        raise UserError("--gpus-per-node 0: found no --tasks-per-node, expected the ranks of a node without GPUs")
    options = [f"--partition={partition}"] if partition is not None else []
    options += [f"--account={account}"] if account is not None else []
    job = Job(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tasks_per_node=gpus_per_node or tasks_per_node or 1,
        time_s=parse_duration(time),
        warning_s=parse_duration(warning),
        container=container,
        options=(*options, *(sbatch or ())),
    )
    layout = _check(str(config), resolved, job.nodes, job.tasks_per_node, device)
    start = Start(root, config, folder, layout, python, tuple(arguments))
    _as_batch_job(start, render(start, job), output, submit=submit, dry_run=dry_run, json=json)


def _resolve(
    config: Path, here: "Project", overrides: list[str], runs: Path | None, *, no_publish: bool, dry_run: bool
) -> "Resolved":
    """The config with the blend that its ranks will read; a plan's declared one will do for looking only."""
    from treering.cli.commands.plan import choose_blend
    from treering.config.load import load_experiment
    from treering.config.resolve import ResolvedBlend
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
            "with a digest, to train on; `--dry-run` shows what would be started"
        )
    return resolved


def _check(source: str, resolved: "Resolved", nodes: int, per_node: int, device: str | None) -> str:
    """Refuses what cannot run on so many ranks; the layout in words."""
    from treering.plan.fit import check_device_memory
    from treering.plan.layout import Cluster, PlannedLayout, Workload, check_world

    workload = Workload.of(resolved)
    layout = PlannedLayout.of(resolved.attempt.parallel, nodes * per_node)
    check_world(source, workload, layout, nodes, per_node)
    if device is not None:
        planned = Cluster.of(device, nodes, per_node).device
        check_device_memory(source, workload, layout, device=planned.device, memory_bytes=planned.memory_bytes)
    return str(layout)


def _over_hosts(
    start: "Start",
    text: str,
    hosts: "tuple[Host, ...]",
    launcher: Literal["pdsh", "openmpi"],
    address: str | None,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    import shlex

    from treering.launch.hostfile import check_program, command, meeting_address, shared_variables
    from treering.launch.start import keep, kept

    path = kept(start, text, "hostfile")
    shared = shared_variables(os.environ, path, address or meeting_address(hosts))
    words = command(start, hosts, path, launcher, address)
    document = {
        "run": start.run.name, "layout": start.layout, "hosts": {host.name: host.slots for host in hosts},
        "hostfile": str(path), "command": words, "variables": shared,
    }  # fmt: skip
    if dry_run:
        print_json(document) if json else sys.stdout.write(f"{shlex.join(words)}\n")
        return
    check_program(start.python, hosts, launcher)
    keep(start, text, "hostfile")
    names = keep(start, "".join(f"{name}={value}\n" for name, value in shared.items()), "env")
    print_json(document) if json else console.print(f"run {start.run.name}: {start.layout} on {len(hosts)} hosts")
    sys.stdout.flush()
    os.execvpe(words[0], words, {**os.environ, **shared, "DS_ENV_FILE": str(names)})  # noqa: S606 - becomes the launcher


def _as_batch_job(start: "Start", text: str, output: Path | None, *, submit: bool, dry_run: bool, json: bool) -> None:
    from treering.errors import UserError
    from treering.launch.start import keep, kept

    path = kept(start, text, "sbatch")
    document = {"run": start.run.name, "layout": start.layout, "script": str(path), "text": text, "job": None}
    if dry_run:
        print_json(document) if json else sys.stdout.write(text)
        return
    keep(start, text, "sbatch")
    if output is not None:
        try:
            write_durably(output, text)
        except OSError as error:
            raise UserError(f"--output {output}: found {error.strerror}, expected a file to write") from None
    if submit:
        document["job"] = _submit(path)
    if json:
        print_json(document)
        return
    console.print(f"run {start.run.name}: {start.layout} (TP x PP x DP)", f"script {path}")
    console.print(f"job {document['job']}" if submit else f"submit it: sbatch {path}")


def _submit(script: Path) -> str:
    from treering.errors import UserError

    try:
        done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("--submit: found no sbatch in PATH, expected a login node of a Slurm cluster") from None
    if done.returncode:
        raise UserError(f"sbatch refused {script}: {done.stderr.strip()}; change the options, or edit and submit it")
    return done.stdout.strip().partition(";")[0]
