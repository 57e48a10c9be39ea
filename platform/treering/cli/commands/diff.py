"""`treering diff`: compares what two checkpoints read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.audit_report import print_joins
from treering.cli.exposures import known_count, print_unanswered
from treering.cli.gaps import exit_if_incomplete
from treering.cli.options import (
    JsonOption,
    project,
)
from treering.cli.output import console, print_json, print_table
from treering.cli.recorded import print_recorded_difference
from treering.progress import progress_bars

if TYPE_CHECKING:
    from treering.runlog.recorded_directory import RecordedRunDirectory
    from treering.runlog.recorded_records import RecordedCheckpoint


CheckpointA = Annotated[
    str,
    typer.Argument(metavar="A", help="A checkpoint: its folder, that of its run, or a prefix of the id of its run."),
]
CheckpointB = Annotated[str, typer.Argument(metavar="B", help="The checkpoint to compare with, in the same form.")]


def diff(a: CheckpointA, b: CheckpointB, json: JsonOption = False) -> None:
    """Show what two checkpoints read differently: shares, samples of only one, the first different step.

    For two runs of other trainers, recorded with `treering.start`, it names the first step with different samples.

    Exit codes:
        3: evidence is missing for a part of the answer

    Examples:
        treering diff 430e51 c6afcc
    """
    from treering.audit.documents.difference import compare_checkpoints
    from treering.runlog.find import find_recorded, named_checkpoint

    here = project()
    recorded = [find_recorded(here.runs, name) for name in (a, b)]
    if any(recorded):
        _diff_recorded(recorded, json=json)
        return
    with progress_bars() as progress:
        found = compare_checkpoints(named_checkpoint(here.runs, a), named_checkpoint(here.runs, b), here, progress)
    if json:
        print_json(found.to_json())
        exit_if_incomplete(found.gaps)
        return
    for name, side in (("A", found.a), ("B", found.b)):
        console.print(
            f"{name}  run {side.run}, step {side.step:,}, {side.consumed_samples:,} samples: {side.checkpoint}"
        )
    console.print(
        "",
        f"{'same data' if found.same_data else f'first difference: step {found.first_step:,}'}, {found.reason}",
        "",
    )
    print_joins(found.joins)
    print_table(
        ("corpus", "share A", "share B", "only A", "only B", "both", "documents only A", "only B "),
        [
            [
                each.corpus,
                f"{each.share_a:.4f}",
                f"{each.share_b:.4f}",
                f"{each.only_a:,}",
                f"{each.only_b:,}",
                f"{each.both:,}",
                known_count(each.documents_only_a),
                known_count(each.documents_only_b),
            ]
            for each in found.corpora
        ],
        numbers=("share A", "share B", "only A", "only B", "both", "documents only A", "only B "),
    )
    print_unanswered(found.missing)
    exit_if_incomplete(found.gaps)


def _diff_recorded(
    recorded: "Sequence[tuple[RecordedRunDirectory, RecordedCheckpoint | None] | None]", *, json: bool
) -> None:
    """Compares two runs of other trainers.

    Raises:
        UserError: only one of them is a run of another trainer.
    """
    from treering.audit.recorded.difference import compare_recorded
    from treering.errors import UserError

    runs = [each[0] for each in recorded if each is not None]
    if len(runs) < len(recorded):
        raise UserError("diff: found a run of Treering's trainer and one of another trainer, expected two of one kind")
    found = compare_recorded(*runs)
    if json:
        print_json(found.to_json())
    else:
        print_recorded_difference(found)
