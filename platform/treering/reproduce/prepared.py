"""A reproduction from its plan to its verdict, of a run of any trainer."""

from dataclasses import dataclass

from treering.errors import UserError
from treering.project import Project
from treering.reproduce.command import Command, plan_command, run_again
from treering.reproduce.make import begin, conclude, held, make_again, rebuilt
from treering.reproduce.places import project_view
from treering.reproduce.plan import Plan, PlannedSteps, check_can_begin, plan_own_run
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.reproductions import Reproduction, ReproductionFolder


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person asks for.

    Attributes:
        steps: the steps to make again; None: all.
        from_checkpoint: step of the checkpoint to start from; None: as `steps` needs it.
        recorded_python: whether a virtual environment is made from the recorded versions.
        present_code: whether the code that is here trains, whatever code is on record.
        trusted: whether code and commands that another machine recorded may run.
        trials: whether candidate causes of a difference are tested by training the divergent steps again.
    """

    steps: range | None = None
    from_checkpoint: int | None = None
    recorded_python: bool = False
    present_code: bool = False
    trusted: bool = False
    trials: bool = True


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained again of a run of Treering's trainer.

    Attributes:
        run: the original.
        steps: the stretches of steps, in order.
        base: the checkpoint that they start from, None for the start of the recipe.
    """

    run: RunDirectory
    steps: tuple[PlannedSteps, ...]
    base: CheckpointDirectory | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A reproduction that was planned, and has not begun.

    Attributes:
        run: the original.
        digest: its identity.
        project: where its data are.
        plan: what can be made again.
        wishes: what was asked for.
        work: what will be done.
    """

    run: AnyRun
    digest: str
    project: Project
    plan: Plan
    wishes: Wishes
    work: Training | Command

    def perform(self) -> tuple[ReproductionFolder, Reproduction]:
        """Makes the run again, or goes on where an interrupted call stopped, and compares.

        Returns:
            The folder of the reproduction, and its record.

        Raises:
            EvidenceError: code or checkpoint cannot be rebuilt, or a command recorded no run.
            UserError: the recorded environment cannot be made.
            TrainingError: the training or the command failed.
            RunLockedError: another process makes this reproduction.
        """
        work, recorded_python = self.work, self.wishes.recorded_python
        present_code = self.wishes.present_code
        folder = begin(self.run, self.digest, self.plan, recorded_python=recorded_python, present_code=present_code)
        with held(folder):
            if isinstance(work, Command):
                again = run_again(work, folder, recorded_python=recorded_python)
                return folder, conclude(self.run, again, folder, self.project)
            with (
                rebuilt(folder, work.steps, recorded_python=recorded_python, present_code=present_code) as conditions,
                project_view(work.run, self.project, folder.path / "project") as view,
            ):
                steps = list(zip(work.steps, conditions, strict=True))
                trained = make_again(work.run, view, folder, work.base, steps)
                trials = self.wishes.trials
                return folder, conclude(work.run, trained, folder, self.project, steps, view=view, trials=trials)


def prepare(run: AnyRun, project: Project, wishes: Wishes) -> Prepared:
    """Plans the reproduction of a run; nothing is written.

    Args:
        run: the run.
        project: where its data are looked for.
        wishes: what is asked for.

    Raises:
        RunLockedError: the run is running.
        UserError: the run has no such steps, or no such checkpoint.
        EvidenceError: a record of the run does not hold.
    """
    check_can_begin(run)
    python = wishes.recorded_python
    if isinstance(run, RecordedRunDirectory):
        if wishes.from_checkpoint is not None:
            raise UserError(
                f"--from-checkpoint: found {run.id}, a run of another trainer, expected one of Treering's: a recorded "
                "command starts from its beginning"
            )
        plan, command = plan_command(
            run, wishes.steps, recorded_python=python, trusted=wishes.trusted, present_code=wishes.present_code
        )
        return Prepared(run, run.digest, project, plan, wishes, command)
    plan, steps, base = plan_own_run(
        run, project, wishes.steps, wishes.from_checkpoint, recorded_python=python, present_code=wishes.present_code
    )
    return Prepared(run, run.resolved.recipe.digest, project, plan, wishes, Training(run, tuple(steps), base))
