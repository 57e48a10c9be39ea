"""`treering rewind`: goes back to a checkpoint of a run, skips batches, and trains on as a branch."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treering.cli.gaps import print_gaps
from treering.cli.options import JsonOption, LimitOption, RunArgument, SetOption, project
from treering.cli.output import console, print_json, print_table
from treering.cli.trainer import become_trainer

if TYPE_CHECKING:
    from treering.audit.documents.training import TrainingDocuments
    from treering.runlog.journal import Journal
    from treering.runlog.recorded_directory import RecordedRunDirectory, RecordedSegment
    from treering.setup.branch import Branch

ToOption = Annotated[
    int, typer.Option("--to", metavar="STEP", min=1, help="Go back to the newest checkpoint at or before this step.")
]
SkipOption = Annotated[
    int, typer.Option("--skip", metavar="N", min=0, help="Skip the batches of N steps from the checkpoint on.")
]
NoTrainOption = Annotated[
    bool, typer.Option("--no-train", help="Only write the experiment of the branch, and show what it skips.")
]
LikeOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="An experiment with the run's corpora; default: the one in experiments/ that has them.",
    ),
]


def rewind(  # noqa: PLR0917 - one argument an option
    run: RunArgument,
    to: ToOption,
    skip: SkipOption = 0,
    overrides: SetOption = None,
    no_train: NoTrainOption = False,
    config: LikeOption = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Go back to a checkpoint of a run, skip batches, and train on as a branch, around a loss spike.

    The command writes `experiments/NAME-rewind-STEP-skip-N.yaml`, lists the documents that the branch skips, notes the
    branch in the journals of both runs, and trains it as `treering train --no-publish` does. The run that is left stays
    as it is. The same command after a stop goes on with the branch.

    Of a run that another trainer recorded, it prints what that trainer needs: the checkpoint, and the batches to skip.

    Exit codes:
        2: the run is running, has no such checkpoint, or was recorded: its own trainer must go back
        3: evidence is missing
        5: the training failed
        75: start the same command again: it was stopped or killed

    Examples:
        treering rewind 0123 --to 1100 --skip 200
        treering rewind 0123 --to 1100 --set optimizer.beta2=0.98 --no-train

    Raises:
        UserError: the run is running.
    """
    from treering.audit.documents.training import documents_of_steps
    from treering.errors import UserError
    from treering.runlog.find import named_original
    from treering.runlog.journal import Journal
    from treering.runlog.mirror import refuse_mirror
    from treering.runlog.recorded_directory import RecordedRunDirectory
    from treering.setup.branch import plan_branch
    from treering.ship.launch import start_companion

    here = project()
    left = named_original(here.runs, run, "rewind")
    refuse_mirror(left.path)
    if left.is_held:
        raise UserError(
            f"{left.path}: the run is running; stop it with Ctrl-C in its terminal, or send SIGTERM to its launcher, "
            "then start this command again"
        )
    if isinstance(left, RecordedRunDirectory):
        _recorded(left, to, skip, json=json)
        raise typer.Exit(UserError.exit_code)
    branch = plan_branch(left, to, skip, here, like=config, overrides=overrides or ())
    documents = documents_of_steps(left, branch.steps, branch.schedule, here) if skip else None
    rows = [] if documents is None else [row for batch in documents.batches() for row in batch.to_pylist()]
    branch.write()
    words = f"rewound by `treering rewind`: {branch.words}"
    _note_once(left.journal, f"{words}; the branch is run {branch.resolved.run_id} of {branch.file.name}")
    if json:
        print_json(_document(branch, rows, documents))
    else:
        _print_branch(branch, to, rows, documents, limit)
    if no_train:
        return
    resolved = branch.resolved
    _note_once(Journal.of(left.path.with_name(resolved.run_id), resolved.recipe.digest), words)
    sys.stdout.flush()
    start_companion(here, os.getpid())
    become_trainer("launch", {"--no-publish": True}, str(branch.file))


def _note_once(journal: "Journal", text: str) -> None:
    """Adds a note to a journal that does not have it: the same command may be started again."""
    from treering.runlog.journal import Noted, login_name, notes_and_tags

    notes, _tags = notes_and_tags(line.entry for line in journal.lines())
    if all(note.text != text for note in notes):
        journal.append(Noted(at=time.time(), by=login_name(), text=text))


def _document(branch: "Branch", rows: list[dict[str, Any]], documents: "TrainingDocuments | None") -> dict[str, Any]:
    lo, hi = branch.samples
    return {
        "run": branch.run.id,
        "checkpoint": str(branch.checkpoint.path),
        "step": branch.checkpoint.step,
        "skipped": {
            "steps": branch.skip,
            "sample_start": lo,
            "sample_end": hi,
            "documents": rows,
            "missing": [] if documents is None else [gap.missing for gap in documents.gaps],
        },
        "experiment": str(branch.file),
        "branch": branch.resolved.run_id,
    }


def _print_branch(
    branch: "Branch", to: int, rows: list[dict[str, Any]], documents: "TrainingDocuments | None", limit: int
) -> None:
    step, (lo, hi) = branch.checkpoint.step, branch.samples
    newest = "" if step == to else f", the newest checkpoint at or before step {to:,}"
    console.print(f"back to     step {step:,} of run {branch.run.id}{newest}; the run stays as it is")
    if documents is None:
        console.print("skipped     nothing: the branch reads the same batches again")
    else:
        first, last = branch.steps
        console.print(
            f"skipped     the batches of steps {first:,} to {last:,}: samples {lo:,} to {hi:,} of the data order, "
            f"{len(rows):,} documents"
        )
        print_table(
            ("corpus", "document", "tokens read", "of", "source"),
            [
                [row["corpus"], row["id"], f"{row['tokens_read']:,}", f"{row['tokens']:,}", row["source"]]
                for row in rows[:limit]
            ],
            numbers=("tokens read", "of"),
        )
        if len(rows) > limit:
            console.print(f"and {len(rows) - limit:,} more; `--limit N` shows more, `--json` all")
        print_gaps(documents.gaps, missing=True)
    console.print(f"branch      run {branch.resolved.run_id}")
    console.print(f"experiment  {branch.file}; `treering train {branch.file} --no-publish` trains it")


def _recorded(run: "RecordedRunDirectory", to: int, skip: int, *, json: bool) -> None:
    """Prints what the trainer of a recorded run needs to go back.

    Raises:
        NotFoundError: the run has reported no checkpoint at or before the step.
    """
    from treering.errors import NotFoundError

    segments = run.path_to_end()
    reported = run.checkpoints_on(segments)
    before = [each for each in reported if each.step <= to]
    if not before:
        there = ", ".join(f"{each.step:,}" for each in reported) or "none"
        raise NotFoundError(
            f"{run.path}: found no checkpoint at or before step {to:,}, expected one to go back to; the run has "
            f"reported those of the steps {there}"
        )
    found = before[-1]
    samples = _samples_of(segments, found.step + 1, found.step + skip)
    goes_on = "the same run goes on" if run.state() != "finished" else "a new run begins, since this one is finished"
    if json:
        print_json(
            {
                "run": run.id,
                "checkpoint": found.path,
                "step": found.step,
                "skipped": {"steps": skip, "samples": samples},
                "rewound": False,
            }
        )
        return
    console.print(
        f"run {run.id} was recorded: its own trainer must go back. Nothing was changed.",
        f"load        {found.path}, the checkpoint of step {found.step:,}",
        f"record      treering.start(…, resume_step={found.step}) with the same arguments: {goes_on}",
    )
    if skip:
        console.print(
            f"skip        the batches of steps {found.step + 1:,} to {found.step + skip:,}{_counted(samples)}: take "
            "them from the data loader and do not train on them"
            + ("; its audit then names the steps after them as fed otherwise" if run.blend_file.exists() else "")
        )


def _counted(samples: int | None) -> str:
    return "" if samples is None else f", {samples:,} samples"


def _samples_of(segments: "Sequence[RecordedSegment]", first: int, last: int) -> int | None:
    """Samples that all ranks reported of steps [first, last]; None where a step is missing or reported no tokens."""
    counts: dict[int, int | None] = {}
    for segment in segments:
        ranks = segment.attempt.header.world_size
        for ring in segment.rings():
            if first <= ring.step <= last:
                counts[ring.step] = None if ring.samples is None else ring.samples * ranks
    known = [count for count in counts.values() if count is not None]
    return sum(known) if len(known) == last - first + 1 else None
