"""`treering hans`: whether a checkpoint infers, or follows a heuristic."""

from typing import TYPE_CHECKING

from treering.cli.options import JsonOption, NamedCheckpoint, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.metrics.hans import Hans


def hans(checkpoint: NamedCheckpoint, json: JsonOption = False) -> None:
    """Show the answers to HANS by heuristic, number of examples, order of examples, and balance of their labels.

    Half of the right answers are yes. A model that follows the heuristic says yes to the other half as well: the column
    `says yes` shows it. The last table compares how often the model says yes with different examples in its prompt.

    `treering evaluate` scores the task `hans` where `evaluation.tasks` names it.

    Exit codes:
        3: the evaluation does not hold

    Examples:
        treering hans published
        treering hans 430e51@320 --json
    """
    from treering.cli.numbers import plain_numbers
    from treering.errors import NotFoundError
    from treering.metrics.hans import TASK, hans_of
    from treering.runlog.find import named_checkpoint

    chosen = named_checkpoint(project().runs, checkpoint)
    records = [each for each in chosen.run.evaluations() if each.checkpoint == chosen.digest]
    found = hans_of(records[-1]) if records else None
    if found is None:
        what = f"is scored without the task {TASK}" if records else "is not evaluated"
        raise NotFoundError(
            f"{chosen.path}: step {chosen.step} {what}; name {TASK} with its file in evaluation.tasks, then "
            "`treering evaluate` scores it"
        )
    if json:
        print_json(plain_numbers(found.to_json()))
    else:
        _print(found)


def _print(found: "Hans") -> None:
    print_table(
        ("shots", "by", "part", "items", "accuracy", "95 % interval", "says yes"),
        [
            [
                str(each.shots),
                each.by,
                each.part,
                f"{each.items:,}",
                f"{each.accuracy:.3f}",
                f"{each.low:.3f} to {each.high:.3f}",
                f"{each.yes:.3f}",
            ]
            for each in found.shares
        ],
        numbers=("shots", "items", "accuracy", "says yes"),
    )
    if found.influences:
        console.heading("Yes by the examples in the prompt")
        print_table(
            ("shots", "compared", "ratio", "95 % interval", "p (Holm)", "verdict"),
            [
                [
                    str(each.shots),
                    each.of,
                    f"{each.ratio.value:.3g}",
                    f"{each.ratio.low:.3g} to {each.ratio.high:.3g}",
                    f"{each.adjusted:.2g}",
                    "beyond noise" if each.flagged else "within noise",
                ]
                for each in found.influences
            ],
            numbers=("shots", "ratio", "p (Holm)"),
        )
    console.heading("Limits")
    for doubt in found.doubts:
        console.print(doubt.line)
