"""Starts training: `python -m treering_trainer.launch CONFIG`, which is what `treering train` runs.

    config + blend → resolved → lock → where does this attempt begin? → one process a rank → published checkpoint

Under an outer launcher (torchrun, DeepSpeed's, Slurm) RANK is set, and this process trains as that rank.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

# Before torch starts its threads: a process with threads must not fork. Ranks set their own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from treering.collect.determinism import DETERMINISTIC_VARIABLES
from treering.collect.launcher import EXIT_VARIABLE, rank_variables
from treering.config.duration import parse_duration
from treering.config.load import load_experiment
from treering.config.resolved import Resolved
from treering.config.resolved_blend import ResolvedBlend
from treering.data.blend.continuation import resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.ending import run_command
from treering.errors import ConfigError, TrainingError
from treering.foreign import say
from treering.project import Project
from treering_trainer.launch.beside import Follow
from treering_trainer.launch.job import Mode, Until
from treering_trainer.launch.start import STARTED_VARIABLE, train, train_as_rank
from treering_trainer.launch.target import Target
from treering_trainer.monitor.installed_hooks import make_hooks


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and trains.

    Returns:
        0 finished; 2 config, 3 evidence, 5 training failed; 75 start again, 130 interrupted.
    """
    code = _main(arguments)
    if code and EXIT_VARIABLE in os.environ:
        with suppress(OSError):  # without the file, the batch script takes the end for a crash
            Path(f"{os.environ[EXIT_VARIABLE]}-{code}").touch()
    return code


def _main(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="treering train", description="Train a run, or continue it.")
    parser.add_argument("config", type=Path, help="the experiment's YAML file, or a run's resolved.json")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE", help="another value of the config"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--continue-changed",
        dest="mode",
        action="store_const",
        const=Mode.CONTINUE_CHANGED,
        default=Mode.RESUME,
        help="continue from the newest checkpoint although code, environment or layout changed",
    )
    mode.add_argument(
        "--start-over",
        dest="mode",
        action="store_const",
        const=Mode.START_OVER,
        help="train from the first step again; checkpoints of earlier attempts are set aside",
    )
    parser.add_argument(
        "--time-limit", type=parse_duration, default=None, metavar="TIME", help="such as 23h30m or 84600"
    )
    parser.add_argument(
        "--stop-after", type=int, default=None, metavar="STEP", help="stop after this step, as a signal would"
    )
    parser.add_argument("--runs", type=Path, default=None, help="folder of run directories; default runs/")
    parser.add_argument("--no-publish", action="store_true", help="do not replace the published checkpoint and metrics")
    parser.add_argument("--local_rank", type=int, default=None, help=argparse.SUPPRESS)  # DeepSpeed's launcher sets it

    def work() -> int:
        options = parser.parse_args(arguments)
        project = Project(Path.cwd())
        os.environ.update(rank_variables(os.environ))
        started = float(os.environ.get(STARTED_VARIABLE, time.time()))
        until = Until(None if options.time_limit is None else started + options.time_limit, options.stop_after)
        target = Target(project, options.runs or project.runs, options.config, publish=not options.no_publish)
        target, resolved = _resolve(target, options.overrides)
        if resolved.attempt.deterministic:
            os.environ.update({**DETERMINISTIC_VARIABLES, **os.environ})
        make_hooks(
            resolved.attempt.hooks, str(target.config)
        )  # so that an error in a hook's options is reported before anything starts
        if "RANK" in os.environ:
            return train_as_rank(target, resolved, options.mode, until)
        return train(target, resolved, options.mode, until, arguments)

    return run_command(
        work,
        trouble="training cannot read or write: {}; then start it again",
        trouble_code=TrainingError.exit_code,
        say=_refuse,
    )


def _resolve(target: Target, overrides: Sequence[str]) -> tuple[Target, Resolved]:
    """Resolves the experiment's YAML file, or reads a run's `resolved.json`, which says nothing of an evaluation.

    Raises:
        ConfigError: the config is wrong, or `--set` is given beside a resolved config.
        UserError: the blend is missing or does not fit the config.
    """
    if target.config.suffix == ".json":
        if overrides:
            raise ConfigError(
                str(target.config), "", "--set beside a resolved config", "the YAML file of the experiment"
            )
        return target, Resolved.read(target.config)
    experiment = load_experiment(target.config, overrides)
    # Without publishing, the training may run outside the pipeline, whose stage `blend` writes the blend.
    blend = ResolvedBlend.read(target.project.blend) if target.publish else resolve_blend(experiment, target.project)
    resolved = resolve_run(experiment, blend, str(target.config), tuple(overrides), runs=target.runs)
    return replace(target, follow=Follow.of(experiment.evaluation, overrides)), resolved


def _refuse(text: str) -> None:
    """Prints why this process ends: once on each node, with the node's name on all nodes but the first."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        first = os.environ.get("RANK", "0") == "0"
        say(text if first else f"treering: {os.uname().nodename}: {text.removeprefix('treering: ')}")


if __name__ == "__main__":
    sys.exit(main())
