"""`treering compare`: whether runs or checkpoints differ by more than noise."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.metrics.environments import EnvironmentComparison
    from treering.metrics.groups import GroupComparison
    from treering.metrics.verdicts import TaskVerdict
    from treering.runlog.directory import RunDirectory
    from treering.runlog.find import AnyRun
    from treering.runlog.records import Evaluation

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN...",
        help="Runs, by folder or a prefix of the id; default: all of the project. Or two checkpoints as RUN@STEP.",
    ),
]


def compare(names: Runs = None, json: JsonOption = False) -> None:
    """Compare runs by the noise of seeds, or two checkpoints item by item.

    Runs that differ in their seeds alone are one group. Held-out losses and task scores of groups are compared by
    Welch's test; with one seed the noise is unknown. The first run's group is what others are compared with. Runs of
    other trainers are compared too.

    Two runs or two checkpoints of Treering's trainer are compared item by item as well: accuracies by McNemar's exact
    test, other scores by a paired bootstrap. The column `detectable` is the smallest true difference that is found
    four times of five. Holm's correction keeps the risk of any false alarm at 5 %.

    Exit codes:
        3: the evidence is missing or does not hold

    Examples:
        treering compare 430e51 c6afcc 77b0a1
        treering compare 430e51@80 430e51@320 --json
    """
    from treering.cli.numbers import plain_numbers
    from treering.errors import UserError
    from treering.metrics.groups import compare_groups
    from treering.runlog.directory import RunDirectory

    named = [_named(name) for name in names] if names else [(run, None) for run in _all_runs()]
    own = [(run, step) for run, step in named if isinstance(run, RunDirectory)]
    steps = [step for _, step in named if step is not None]
    if len(named) < 2 or (steps and len(named) != 2):
        expected = "two checkpoints" if steps else "two runs or more"
        raise UserError(f"compare: found {len(named)}, expected {expected}; `treering runs` lists the runs")
    groups = None if steps else compare_groups([run for run, _ in named])
    pair = _Pair(*own) if len(own) == len(named) == 2 else None
    if json:
        print_json(
            plain_numbers(
                {
                    "groups": None if groups is None else groups.to_json(),
                    **(pair.to_json() if pair is not None else {}),
                }
            )
        )
        return
    if groups is not None:
        print_groups(groups)
    if pair is not None:
        pair.print()


def print_groups(found: "GroupComparison") -> None:
    """Prints the groups, what of them is the best, and a verdict on each against the first."""
    for group in found.groups:
        ids = ", ".join(run.id[:8] for run in group.runs)
        seeds = ", ".join(map(str, group.seeds))
        console.print(f"{group.name}  {group.band}; runs {ids} (seeds {seeds})")
    if len(found.groups) == 1:
        console.print("", "One group: the configs differ in their seeds alone, so there is nothing to compare with.")
        return
    measure = found.measure if found.step is None else f"{found.measure}, step {found.step:,}, nat/token"
    console.print(f"   {measure}", "")
    for line in (found.sentence, *(verdict.sentence for verdict in found.against_first)):
        if line:
            console.print(line)
    print_scores(found)


def print_scores(found: "GroupComparison") -> None:
    """Prints a row for each task score and each corpus of each group, where the noise of one of them is known."""
    from treering.metrics.group_scores import band

    rows = [(verdict, each) for verdict in found.against_first for each in verdict.scores]
    if any(each.known for _, each in rows):
        console.heading("Scores of the groups: mean ± standard deviation over seeds")
        print_table(
            ("groups", "measure", "step", "first", "second", "difference (95 % interval)", "p (Holm)", "verdict"),
            [
                [
                    f"{verdict.second.name} - {verdict.first.name}",
                    each.measure.title,
                    f"{each.step:,}",
                    band(each.first),
                    band(each.second),
                    each.difference,
                    f"{each.adjusted:.2g}",
                    each.words,
                ]
                for verdict, each in rows
            ],
            numbers=("step", "p (Holm)"),
        )
    if found.left_out:
        console.print(found.left_out_sentence)


class _Pair:
    """Two checkpoints, their verdicts and their environments."""

    def __init__(self, first: "tuple[RunDirectory, int | None]", second: "tuple[RunDirectory, int | None]") -> None:
        from treering.metrics.environments import compare_environments, environment_of
        from treering.metrics.verdicts import judge_evaluations

        a, b = _evaluation(*first), _evaluation(*second)
        self.sides = a, b
        self.verdicts = [] if a is None or b is None else judge_evaluations(a, b)
        self.environments = compare_environments(*(environment_of(run) for run, _ in (first, second)))

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        sides = {
            name: each and {"run": each.run, "step": each.step} for name, each in zip("ab", self.sides, strict=True)
        }
        scores = [each.to_json() for each in self.verdicts]
        return {**sides, "scores": scores, "environment": self.environments.to_json()}

    def print(self) -> None:
        """Prints the answer."""
        console.heading("Scores item by item")
        for name, each in zip("AB", self.sides, strict=True):
            if each is None:
                console.print(f"{name}  no checkpoint is evaluated; `treering evaluate` scores them all")
                continue
            loss = f"held-out loss {each.validation_loss:.4f} nat/token"
            console.print(f"{name}  run {_id(each)}, step {each.step:,}, {loss}")
        console.print()
        print_verdicts(self.verdicts)
        print_environments(self.environments)


def _all_runs() -> "list[AnyRun]":
    from treering.runlog.find import run_is_archived, runs_of_any_trainer

    return [run for run in runs_of_any_trainer(project().runs) if not run_is_archived(run)]


def print_verdicts(verdicts: "list[TaskVerdict]") -> None:
    """Prints a row for each score of two checkpoints, and the doubts below."""
    if not verdicts:
        console.print("No task was scored at both checkpoints with the same number of shots; `treering evaluate` does.")
        return
    print_table(
        ("task", "shots", "metric", "A", "B", "B - A", "95 % interval", "detectable", "p (Holm)", "verdict"),
        [
            [
                each.first.task,
                str(each.first.shots),
                each.first.metric,
                f"{each.first.value:.4f}",
                f"{each.second.value:.4f}",
                f"{each.effect.value:+.4f}",
                f"{each.effect.low:+.4f} to {each.effect.high:+.4f}",
                f"{each.effect.detectable:.4f}",
                f"{each.adjusted:.2g}",
                each.words,
            ]
            for each in verdicts
        ],
        numbers=("shots", "A", "B", "B - A", "detectable", "p (Holm)"),
    )
    for doubt in dict.fromkeys(each.doubt for each in verdicts if each.doubt):
        console.print("", f"{doubt}.")


def print_environments(found: "EnvironmentComparison", title: str = "Environments of the newest attempts") -> None:
    """Prints what differs between two environments, first what can move numbers."""
    console.heading(title)
    if found.same_digest:
        console.print("Everything that can move numbers is the same.")
    if found.differences:
        print_table(
            ("kind", "name", "A", "B", "can move numbers"),
            [
                [each.kind, each.name, each.first or "-", each.second or "-", "yes" if each.numeric else "no"]
                for each in found.differences
            ],
        )
    else:
        console.print("No difference was found.")
    for doubt in found.doubts:
        console.print(f"{doubt}.")


def _id(evaluation: "Evaluation") -> str:
    from treering.config.canonical import short
    from treering.config.resolved import RUN_ID_LENGTH

    return short(evaluation.run, RUN_ID_LENGTH)


def _named(name: str) -> "tuple[AnyRun, int | None]":
    """The run, and the step of the checkpoint, that a person names.

    Raises:
        UserError: the step is not a number, or is of another trainer's run.
    """
    from treering.errors import UserError
    from treering.runlog.directory import RunDirectory
    from treering.runlog.find import named_run

    run_name, at, step = ("", "", "") if Path(name).is_dir() else name.rpartition("@")
    if at and not step.isdecimal():
        raise UserError(f"{name!r}: found step {step!r}, expected a number, as in RUN@300")
    run = named_run(project().runs, run_name if at else name)
    if at and not isinstance(run, RunDirectory):
        raise UserError(f"{name!r}: found a run of another trainer, expected the run without a step: {run_name}")
    return run, int(step) if at else None


def _evaluation(run: "RunDirectory", step: int | None) -> "Evaluation | None":
    """The evaluation of a step; without a step the newest one, None where there is none.

    Raises:
        NotFoundError: the step is not evaluated.
    """
    from treering.errors import NotFoundError

    found = run.evaluations()
    if step is None:
        return found[-1] if found else None
    chosen = [each for each in found if each.step == step]
    if not chosen:
        steps = ", ".join(str(each.step) for each in found) or "none: `treering evaluate` scores all checkpoints"
        raise NotFoundError(f"{run.path}: step {step} is not evaluated, expected one of {steps}")
    return chosen[0]
