"""`treering rebuild`: makes all projections of the run logs again, or compares them."""

from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.commands.ship import ShipArgument
from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.ship.rebuild import Rebuilt

CheckOption = Annotated[bool, typer.Option("--check", help="Compare only: name the first difference, write nothing.")]


def rebuild(run: ShipArgument = None, check: CheckOption = False, json: JsonOption = False) -> None:
    """Make again what MLflow, other targets and the columns hold otherwise than the run logs give.

    Every target is compared with what the run's folder gives. What is equal stays as it is. What differs is made again,
    and compared once more. MLflow's run from before is kept, nested below the new one, with the tag `treering.branch`
    = `replaced`. A rebuild that is interrupted is finished by the next one, or by `treering ship`.

    Exit codes:
        0: all is equal now
        2: the URI is wrong, or the driver of the database is missing
        3: the log of a run does not hold; the other runs were served
        4: something differs, or a target does not answer

    Examples:
        treering rebuild --check
        treering rebuild 0123
    """
    from dataclasses import asdict

    from treering.errors import EvidenceError, StoreError
    from treering.ship import rebuild as rebuilding

    here = project()
    done: list[Rebuilt] = []

    def report(each: "Rebuilt") -> None:
        done.append(each)
        if not json:
            console.print(
                ": ".join(text for text in (each.target, each.run, each.outcome, each.text, each.kept) if text)
            )

    try:
        work = rebuilding.compare if check else rebuilding.rebuild
        work(here, run, report)
    finally:
        if json:
            print_json([asdict(each) for each in done])
    good = {"equal"} if check else {"equal", "rebuilt"}
    wrong = [each for each in done if each.outcome not in good]
    if wrong:
        what = f"{wrong[0].target}: {wrong[0].run} {wrong[0].outcome}: {wrong[0].text}"
        help_text = "`treering rebuild` makes them again" if check else "`treering rebuild` again goes on from here"
        damaged = any(each.outcome == "damaged" for each in wrong)
        raise (EvidenceError if damaged else StoreError)(
            f"{what}; {len(wrong)} of {len(done)} are not equal; {help_text}"
        )
