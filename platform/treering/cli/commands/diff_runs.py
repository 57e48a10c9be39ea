"""`treering diff-runs`: the first step at which two runs differ, and what else does."""

from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.options import JsonOption, TrustOption, project, step_range
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treering.metrics.compare import Difference
    from treering.reproduce.code import CodeComparison
    from treering.reproduce.difference import RunDifference
    from treering.reproduce.weights import StepWeights

First = Annotated[str, typer.Argument(metavar="A", help="A run: a prefix of its id, or its folder.")]
Second = Annotated[str, typer.Argument(metavar="B", help="The run to compare with, in the same form.")]
StepsOption = Annotated[
    str | None, typer.Option("--steps", metavar="A:B", help="Compare steps A to B only; default: all of both runs.")
]

CausesOption = Annotated[
    bool,
    typer.Option(
        "--causes", help="Name the cause: train the steps where the runs part again, with one change after the other."
    ),
]

_SHOWN = 10
"""Weights that are shown; `--json` has all."""


def diff_runs(
    a: First,
    b: Second,
    *,
    steps: StepsOption = None,
    causes: CausesOption = False,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Compare two runs bit by bit: data, numbers, config, code, environment, layout.

    It names the first step with other data, with corpus and document, and the first step with other numbers. Runs of
    Treering's trainer and runs that other trainers recorded are compared, in any combination. Times and speeds do not
    count.

    Exit codes:
        0: data and numbers are equal, as far as both recorded them
        3: evidence is missing: whether the runs differ is not known
        6: the runs differ

    Examples:
        treering diff-runs 430e51 c6afcc
        treering diff-runs 430e51 c6afcc --steps 100:200 --json
        treering diff-runs 430e51 c6afcc --causes
    """
    from treering.cli.numbers import plain_numbers
    from treering.ending import EXIT_DIFFERS
    from treering.errors import EvidenceError
    from treering.reproduce.capsule.consent import refuse_strange_code
    from treering.reproduce.causes import search_causes
    from treering.reproduce.difference import compare_runs, complete
    from treering.runlog.find import named_run

    here = project()
    first, second = named_run(here.runs, a), named_run(here.runs, b)
    if causes:
        for run in (first, second):
            refuse_strange_code(run, recorded_python=False, trusted=trust)
    asked = step_range(steps)
    found = complete(compare_runs(first, second, asked, here), first, second, here, asked)
    search = search_causes(found, first, second, here) if causes else None
    if json:
        print_json(plain_numbers(found.to_json() | ({"causes": search.to_json()} if search else {})))
    else:
        _print(found)
        if search is not None:
            console.heading("Cause")
            console.print(search.sentence)
    if found.state == "unknown":
        raise typer.Exit(EvidenceError.exit_code)
    if found.state != "identical":
        raise typer.Exit(EXIT_DIFFERS)


def _print(found: "RunDifference") -> None:
    from treering.reproduce.sentence import difference_sentence

    console.print(difference_sentence(found))
    if found.numbers is not None and found.numbers.fields:
        console.heading("Numbers")
        print_table(
            ("field", "first step", "A", "B", "relative", "steps that differ"),
            [
                [
                    each.name,
                    f"{each.step:,}",
                    repr(each.first),
                    repr(each.second),
                    f"{each.relative:.2g}",
                    f"{each.steps:,}",
                ]
                for each in found.numbers.fields
            ],
            numbers=("first step", "relative", "steps that differ"),
        )
    _print_settings("Config", found.config)
    _print_settings("Layout and kernels", found.layout)
    if found.code is not None:
        _print_code(found.code)
    for weights in found.weights.steps if found.weights is not None else ():
        _print_weights(weights)
    if found.seeds is not None:
        console.heading("Results")
        console.print(found.seeds.text)
    if found.environment is not None:
        from treering.cli.commands.compare import print_environments

        print_environments(found.environment, "Environments")
    for doubt in found.doubts:
        console.print("", doubt.line)


def _print_weights(weights: "StepWeights") -> None:
    from treering.cli.numbers import number_text

    console.heading(f"Weights after step {weights.step:,}: {len(weights.differences)} of {weights.weights} differ")
    if weights.differences:
        print_table(
            ("weight", "A", "B", "relative", "elements that differ"),
            [
                [
                    each["name"],
                    each["first"] or "-",
                    each["second"] or "-",
                    number_text(each["relative"]),
                    "" if each["elements"] is None else f"{each['elements']:,}",
                ]
                for each in weights.differences[:_SHOWN]
            ],
            numbers=("relative", "elements that differ"),
        )
    if weights.optimizer is not None:
        count, unequal = weights.optimizer
        console.print(f"The optimizer's state: {unequal:,} of {count:,} tensors differ.")


def _print_code(code: "CodeComparison") -> None:
    console.heading("Code")
    if code.same:
        console.print("Everything that decides numbers is the same.")
    elif not code.changes:
        console.print("Not compared." if code.same is None else "The digests differ.")
    for change in code.changes:
        console.print(change.sentence)
        console.print(*(f"    {sign} {line}" for sign, line in (("-", change.first), ("+", change.second)) if line))


def _print_settings(title: str, found: "Sequence[Difference] | None") -> None:
    console.heading(title)
    if found is None:
        console.print("Not compared.")
    elif not found:
        console.print("No difference was found.")
    else:
        print_table(("path", "A", "B"), [[each.path, *map(str, each.values)] for each in found])
