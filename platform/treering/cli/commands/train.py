"""`treering train`: trains the run of an experiment, in the trainer's own process."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, SetOption, project
from treering.errors import UserError

ContinueOption = Annotated[
    bool,
    typer.Option(
        "--continue-changed",
        help="Go on from the newest checkpoint although code, environment or layout changed (recorded). Without it, an "
        "unfinished run starts over, and a finished run stays as it is.",
    ),
]
StartOverOption = Annotated[
    bool,
    typer.Option(
        "--start-over",
        help="Begin again, although the run is finished or could go on. Its checkpoints move to superseded-*/.",
    ),
]
NoPublishOption = Annotated[
    bool,
    typer.Option(
        "--no-publish",
        help="Train outside the pipeline: resolve the blend here; published/, metrics/ and plots/ stay as they are.",
    ),
]
TimeLimitOption = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        help="Stop after this time as a signal would: checkpoint, then exit code 75. Seconds, or such as 23h30m.",
    ),
]
StopAfterOption = Annotated[
    int | None,
    typer.Option("--stop-after", min=1, metavar="STEP", help="Stop after this step as a signal would, exit code 75."),
]
RunsOption = Annotated[Path | None, typer.Option("--runs", help="Folder of run directories; default: runs/.")]


def train(  # noqa: PLR0917 - one argument an option
    config: ConfigArgument = DEFAULT_CONFIG,
    overrides: SetOption = None,
    continue_changed: ContinueOption = False,
    start_over: StartOverOption = False,
    no_publish: NoPublishOption = False,
    runs: RunsOption = None,
    time_limit: TimeLimitOption = None,
    stop_after: StopAfterOption = None,
) -> None:
    """Train the run of an experiment, or go on with it from its newest checkpoint.

    Needs `data/blend.json` and the corpora; writes `runs/<id>/` and, in the end, the published checkpoint with its
    rings. Ctrl-C, SIGTERM, SIGUSR1 or the time limit stop it after the step under way with a checkpoint; the same
    command goes on. A finished run stays finished, whatever changed, until `--start-over`. Exit codes: 0 finished,
    2 config, 3 evidence does not hold, 5 training failed, 75 start it again (stopped, killed, or another process holds
    the run), 130 interrupted by Ctrl-C.

    Section `hooks` of the config names hooks of installed packages; docs/trainer.md shows one.

    Example: `treering train experiments/demo.yaml --set parallel.tensor=2`
    """
    from treering.collect.launcher import rank_variables
    from treering.config.duration import parse_duration
    from treering.ship.launch import start_companion

    if continue_changed and start_over:
        raise UserError("train: found both --continue-changed and --start-over, expected one of them")
    arguments = [sys.executable, "-m", "treering_trainer.launch", str(config)]
    arguments += [f"--set={override}" for override in overrides or ()]
    arguments += ["--continue-changed"] if continue_changed else []
    arguments += ["--start-over"] if start_over else []
    arguments += ["--no-publish"] if no_publish else []
    if time_limit is not None:
        arguments += [f"--time-limit={parse_duration(time_limit)}"]
    arguments += [f"--stop-after={stop_after}"] if stop_after is not None else []
    arguments += [f"--runs={runs}"] if runs is not None else []
    rank = {**os.environ, **rank_variables(os.environ)}.get("RANK", "0")
    if runs is None and rank == "0":
        start_companion(project(), os.getpid())  # MLflow follows the run log; training never waits for it
    os.execv(sys.executable, arguments)  # noqa: S606 - becomes the trainer, which this package never imports
