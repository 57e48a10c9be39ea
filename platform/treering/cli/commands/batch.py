"""`treering batch`: which documents a step read."""

from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.gaps import print_gaps
from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.audit.documents.batch import StepBatch


RankOption = Annotated[
    int | None,
    typer.Option(
        "--rank", metavar="RANK", min=0, help="Only the samples that the data-parallel replica of this rank read."
    ),
]


def batch(
    run: RunArgument,
    step: Annotated[int, typer.Argument(metavar="STEP", min=1, help="The step; the first one is 1.")],
    rank: RankOption = None,
    json: JsonOption = False,
) -> None:
    """Show the documents that a step read, with their text; with `--rank`, those of one replica.

    Without a corpus, its samples are shown without documents. Without a ring, the samples follow from the schedule and
    the blend.

    Exit codes:
        0: the corpora give the batch digest that the ring recorded
        3: the batch digest differs, or a record or a corpus is missing

    Examples:
        treering batch 0123 120
        treering batch 0123 120 --rank 3

    Raises:
        Exit: the batch digest differs, or something is missing.
    """
    from treering.audit.documents.batch import step_batch
    from treering.errors import EvidenceError
    from treering.runlog.find import find_run

    here = project()
    found = step_batch(find_run(here.runs, run), step, here, rank)
    if json:
        print_json(found.to_json())
    else:
        _print_batch(found)
    if not found.content_bound or found.gaps:
        raise typer.Exit(EvidenceError.exit_code)


def _print_batch(found: "StepBatch") -> None:
    whose = "" if found.rank is None else f" of rank {found.rank}"
    attempt = "no attempt on record" if found.attempt is None else f"attempt {found.attempt}"
    console.print(f"run {found.run}, {attempt}, step {found.step}: {len(found.samples)} samples{whose}")
    if found.recorded_digest is None:
        console.print("batch digest not on record")
    elif found.recomputed_digest is None:
        console.print(f"batch digest {found.recorded_digest} is from the ring; it was not recomputed")
    else:
        equal = "equals" if found.content_bound else "DIFFERS FROM"
        console.print(f"batch digest {found.recomputed_digest}", f"             {equal} the ring's")
        if not found.content_bound:
            console.print(f"ring's       {found.recorded_digest}")
    console.print(f"assurance    {found.level}")
    print_gaps(found.gaps, missing=True)
    for sample in found.samples:
        place = "" if sample.replica is None else f", replica {sample.replica}, micro-batch {sample.micro_batch}"
        console.heading(
            f"sample {sample.g:,}: {sample.corpus}, epoch {sample.epoch}, index {sample.index:,}, tokens "
            f"{sample.first_token:,} to {sample.end_token:,}{place}"
        )
        for part in sample.documents:
            console.print(
                f"{part.document}  tokens {part.start:,} to {part.end:,} of {part.num_tokens:,}  {part.source}  "
                f"{part.licence}",
                style="bold",
            )
            if part.text is not None:
                console.print_text(part.text)
