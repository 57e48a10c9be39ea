"""The runs of a sweep: which run each point of the grid is, and how far it is.

`treering train --sweep` trains them one after another, `treering launch --sweep` writes a batch job for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treering.config.load import load_experiment
from treering.config.resolved import Resolved
from treering.config.schema import BlendConfig
from treering.config.sweep import Point, load_sweep
from treering.data.blend.continuation import resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.errors import UserError
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.records import RunState


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        point: what the grid sets.
        overrides: all that is set, as `--set` takes it.
        resolved: the run's config.
        state: of the run when the sweep was planned; `empty` where it has not begun.
    """

    point: Point
    overrides: tuple[str, ...]
    resolved: Resolved
    state: RunState

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train."""
        return self.state == "finished"

    @property
    def words(self) -> str:
        """What the grid sets, for people."""
        return ", ".join(f"{path}={value}" for path, value in self.point.values.items())

    def to_json(self) -> dict[str, Any]:
        """The run as JSON values."""
        resolved = self.resolved
        return {
            "run": resolved.run_id,
            "values": dict(self.point.values),
            "state": self.state,
            "steps": resolved.schedule.num_steps,
        }


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep before it begins.

    Attributes:
        experiment: the experiment's file.
        runs: in the order of the grid.
    """

    experiment: Path
    runs: tuple[SweepRun, ...]

    @property
    def left(self) -> list[SweepRun]:
        """The runs that are not finished."""
        return [run for run in self.runs if not run.finished]


def plan_sweep(file: Path, project: Project, overrides: Sequence[str] = (), runs: Path | None = None) -> SweepPlan:
    """Resolves every point of a sweep, so that a wrong one is found before the first begins.

    Args:
        file: the sweep's file.
        project: where the corpora are.
        overrides: what is set for all runs; the grid comes after.
        runs: folder of run directories, default the project's.

    Raises:
        ConfigError: the file or a point is wrong.
        UserError: two points are one run.
    """
    sweep = load_sweep(file)
    blends: dict[BlendConfig, Any] = {}
    found: dict[str, SweepRun] = {}
    for point in sweep.points:
        every = (*overrides, *point.overrides)
        experiment = load_experiment(sweep.experiment, every)
        if experiment.blend not in blends:
            blends[experiment.blend] = resolve_blend(experiment, project)
        resolved = resolve_run(
            experiment, blends[experiment.blend], str(sweep.experiment), every, runs=runs or project.runs
        )
        state = RunDirectory((runs or project.runs) / resolved.run_id).state()
        run = SweepRun(point, every, resolved, state)
        if (other := found.get(resolved.run_id)) is not None:
            raise UserError(
                f"{file}: {other.words} and {run.words} are the same run {resolved.run_id}, expected points that "
                "differ in the recipe: leave out what only says how to train, such as parallel.* and kernels.*"
            )
        found[resolved.run_id] = run
    return SweepPlan(sweep.experiment, tuple(found.values()))
