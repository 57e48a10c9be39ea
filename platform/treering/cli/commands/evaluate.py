"""`treering evaluate`: scores of every checkpoint, in the trainer's own process."""

import os
import sys
from typing import Annotated

import typer

from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, SetOption, project

RunOption = Annotated[
    str | None,
    typer.Option("--run", help="Evaluate this run (id or prefix) instead of the config's; metrics stay as they are."),
]
NoPublishOption = Annotated[
    bool,
    typer.Option("--no-publish", help="Outside the pipeline: resolve the blend here; metrics/ and plots/ stay."),
]


def evaluate(
    config: ConfigArgument = DEFAULT_CONFIG,
    overrides: SetOption = None,
    run: RunOption = None,
    no_publish: NoPublishOption = False,
    json: JsonOption = False,
) -> None:
    """Score every checkpoint of a run on the held-out tasks and corpora; what is scored already is kept.

    Writes `runs/<id>/evaluations/`, `metrics/evaluate.json` and `plots/evaluate.csv`.

    Example: `treering evaluate experiments/demo.yaml`
    """
    from treering.ship.launch import start_companion

    arguments = [sys.executable, "-m", "treering_trainer.evaluate", str(config)]
    arguments += [f"--set={override}" for override in overrides or ()]
    arguments += [f"--run={run}"] if run is not None else []
    arguments += ["--no-publish"] if no_publish else []
    arguments += ["--json"] if json else []
    start_companion(project(), os.getpid())  # MLflow gets each checkpoint's scores as they are written
    os.execv(sys.executable, arguments)  # noqa: S606 - becomes the trainer, which this package never imports
