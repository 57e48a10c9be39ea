"""`treering record`: any command as an attempt of a run."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import project

ExperimentOption = Annotated[
    str | None,
    typer.Option("--experiment", metavar="NAME", help="Name that groups runs; default the command's script."),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="REGEX",
        help="Finds metrics in a line: a group named step, and one for each metric. Default: lines of Megatron-LM.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A YAML or JSON file with the command's settings, for the record."),
]


def record(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command, after `--`.")],
    experiment: ExperimentOption = None,
    metrics: MetricsOption = None,
    config: ConfigOption = None,
) -> None:
    r"""Run any command as an attempt of a run: record its code, devices, output, metrics and end.

    The run is the experiment with the command and the settings of `--config`: the same call after a crash is a new
    attempt of the same run. Metrics are read from what the command prints. The exit code is that of the command, or
    128 + N where signal N ended it.

    Exit codes:
        2: the command cannot be started

    Examples:
        treering record -- torchrun --nproc-per-node 8 pretrain_gpt.py
        treering record --metrics 'step (?P<step>\d+) (?P<loss>\S+)' -- ./train
    """
    from treering.record.command import record_command
    from treering.record.printed_metrics import read_megatron, reader_of

    settings = None
    if config is not None:
        from treering.config.yaml_file import read_yaml

        settings = read_yaml(config, "a mapping of settings").values
    script = next((word for word in command if word.endswith(".py")), command[0])
    code = record_command(
        command,
        experiment or Path(script).stem,
        config=settings,
        reader=reader_of(metrics) if metrics else read_megatron,
        folder=project().runs,
    )
    raise typer.Exit(code)
