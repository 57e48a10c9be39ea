"""`treering evaluate`: becomes the trainer, which scores the checkpoints of a run."""

import os
from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import DEFAULT_CONFIG, JsonOption, SetOption, only_config, project
from treering.cli.trainer import Value, become_trainer

TargetArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG|RUN",
        callback=only_config,
        help="An experiment's YAML file, or a run: a prefix of its id, or its folder; default: the only experiment.",
    ),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Of a RUN, every kept checkpoint without scores, not only the newest.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(metavar="DEVICE", help="Compute on cpu, cuda or cuda:N; default: the first GPU, else cpu."),
]
RunOption = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="Evaluate this run instead of the config's; metrics/ stays as it is."),
]
NoPublishOption = Annotated[
    bool,
    typer.Option(
        "--no-publish",
        help="Evaluate outside the pipeline: resolve the blend now; metrics/ and plots/ stay as they are.",
    ),
]


def evaluate(  # noqa: PLR0917 - one argument an option
    target: TargetArgument = DEFAULT_CONFIG,
    overrides: SetOption = None,
    all_checkpoints: AllOption = False,
    device: DeviceOption = None,
    run: RunOption = None,
    no_publish: NoPublishOption = False,
    json: JsonOption = False,
) -> None:
    """Score checkpoints of a run on the held-out tasks and corpora; existing scores are kept.

    Of a CONFIG, every checkpoint of its run is scored. Of a RUN, the newest one, or all with `--all`; the settings are
    those of the file in `experiments/` with the run's experiment. After a stop, the same command goes on where it was.

    The command writes `runs/<id>/evaluations/`, and for a CONFIG `metrics/evaluate.json` and `plots/evaluate.csv`.

    Exit codes:
        3: a checkpoint or a record does not hold
        5: the scores cannot be computed or written

    Examples:
        treering evaluate experiments/demo.yaml
        treering evaluate 0123 --all --device cpu
        treering evaluate experiments/demo.yaml --run 0123
    """
    from treering.ship.launch import start_companion

    start_companion(project(), os.getpid())  # MLflow gets each checkpoint's scores as they are written
    options: dict[str, Value] = {
        "--set": overrides,
        "--all": all_checkpoints,
        "--device": device,
        "--run": run,
        "--no-publish": no_publish,
        "--json": json,
    }
    become_trainer("evaluate", options, str(target))
