"""`treering continuations`: what the checkpoints of a run made of the kept prompts."""

from typing import Annotated

import typer

from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json

PromptsOption = Annotated[
    list[str] | None, typer.Option("--prompt", metavar="ID", help="Show only the prompt of this id; repeatable.")
]


def continuations(run: RunArgument, prompt: PromptsOption = None, json: JsonOption = False) -> None:
    """Show what each checkpoint of a run made of the kept prompts, side by side.

    `treering evaluate` continues the prompts of `evaluation.prompts` with every checkpoint.

    Exit codes:
        3: the record of the run does not hold

    Examples:
        treering continuations 430e51
        treering continuations 430e51 --prompt "line 1" --json
    """
    from dataclasses import replace

    from treering.errors import NotFoundError
    from treering.metrics.continuations import side_by_side
    from treering.runlog.find import find_run

    found = side_by_side(find_run(project().runs, run))
    known = [each.id for each in found.prompts]
    if strange := [each for each in prompt or () if each not in known]:
        raise NotFoundError(f"--prompt: found {strange[0]!r}, expected one of {', '.join(known) or 'none'}")
    if prompt:
        found = replace(found, prompts=tuple(each for each in found.prompts if each.id in prompt))
    if json:
        print_json(found.to_json())
        return
    if found.steps:
        console.print(f"{len(found.prompts)} prompts at {len(found.steps)} checkpoints: {found.how}")
    width = max((len(f"{step:,}") for step in found.steps), default=0)
    for each in found.prompts:
        console.heading(f"{each.id}: {each.text}")
        for step, made in each.by_step.items():
            console.print(f"  {step:>{width},}  {made.text}")
    console.print()
    for doubt in found.doubts:
        console.print(doubt.line)
