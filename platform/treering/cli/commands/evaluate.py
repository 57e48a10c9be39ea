"""`treering evaluate`: scores of every checkpoint, in the trainer's own process."""

import os
import sys
from typing import Annotated

import typer

from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, SetOption, project

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

    arguments = [sys.executable, "-m", "treering_trainer.evaluate", str(config)]
    arguments += [f"--set={override}" for override in overrides or ()]
    arguments += [f"--run={run}"] if run is not None else []
    arguments += ["--no-publish"] if no_publish else []
    arguments += ["--json"] if json else []
    start_companion(project(), os.getpid())  # MLflow gets each checkpoint's scores as they are written
    os.execv(sys.executable, arguments)  # noqa: S606 - becomes the trainer, which this package never imports
