"""`treering compare`: whether two checkpoints differ by more than noise."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treering.metrics.environments import EnvironmentComparison
    from treering.metrics.verdicts import TaskVerdict
    from treering.runlog.directory import RunDirectory
    from treering.runlog.records import Evaluation

First = Annotated[
    str,
    typer.Argument(
        metavar="A", help="A run, by its folder or a prefix of its id, at its newest evaluated step; or RUN@STEP."
    ),
]
Second = Annotated[str, typer.Argument(metavar="B", help="What to compare with it, in the same form.")]


def compare(a: First, b: Second, json: JsonOption = False) -> None:
    """Compare two checkpoints on the same items, and say which differences are more than noise.

    Each score is compared item by item: accuracies by McNemar's exact test, other scores by a paired bootstrap. Holm's
    correction over all scores keeps the risk of any false alarm at 5 %. The column `detectable` is the smallest true
    difference that the number of items shows with a probability of 80 %.

    Exit codes:
        3: the evidence is missing or does not hold

    Examples:
        treering compare 430e51 c6afcc
        treering compare 430e51@80 430e51@320 --json
    """
    from treering.cli.numbers import plain_numbers
    from treering.metrics.environments import compare_environments
    from treering.metrics.verdicts import judge_evaluations

    (run, first), (other, second) = _evaluation(a), _evaluation(b)
    found = judge_evaluations(first, second)
    environments = compare_environments(_environment(run), _environment(other))
    if json:
        sides = {name: {"run": each.run, "step": each.step} for name, each in (("a", first), ("b", second))}
        scores = [each.to_json() for each in found]
        print_json(plain_numbers({**sides, "scores": scores, "environment": environments.to_json()}))
        return
    for name, each in (("A", first), ("B", second)):
        console.print(
            f"{name}  run {_id(each)}, step {each.step:,}, held-out loss {each.validation_loss:.4f} nat/token"
        )
    console.print()
    print_verdicts(found)
    print_environments(environments)


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


def print_environments(found: "EnvironmentComparison") -> None:
    """Prints what differs between two environments, first what can move numbers."""
    console.heading("Environments of the newest attempts")
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


def _environment(run: "RunDirectory") -> "Mapping[str, Any]":
    attempts = run.attempts()
    return attempts[-1].header.environment if attempts else {}


def _id(evaluation: "Evaluation") -> str:
    from treering.config.canonical import short
    from treering.config.resolved import RUN_ID_LENGTH

    return short(evaluation.run, RUN_ID_LENGTH)


def _evaluation(name: str) -> "tuple[RunDirectory, Evaluation]":
    """The run and the evaluation of a checkpoint that a person names.

    Raises:
        NotFoundError: the run has no evaluation of that step.
        UserError: the step is not a number.
    """
    from treering.errors import NotFoundError, UserError
    from treering.runlog.find import find_run

    run_name, at, step = name.rpartition("@")
    if at and not step.isdecimal():
        raise UserError(f"{name!r}: found step {step!r}, expected a number, as in RUN@300")
    run = find_run(project().runs, run_name if at else name)
    found = run.evaluations()
    if not found:
        raise NotFoundError(f"{run.path}: no checkpoint of the run is evaluated; `treering evaluate` scores them all")
    chosen = [each for each in found if each.step == int(step)] if at else found[-1:]
    if not chosen:
        steps = ", ".join(str(each.step) for each in found)
        raise NotFoundError(f"{run.path}: step {step} is not evaluated, expected one of {steps}")
    return run, chosen[0]
