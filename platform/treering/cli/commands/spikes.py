"""`treering spikes`: lists the alarms of a run, or what was read before a step."""

from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.alarms import print_alarms
from treering.cli.gaps import exit_if_incomplete, print_gaps
from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json, print_table
from treering.config.canonical import short
from treering.foreign import say

if TYPE_CHECKING:
    from treering.metrics.rewind import Rewind

BeforeOption = Annotated[int, typer.Option("--before", metavar="N", min=0, help="Show N steps before STEP.")]


def spikes(
    run: RunArgument,
    step: Annotated[
        int | None,
        typer.Argument(metavar="STEP", min=1, help="The step of a spike; without it, the alarms are listed."),
    ] = None,
    before: BeforeOption = 5,
    json: JsonOption = False,
) -> None:
    """List the alarms of a run (spikes and the other health rules), or what was read before a step.

    With a step, it shows the samples of the steps before it, which other steps read each sample, and the command that
    goes back and skips them.

    Exit codes:
        3: evidence is missing for a part of the answer

    Examples:
        treering spikes 0123
        treering spikes 0123 1187 --before 2
    """
    from treering.audit.documents.spike import rings_left, spike_data
    from treering.metrics.path_alarms import alarms_in
    from treering.metrics.rewind import rewind_behind
    from treering.runlog.find import find_run

    here = project()
    directory = find_run(here.runs, run)
    if step is None:
        rings, gaps = rings_left(directory)
        for gap in gaps:
            say(f"missing: {gap.text}")
        found = alarms_in(directory, rings)
        if json:
            print_json([alarm.to_dict() for alarm in found])
        else:
            print_alarms([alarm.to_dict() for alarm in found])
            _print_way_around(rewind_behind(directory, found[-1].step) if found else None)
        exit_if_incomplete(gaps)
        return
    data, around = spike_data(directory, step, here, before), rewind_behind(directory, step)
    if json:
        print_json({**data.to_json(), "rewind": around and around.command})
        exit_if_incomplete(data.gaps)
        return
    print_gaps(data.gaps, missing=True)
    for each in data.steps:
        attempt = "no attempt on record" if each.attempt is None else f"attempt {each.attempt}"
        numbers = "the ring is missing"
        if each.loss is not None and each.grad_norm is not None:
            numbers = f"loss {each.loss:.4f}, gradient norm {each.grad_norm:.3f}"
        console.heading(f"step {each.step:,}, {attempt}: {numbers}")
        print_table(
            ("sample", "corpus", "epoch", "documents", "also read by step"),
            [
                [
                    f"{sample.sample:,}",
                    sample.corpus,
                    str(sample.epoch),
                    ", ".join(sample.documents),
                    ", ".join(
                        f"{reading.step:,}" + ("" if reading.run == data.run else f" of {short(reading.run, 8)}")
                        for reading in sample.elsewhere
                    ),
                ]
                for sample in each.samples
            ],
            numbers=("sample", "epoch"),
        )
    _print_way_around(around)
    exit_if_incomplete(data.gaps)


def _print_way_around(rewind: "Rewind | None") -> None:
    if rewind is not None:
        around = rewind.to + rewind.skip
        console.print("", f"the way around step {around:,}: `{rewind.command}`")
