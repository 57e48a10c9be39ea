"""Prints the runs of other trainers: their audit, their page, and where two of them differ."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treering.cli.numbers import age, number_text
from treering.cli.options import project
from treering.cli.output import console, print_table
from treering.cli.sensors import print_energy
from treering.runlog.columns.ranks import SUMMED_RANKS

if TYPE_CHECKING:
    from treering.audit.recorded.content import Content
    from treering.audit.recorded.difference import RecordedDifference
    from treering.audit.recorded.feed import StepFeed
    from treering.audit.recorded.report import RecordedAudit
    from treering.runlog.recorded_directory import RecordedRunDirectory, RecordedSegment


def blend_content(
    run: "RecordedRunDirectory",
    segments: "Sequence[RecordedSegment]",
    by_segment: "Sequence[Sequence[StepFeed]]",
) -> "Content":
    """The samples of a path of a run that reads by a blend, recomputed from the project's corpora.

    Raises:
        EvidenceError: a corpus is missing.
    """
    from treering.audit.corpora.catalog import find_corpora
    from treering.audit.recorded.content import check_content
    from treering.config.resolved_blend import ResolvedBlend
    from treering.errors import EvidenceError

    blend = ResolvedBlend.read(run.blend_file)
    catalog = find_corpora(project(), [blend])
    for finding in catalog.missing.values():
        raise EvidenceError(finding.text)
    corpora = [catalog.corpora[each.digest or ""] for each in blend.components]
    return check_content(run, segments, by_segment, blend, corpora)


def print_recorded_audit(found: "RecordedAudit") -> None:
    """Prints the audit of a recorded run, the verdict first."""
    console.print(found.verdict, style="bold")
    console.print(f"run          {found.run}, experiment {found.experiment}, {found.state}")
    if found.checkpoint:
        console.print(f"checkpoint   {found.checkpoint}")
    without = f"; {found.steps_without_samples:,} reported no tokens" if found.steps_without_samples else ""
    console.print(f"steps        {found.steps:,}, to step {found.step:,}{without}")
    to = f" to {found.ranks}" if found.ranks else ""
    console.print(f"samples      {found.samples:,} fed{to}, {found.different_samples:,} different ones")
    if found.order:
        console.print(f"order        {found.order}")
    for each in found.restarts:
        console.print(f"restart      {each.text}")
    if found.findings:
        console.heading("What does not hold")
        for finding in found.findings:
            console.print(f"  - {finding.text}")
    console.heading("Not proven")
    for text in found.not_proven:
        console.print(f"  - {text}")


def print_recorded_difference(found: "RecordedDifference") -> None:
    """Prints where two recorded runs were fed different samples."""
    console.print(found.text, style="bold")
    if found.other_order:
        console.print(f"{found.other_order:,} steps were fed the same samples in another order or on other ranks.")
    if found.config:
        console.print()
        rows = [[name, str(a), str(b)] for name, (a, b) in found.config.items()]
        print_table(("setting", found.run, found.other), rows)


def print_recorded_page(page: dict[str, Any], *, full: bool) -> None:
    """Prints one recorded run."""
    run = page["run"]
    console.print(f"run         {run['id']}, experiment {run['experiment']}", style="bold")
    console.print(f"state       {run['state']}, step {run['step']:,}, newest report {age(run['age_s'])}")
    if run["mirror"]:
        console.print(f"mirror      {run['mirror'].removeprefix('mirror ')}")
    metrics = "  ".join(f"{name} {number_text(value)}" for name, value in page["metrics"].items())
    console.print(f"metrics     {metrics or 'none reported yet'}")
    print_energy(page)
    _print_tokens(page)
    print_reproductions(page)
    print_notes(page)
    for score in page["scores"]:
        values = "  ".join(f"{name} {number_text(value)}" for name, value in score["metrics"].items())
        console.print(f"score       step {score['step']:,}, {score['task']}: {values}")
    if page["checkpoints"]:
        count, newest = len(page["checkpoints"]), page["checkpoints"][-1]
        console.print(f"checkpoints {count}; the newest of step {newest['step']:,}: {newest['path']}")
    if not full:
        console.print("more        --full: settings, attempts and checkpoints")
        return
    console.print(f"folder      {page['path_to_run']}")
    for each in page["attempts"]:
        begin = f"from step {each['resumed_step']:,}" if each["resumed_step"] else "from the beginning"
        console.print(
            f"attempt {each['attempt']:<3} {begin} to step {each['last_step']:,}, {_date(each['started_at'])}, "
            f"world size {each['world_size']}, host {each['host']}, commit {each['commit'] or 'unknown'}"
            + (" with changes" if each["dirty"] else "")
            + ("" if each["on_path"] else ", abandoned")
            + (f"; {each['status']}: {each['reason']}" if each["status"] else "")
        )
    if page["checkpoints"]:
        console.print()
        rows = [
            [f"{each['step']:,}", str(each["attempt"]), f"{each['bytes'] / 1e6:,.1f}", each["path"]]
            for each in page["checkpoints"]
        ]
        print_table(("checkpoint", "attempt", "MB", "path"), rows, numbers=("checkpoint", "attempt", "MB"))
    if page["config"]:
        console.print()
        print_table(("setting", "value"), [[name, str(value)] for name, value in page["config"].items()])


def _print_tokens(page: dict[str, Any]) -> None:
    """Prints the tokens that the run reported, and whose they are."""
    tokens = page["tokens"]
    if tokens is None:
        return
    ranks = page["attempts"][-1]["world_size"]
    if tokens["all_ranks"]:
        whose = f" of all {ranks} ranks" if ranks > 1 else ""
    else:
        whose = f" of rank 0 alone: not every one of {ranks} ranks reports all its tokens; `treering audit RUN` checks"
        if ranks > SUMMED_RANKS:
            whose = f" of rank 0 alone: found {ranks:,} ranks, and at most {SUMMED_RANKS} are added up"
    console.print(f"tokens      {tokens['count']:,}{whose}")


def print_reproductions(page: dict[str, Any]) -> None:
    """Prints what came out of the reproductions of a run, with their dates."""
    for each in page["reproductions"]:
        when = f", {_date(each['at'])}" if each["at"] else ""
        console.print(f"reproduced  {each['sentence'].removesuffix('.')} (reproduction {each['number']}{when})")


def print_notes(page: dict[str, Any]) -> None:
    """Prints the tags and notes of a run."""
    if page["tags"]:
        console.print(f"tags        {', '.join(page['tags'])}")
    for note in page["notes"]:
        console.print(f"note        {note['text']} ({note['by']}, {_date(note['at'])})")


def _date(at: float) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(at))} UTC"
