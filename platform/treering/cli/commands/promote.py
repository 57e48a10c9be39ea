"""`treering promote`: gives a checkpoint an alias, if its audit reaches what the project asks for."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treering.cli.options import JsonOption, PublicKeyOption, ReplayOption, project, trusted_keys
from treering.cli.output import console, print_json, print_table
from treering.cli.recorded import blend_content
from treering.progress import progress_bars

if TYPE_CHECKING:
    from treering.audit.promotion import Required
    from treering.audit.report import Finding, Level
    from treering.runlog.directory import CheckpointDirectory
    from treering.runlog.find import AnyRun
    from treering.runlog.recorded_directory import RecordedRunDirectory
    from treering.runlog.recorded_records import RecordedCheckpoint

CheckpointArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="The folder of a checkpoint, or a prefix of a run's id: its newest checkpoint."
    ),
]
AliasOption = Annotated[str, typer.Option("--alias", metavar="NAME", help="The alias, such as production.")]
ListOption = Annotated[bool, typer.Option("--list", help="List the promotions of all projects, by the ledger.")]


@dataclass(frozen=True, slots=True)
class _Judged:
    """A checkpoint and what its audit found."""

    run: "AnyRun"
    step: int
    digest: str
    place: str
    levels: "tuple[Level, ...]"
    findings: "tuple[Finding, ...]"
    not_proven: tuple[str, ...]


def promote(
    checkpoint: CheckpointArgument = "",
    *,
    alias: AliasOption = "",
    public_key: PublicKeyOption = None,
    replay: ReplayOption = None,
    list_: ListOption = False,
    json: JsonOption = False,
) -> None:
    """Give a checkpoint an alias, if its audit reaches the level that the project asks for.

    The level of each alias is in treering.yaml, as promotion: {production: content-bound}; an alias that is not there
    asks for content-bound. The audit runs now, and digests the checkpoint's files again.

    The promotion is an entry of the run's journal. From there it goes to the ledger and, as the alias of a version of
    the model that is named by the experiment, to MLflow. A target that does not answer gets it from `treering ship`.
    Of an experiment one checkpoint holds an alias: the one that was promoted last.

    Exit codes:
        0: promoted
        3: the audit does not reach the level, or something does not hold

    Examples:
        treering promote 0123 --alias production
        treering promote --list
    """
    from treering.audit.promotion import check_promotion, required_level
    from treering.errors import UserError
    from treering.runlog.journal import Promoted, login_name

    if list_ == bool(checkpoint) or list_ == bool(alias):
        raise UserError("promote: expected a CHECKPOINT with --alias NAME, or --list alone")
    if list_:
        _list(json=json)
        return
    required = required_level(project(), alias)
    judged = _judged(checkpoint, required, public_key, replay)
    check_promotion(judged.place, required, judged.levels, judged.findings, judged.not_proven)
    entry = Promoted(
        at=time.time(),
        by=login_name(),
        alias=alias,
        step=judged.step,
        checkpoint=judged.digest,
        level=str(judged.levels[-1]),
        required=str(required.level),
    )
    judged.run.journal.append(entry)
    arrived, later = _carry(judged.run)
    if json:
        print_json({"run": judged.run.id, **entry.model_dump(mode="json"), "arrived": arrived, "later": later})
        return
    console.print(
        f"{judged.place}: promoted to {alias}, level {entry.level}, {required.level} was asked for by {required.by}",
        *(f"arrived in {each}" for each in arrived),
        *(f"not yet in {name}: {problem}; `treering ship` brings it" for name, problem in later.items()),
    )


def _judged(checkpoint: str, required: "Required", public_key: Any, replay: int | None) -> _Judged:
    from treering.audit.report import Level
    from treering.runlog.find import find_recorded, named_checkpoint
    from treering.runlog.mirror import refuse_mirror

    here = project()
    verify = list(Level).index(required.level) >= list(Level).index(Level.CONTENT_BOUND)
    recorded = find_recorded(here.runs, checkpoint)
    if recorded is not None:
        refuse_mirror(recorded[0].path)
        return _judged_recorded(*recorded, verify=verify)
    found = named_checkpoint(here.runs, checkpoint)
    found = _in_its_run(found)
    refuse_mirror(found.run.path)
    return _judged_own(found, public_key, replay, verify=verify)


def _in_its_run(found: "CheckpointDirectory") -> "CheckpointDirectory":
    """The checkpoint in the folder of its run, for one that was published.

    Raises:
        NotFoundError: the run's folder does not have the checkpoint.
    """
    from treering.errors import NotFoundError
    from treering.runlog.directory import CheckpointDirectory, RunDirectory

    if not found.run.is_cut:
        return found
    run = RunDirectory(project().run(found.run.id))
    own = CheckpointDirectory(run.checkpoint_folder(found.step))
    if not own.has_manifest or own.digest != found.digest:
        raise NotFoundError(
            f"{found.path}: is a copy of a checkpoint that {own.path} does not have; promote it in the project that "
            "has the run's folder, since the promotion is an entry of the run's journal"
        )
    return own


def _judged_own(found: "CheckpointDirectory", public_key: Any, replay: int | None, *, verify: bool) -> _Judged:
    from treering.audit.attestation.check import attested
    from treering.audit.checkpoint import audit_checkpoint
    from treering.audit.corpora.content import check_files
    from treering.audit.replay import replay_steps, replayed

    with progress_bars() as progress:
        report = audit_checkpoint(found, project(), verify or replay is not None, progress)
        findings = () if report.verify else tuple(check_files(found, progress))
    if replay is not None:
        report = replayed(report, replay_steps(found, replay))
    report = attested(report, found, trusted_keys(public_key))
    open_ends = report.not_proven
    return _Judged(
        found.run,
        found.step,
        found.digest,
        str(found.path),
        report.levels,
        (*report.findings, *findings),
        open_ends,
    )


def _judged_recorded(run: "RecordedRunDirectory", checkpoint: "RecordedCheckpoint | None", *, verify: bool) -> _Judged:
    """The audit of a checkpoint that another trainer reported, or of its run's newest one.

    Raises:
        NotFoundError: the run has no checkpoint.
    """
    from treering.audit.recorded.report import audit_recorded
    from treering.audit.report import Level
    from treering.errors import NotFoundError
    from treering.runlog.recorded_records import RecordedCheckpoint

    on_path = {(each.attempt, each.step) for each in run.checkpoints_on(run.path_to_end())}
    read = [RecordedCheckpoint.read(file) for file in run.checkpoint_files()]
    wanted = [(each, digest) for each, digest in read if each == checkpoint]
    wanted = wanted or [(each, digest) for each, digest in read if (each.attempt, each.step) in on_path]
    if not wanted:
        raise NotFoundError(f"{run.path}: has no checkpoint; report it with run.checkpoint(PATH)")
    found, digest = wanted[-1]
    content = partial(blend_content, run) if verify and run.blend_file.exists() else None
    report = audit_recorded(run, found, content)
    levels = tuple(Level)[: list(Level).index(report.level) + 1]
    return _Judged(run, found.step, digest, found.path, levels, report.findings, report.not_proven)


def _carry(run: "AnyRun") -> tuple[list[str], dict[str, str]]:
    """Ships the run once; returns the targets that have it now, and why others do not, by name."""
    from treering.errors import StoreError, UserError
    from treering.ship.target import targets

    arrived, later = [], {}
    try:
        every = targets(project())
    except UserError as error:
        return [], {"any target": str(error)}
    for target in every:
        try:
            shipper = target.shipper(run)
            if shipper is not None:
                shipper.ship()
                arrived.append(f"{target.name} ({target.place})")
        except (StoreError, UserError) as error:
            later[target.name] = str(error)
    return arrived, later


def _list(*, json: bool) -> None:
    """Prints who promoted what, newest first."""
    from treering.store.ledger.database import Database, default_url
    from treering.store.ledger.search.promotions import promotions

    found = promotions(Database(default_url(project())))
    if json:
        print_json(found)
        return
    columns = ("project", "experiment", "alias", "run", "step", "checkpoint", "level", "by", "at (UTC)", "holds it")
    rows = [
        [
            each["project"],
            each["experiment"],
            each["alias"],
            each["run"][:8],
            f"{each['step']:,}",
            each["status"],
            each["level"],
            each["by"],
            f"{datetime.fromtimestamp(each['at'], UTC):%Y-%m-%d %H:%M}",
            "yes" if each["holds"] else "",
        ]
        for each in found
    ]
    if rows:
        print_table(columns, rows, numbers=("step",))
    else:
        console.print("no promotion yet; `treering promote CHECKPOINT --alias NAME` makes one")
