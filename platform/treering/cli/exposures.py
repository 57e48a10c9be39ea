"""How commands print documents with the steps that read them, and the checkpoints that saw them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from treering.cli.output import console, print_table
from treering.config.canonical import short

if TYPE_CHECKING:
    from treering.audit.documents.curated import CuratedDocument
    from treering.audit.documents.exposure import CheckpointExposure, TracedDocument


def print_documents(documents: "Iterable[TracedDocument]", total: int) -> None:
    """Prints documents, and how many more there are.

    Args:
        documents: those to show.
        total: how many were found.
    """
    shown = 0
    for each in documents:
        shown += 1
        print_document(each)
    if shown < total:
        console.print(f"{total - shown:,} more documents; --limit shows more of them")
    console.print()


def print_document(each: "TracedDocument") -> None:
    """Prints a document, with a row for each time that a step read it."""
    console.print(
        f"{each.corpus}:{each.document}  {each.num_tokens:,} tokens  {each.source}  {each.licence}",
        style="bold",
    )
    if not each.exposures:
        console.print("read by no step")
    else:
        print_table(
            ("run", "attempt", "step", "sample", "in batch", "replica", "micro-batch", "epoch", "tokens"),
            [
                [
                    short(found.run, 8),
                    known_count(found.attempt),
                    f"{found.step:,}",
                    f"{found.sample:,}",
                    f"{found.position:,}",
                    known_count(found.replica),
                    known_count(found.micro_batch),
                    str(found.epoch),
                    f"{found.start:,} to {found.end:,}",
                ]
                for found in each.exposures
            ],
            numbers=("attempt", "step", "sample", "in batch", "replica", "micro-batch", "epoch"),
        )


def print_decisions(decisions: "Sequence[CuratedDocument]", total: int) -> None:
    """Prints what curation decided about documents and their near-duplicates, with what read them if that was asked.

    Args:
        decisions: those to show.
        total: how many there are.
    """
    for each in decisions:
        console.print(each.document, style="bold")
        console.print(f"  {each.decision}" + (f", near-duplicate of {each.asked}" if each.near_duplicate else ""))
        if each.kept_instead:
            console.print(f"  kept instead  {each.kept_instead}")
        elif each.preferred:
            console.print(f"  in favour of  {each.preferred}, which was {each.preferred_decision}")
        for name in each.stands_for:
            console.print(f"  stands for    {name}")
        for gone in each.removed:
            console.print(f"  cut out       characters {gone.start:,} to {gone.end:,}, for {', '.join(gone.items)}")
        if each.first_step is not None:
            steps = f"{each.first_step:,} to {each.last_step:,}"
            console.print(f"  read          {each.exposures:,} exposures, in steps {steps}")
    if len(decisions) < total:
        console.print(f"{total - len(decisions):,} more documents; --limit shows more of them")


def print_checkpoints(checkpoints: "Iterable[CheckpointExposure]") -> None:
    """Prints a row for each checkpoint: whether it saw any of the documents, and how often."""
    rows = [
        [
            short(each.run, 8),
            f"{each.step:,}" + (" superseded" if each.superseded else ""),
            "clean" if each.clean else "seen",
            f"{each.documents:,}",
            f"{each.exposures:,}",
            "" if each.first_step is None else f"{each.first_step:,} to {each.last_step:,}",
            f"{each.off_path:,}" if each.off_path else "",
        ]
        for each in checkpoints
    ]
    if not rows:
        console.print("no checkpoint in any run")
        return
    print_table(
        ("run", "checkpoint", "", "documents", "exposures", "steps", "off its path"),
        rows,
        numbers=("checkpoint", "documents", "exposures", "off its path"),
    )


def print_unanswered(texts: Iterable[str]) -> None:
    """Prints what was not searched, and why."""
    for text in texts:
        console.print(f"not searched: {text}")


def known_count(number: int | None) -> str:
    """A count that a record may lack."""
    return "unknown" if number is None else f"{number:,}"
