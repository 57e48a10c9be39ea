"""`treering doctor`: what is missing on this machine."""

from dataclasses import asdict

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json


def doctor(json: JsonOption = False) -> None:
    """Show what this machine has of what Treering needs, and what helps where something is missing.

    It looks at the packages of each role, at GPUs, git and DVC; whether runs can be written here: rights, locks, syncs,
    space; whether the experiments of the project load and its pipeline can run; and whether MLflow, the ledger and the
    store of copies answer. It writes nothing that stays.

    Exit codes:
        0: nothing would go wrong; what is missing is only not possible here
        2: something would go wrong

    Examples:
        treering doctor
        treering doctor --json
    """
    from treering.collect.doctor import check_machine
    from treering.errors import UserError
    from treering.setup.checks import check_project
    from treering.store.checks import check_stores

    here = project()
    found = [*check_machine(here.runs), *check_project(here), *check_stores()]
    if json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            console.print(f"{each.state:<8} {each.what}: {each.text}" + (f"; {each.remedy}" if each.remedy else ""))
    if any(each.state == "fault" for each in found):
        raise typer.Exit(UserError.exit_code)
