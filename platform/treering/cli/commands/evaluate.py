"""`treering evaluate`: becomes the trainer, which scores every checkpoint of a run."""

import os
from typing import Annotated

import typer

from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, SetOption, project
from treering.cli.trainer import become_trainer

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


def evaluate(
    config: ConfigArgument = DEFAULT_CONFIG,
    overrides: SetOption = None,
    run: RunOption = None,
    no_publish: NoPublishOption = False,
    json: JsonOption = False,
) -> None:
    """Score every checkpoint of a run on the held-out tasks and corpora; existing scores are kept.

    The command writes `runs/<id>/evaluations/`, `metrics/evaluate.json` and `plots/evaluate.csv`.

    Exit codes:
        3: a checkpoint or a record does not hold
        5: the scores cannot be computed or written

    Examples:
        treering evaluate experiments/demo.yaml
        treering evaluate experiments/demo.yaml --run 0123
    """
    from treering.ship.launch import start_companion

    start_companion(project(), os.getpid())  # MLflow gets each checkpoint's scores as they are written
    options = {"--set": overrides, "--run": run, "--no-publish": no_publish, "--json": json}
    become_trainer("evaluate", options, str(config))
