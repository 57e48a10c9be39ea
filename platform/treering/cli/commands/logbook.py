"""`treering logbook`: what happened to a run, in the order of time."""

from typing import Annotated

import typer

from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json, print_table

AllOption = Annotated[bool, typer.Option("--all", help="Show checkpoints and evaluations as well.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print Markdown, to paste into a report.")]


def logbook(
    run: RunArgument, every: AllOption = False, markdown: MarkdownOption = False, json: JsonOption = False
) -> None:
    """List what happened to a run: starts, ends, incidents, alarms, stalls, notes, and the work lost.

    Times are UTC. A stall is a time without a step in which the run went on. Work lost is counted at the end of the
    attempt that a restart followed: the steps that were done again, and the time until the next step.

    Examples:
        treering logbook 0123
        treering logbook 0123 --markdown
    """
    import time

    from treering.metrics.logbook import logbook as read
    from treering.metrics.logbook_text import clock, loss_text, markdown_of, span, total_text
    from treering.runlog.find import named_run

    book, now = read(named_run(project().runs, run)), time.time()
    events = list(book.events) if every else book.short()
    if json:
        print_json(book.to_json())
        return
    if markdown:
        console.print_text(markdown_of(book, events, now).rstrip())
        return
    console.print(f"run         {book.run}" + (f" ({book.experiment})" if book.experiment else ""))
    console.print(f"lost        {total_text(book) or 'nothing: no restart'}")
    for text in book.missing:
        console.print(f"missing     {text}")
    console.print()
    rows = [
        [
            clock(event.at),
            f"{span(max(0.0, now - event.at))} ago",
            "" if event.step is None else f"{event.step:,}",
            event.title,
            "; ".join(text for text in (event.text, loss_text(event.lost) if event.lost else "") if text),
        ]
        for event in events
    ]
    print_table(("time", "age", "step", "what", "in its words"), rows, numbers=("step",))
    left = len(book.events) - len(events)
    if left:
        console.print("", f"checkpoints and evaluations left out: {left:,}; --all shows them")
