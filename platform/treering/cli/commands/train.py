"""`treering train`: becomes the trainer, which trains the run of an experiment."""

import os
from pathlib import Path
from typing import Annotated

import typer

from treering.cli.determinism import check_repeats
from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, SetOption, project
from treering.cli.sweep import SweepOption, print_plan
from treering.cli.trainer import Value, become_trainer
from treering.errors import UserError

ContinueOption = Annotated[
    bool,
    typer.Option(
        "--continue-changed",
        help="Continue from the newest checkpoint although code, environment or layout changed, and record the change. "
        "Without this option, an unfinished run starts over.",
    ),
]
StartOverOption = Annotated[
    bool,
    typer.Option(
        "--start-over",
        help="Start over, although the run is finished or could continue. Its checkpoints move to superseded-*/.",
    ),
]
NoPublishOption = Annotated[
    bool,
    typer.Option(
        "--no-publish",
        help="Train outside the pipeline: resolve the blend now; published/, metrics/ and plots/ stay as they are.",
    ),
]
TimeLimitOption = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        help="Stop after this time with a checkpoint and exit code 75; in seconds, or like 23h30m.",
    ),
]
StopAfterOption = Annotated[
    int | None,
    typer.Option(
        "--stop-after", min=1, metavar="STEP", help="Stop after this step with a checkpoint and exit code 75."
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="With --sweep: only print what would be trained.")]
CheckOption = Annotated[
    bool,
    typer.Option(
        "--check-determinism", help="Only train the first two steps twice, in a scratch folder, and compare every bit."
    ),
]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", metavar="DIR", help="The folder of the runs; default: runs/.")
]


def train(  # noqa: PLR0917 - one argument an option
    config: ConfigArgument = DEFAULT_CONFIG,
    overrides: SetOption = None,
    continue_changed: ContinueOption = False,
    start_over: StartOverOption = False,
    no_publish: NoPublishOption = False,
    runs: RunsOption = None,
    time_limit: TimeLimitOption = None,
    stop_after: StopAfterOption = None,
    sweep: SweepOption = None,
    dry_run: DryRunOption = False,
    check_determinism: CheckOption = False,
    json: JsonOption = False,
) -> None:
    """Train the run of an experiment, or continue it from its newest checkpoint.

    The command needs `data/blend.json` and the corpora. It writes `runs/<id>/` and, at the end, the published
    checkpoint with its rings. Ctrl-C, SIGTERM, SIGUSR1 and the time limit stop the training after the current step,
    with a checkpoint; the same command continues. A finished run stays as it is, whatever changed, unless
    `--start-over` is given.

    The section `hooks` of the config names hooks of installed packages; docs/trainer.md shows an example.

    With `--sweep`, the file names the experiment and a grid of values. The plan is printed, then the runs are trained
    one after another, as with `--no-publish`. Finished runs are skipped. The same command goes on after a stop.

    `deterministic: true` in the config takes only algorithms that repeat. `--check-determinism` shows whether the
    training repeats here: it trains two steps twice, and names the first number or weight that differs.

    Exit codes:
        0: the training is finished; with `--sweep`, all are
        3: evidence is missing or does not hold
        5: the training failed
        6: with `--check-determinism`, the two trainings differ
        75: start the same command again: it was stopped or killed, or another process trains this run
        130: Ctrl-C

    Examples:
        treering train experiments/demo.yaml
        treering train experiments/demo.yaml --set parallel.tensor=2 --time-limit 23h
        treering train experiments/demo.yaml --check-determinism
        treering train --sweep experiments/ablations/learning_rate.yaml --dry-run

    Raises:
        UserError: options that do not go together were given.
    """
    from treering.collect.launcher import rank_variables
    from treering.config.duration import parse_duration
    from treering.ship.launch import start_companion

    if continue_changed and start_over:
        raise UserError("train: found both --continue-changed and --start-over, expected one of them")
    if check_determinism:
        others = (continue_changed, start_over, no_publish, runs, time_limit, stop_after, sweep, dry_run)
        check_repeats(config, overrides or [], alone=not any(others), json=json)
        return
    if sweep is None and (dry_run or json):
        raise UserError("train: found --dry-run or --json without --sweep, expected --sweep SWEEP beside it")
    options: dict[str, Value] = {
        "--set": overrides,
        "--continue-changed": continue_changed,
        "--start-over": start_over,
        "--no-publish": no_publish,
        "--time-limit": None if time_limit is None else parse_duration(time_limit),
        "--stop-after": stop_after,
        "--runs": runs,
    }
    rank = {**os.environ, **rank_variables(os.environ)}.get("RANK", "0")
    if sweep is not None:
        given = {"CONFIG": config != DEFAULT_CONFIG, "--start-over": start_over, "--stop-after": stop_after is not None}
        if found := [name for name, value in given.items() if value]:
            raise UserError(f"train --sweep: found {found[0]}, expected the sweep's file alone to say what is trained")
        if "RANK" in os.environ:
            raise UserError(
                "train --sweep: found RANK, which an outer launcher such as torchrun sets, expected one process; "
                "`treering launch --sweep` writes a batch job for each run"
            )
        print_plan(sweep, overrides, runs, json=json, dry_run=dry_run)
        if dry_run:
            return
        del options["--no-publish"], options["--start-over"], options["--stop-after"]
        options["--json"] = json
    if runs is None and rank == "0":
        start_companion(project(), os.getpid())  # MLflow follows the run log; the training never waits for MLflow
    become_trainer("launch" if sweep is None else "launch.sweep", options, str(sweep or config))
