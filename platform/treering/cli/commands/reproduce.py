"""`treering reproduce`: makes a recorded run again, and says whether it came out the same."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.numbers import age
from treering.cli.options import JsonOption, RunArgument, TrustOption, project, step_range
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.project import Project
    from treering.reproduce.plan import Plan
    from treering.runlog.find import AnyRun

StepsOption = Annotated[
    str | None,
    typer.Option(
        "--steps", metavar="A:B", help="Only steps A to B, from the newest checkpoint before A; default: all steps."
    ),
]
FromOption = Annotated[
    int | None,
    typer.Option(
        "--from-checkpoint",
        metavar="STEP",
        min=1,
        help="Start from the run's checkpoint of this step, not from nothing.",
    ),
]
EnvironmentOption = Annotated[
    bool,
    typer.Option("--environment", help="Train in a virtual environment that is made from the recorded versions."),
]
PresentCodeOption = Annotated[
    bool, typer.Option("--present-code", help="Train with the code that is here, whatever code is on record.")
]
CorporaOption = Annotated[
    Path | None,
    typer.Option(
        "--corpora", metavar="DIR", help="Of a capsule: the folder with the corpora's files, under any names."
    ),
]
NoCausesOption = Annotated[
    bool,
    typer.Option(
        "--no-causes", help="Name what changed, but do not train the divergent steps again to find the cause."
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what can be rebuilt and what cannot.")]


def reproduce(
    run: RunArgument,
    *,
    steps: StepsOption = None,
    from_checkpoint: FromOption = None,
    environment: EnvironmentOption = False,
    present_code: PresentCodeOption = False,
    trust: TrustOption = False,
    corpora: CorporaOption = None,
    no_causes: NoCausesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Make a recorded run again from its record, and say whether it came out the same.

    First the command says what of code, environment, data and devices is the same here, is rebuilt, or cannot be had.
    Then it trains the steps beside the original, in `runs/<id>/reproductions/0001`, and compares every step. The
    original is not changed. After a stop, the same command goes on.

    RUN may be a capsule, a zip file that `treering capsule` made: it is checked, unpacked into `runs/`, and its corpora
    are looked for by content.

    Exit codes:
        0: identical to the last bit; with `--dry-run`, everything can be had
        3: evidence is missing; with `--dry-run`, something cannot be had
        6: it came out otherwise

    Examples:
        treering reproduce 0123
        treering reproduce 0123 --steps 900:1000
        treering reproduce 0123 --dry-run --json
        treering reproduce run.zip --corpora /data

    Raises:
        Exit: the run cannot be made again, or came out otherwise.
    """
    from treering.ending import EXIT_DIFFERS
    from treering.errors import EvidenceError
    from treering.reproduce.capsule.consent import refuse_strange_code
    from treering.reproduce.prepared import Wishes, prepare

    here = project()
    original = _original(run, here, corpora, json=json)
    refuse_strange_code(original, recorded_python=environment, trusted=trust)
    wishes = Wishes(
        step_range(steps),
        from_checkpoint,
        recorded_python=environment,
        present_code=present_code,
        trusted=trust,
        trials=not no_causes,
    )
    prepared = prepare(original, here, wishes)
    plan = prepared.plan
    if not json:
        _print_plan(plan)
    if dry_run or plan.stopping:
        if json:
            print_json(plan.to_json())
        raise typer.Exit(EvidenceError.exit_code if plan.missing else 0)
    folder, record = prepared.perform()
    if json:
        print_json({"folder": str(folder.path), **record.model_dump(mode="json")})
    else:
        console.print("", f"verdict     {record.sentence}", f"record      {folder.file}")
        for doubt in (record.comparison or {})["doubts"]:
            console.print(f"{doubt['level']:<11} {doubt['text']}; {doubt['remedy']}")
    if not record.identical:
        raise typer.Exit(EvidenceError.exit_code if record.identical is None else EXIT_DIFFERS)


def _original(run: str, here: "Project", corpora: Path | None, *, json: bool) -> "AnyRun":
    """The run that a person names, or that of a capsule, which is unpacked.

    Raises:
        UserError: `--corpora` was given for a run that is here.
    """
    from treering.errors import UserError
    from treering.progress import progress_bars
    from treering.reproduce.capsule.unpack import unpack_capsule
    from treering.runlog.find import named_original

    file = Path(run)
    if not file.is_file():
        if corpora is not None:
            raise UserError(f"reproduce: found --corpora for {file}, expected a capsule, a file like run.zip")
        return named_original(here.runs, run, "reproduce")
    with progress_bars() as progress:
        unpacked = unpack_capsule(file, here, corpora, progress)
    if not json:
        console.print(f"capsule     unpacked to {unpacked.run.path}, from {unpacked.capsule.treering}")
        if unpacked.capsule.orders:
            console.print(f"data order  is that of the capsule; tokens of {unpacked.compared_samples} samples compared")
    return unpacked.run


def _print_plan(plan: "Plan") -> None:
    base = f"from checkpoint {plan.from_step:,}" if plan.from_step else "from the start"
    console.print(
        f"run         {plan.run}",
        f"steps       {plan.first_step:,} to {plan.last_step:,}, {base}",
        f"time        {_time(plan)}",
        "",
    )
    for each in plan.items:
        _print_wrapped(f"{each.part:<12}{each.state:<9}{each.name}: {each.reason}", 21)
        if each.state == "cannot":
            left = f"{each.comparable or 'nothing'} can be compared" + ("; nothing is trained" if each.stops else "")
            _print_wrapped(f"{'':<21}{f'Remedy: {each.remedy}. ' if each.remedy else ''}Without it {left}.", 21)


def _time(plan: "Plan") -> str:
    if plan.seconds is None:
        return "not known: the rings do not hold; `treering verify` names what was changed"
    return f"{age(plan.seconds)} when it was recorded, {plan.device_hours:,.3g} device-hours"


def _print_wrapped(text: str, indent: int) -> None:
    console.print(*textwrap.wrap(text, 100, subsequent_indent=" " * indent, break_long_words=False))
