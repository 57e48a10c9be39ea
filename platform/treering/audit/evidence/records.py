"""Everything that is read of one run before its records are compared with each other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from treering.audit.evidence.run_log import AttemptRecords, check_run_config, read_attempts
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH, Resolved
from treering.errors import EvidenceError
from treering.project import Project
from treering.runlog.analyses import ANALYSES, Analysis
from treering.runlog.directory import EVALUATIONS, MANIFEST_FILE, CheckpointDirectory, RunDirectory
from treering.runlog.folders import CHECKPOINTS
from treering.runlog.journal import CheckpointRemoved, Journal, Line
from treering.runlog.lock import is_held
from treering.runlog.records import CheckpointManifest, ConversionManifest, Evaluation

COPY = "a copy of the run log brings it back"
"""What helps where a record is missing or was changed."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint whose manifest could be read."""

    directory: CheckpointDirectory
    manifest: CheckpointManifest
    digest: str

    @property
    def file(self) -> Path:
        """Its manifest."""
        return self.directory.manifest_file


@dataclass(frozen=True, slots=True)
class Scored:
    """An evaluation that could be read."""

    file: Path
    record: Evaluation
    digest: str


@dataclass(frozen=True, slots=True)
class Analysed:
    """An analysis of a checkpoint that could be read."""

    file: Path
    record: Analysis
    digest: str


@dataclass(slots=True)
class RunRecords:
    """Everything that was read of a run.

    Attributes:
        run: the run.
        resolved: its config, None where it cannot be read or is another run's.
        recipe: digest of its recipe, None where neither config nor header says it.
        attempts: by number.
        saved: checkpoints with a manifest, those that were set aside as well.
        unreadable: folders of checkpoints without one that can be read.
        scored: evaluations that can be read.
        analysed: analyses of checkpoints that can be read.
        conversions: by step.
        journal: entries of the run's journal.
        evaluated: entries of the journal of evaluations.
        journals_hold: whether both journals could be read.
        found: what does not hold.
    """

    run: RunDirectory
    resolved: Resolved | None = None
    recipe: str | None = None
    attempts: dict[int, AttemptRecords] = field(default_factory=dict)
    saved: list[Saved] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    scored: list[Scored] = field(default_factory=list)
    analysed: list[Analysed] = field(default_factory=list)
    conversions: dict[int, tuple[ConversionManifest, str]] = field(default_factory=dict)
    journal: list[Line] = field(default_factory=list)
    evaluated: list[Line] = field(default_factory=list)
    journals_hold: bool = True
    found: list[Finding] = field(default_factory=list)

    def in_place(self, step: int) -> Saved | None:
        """The checkpoint of a step that was not set aside."""
        return next((each for each in self.saved if each.directory.step == step and is_current(each.directory)), None)

    def removed(self) -> dict[int, set[str | None]]:
        """Digests of the checkpoints that retention removed, by step."""
        gone: dict[int, set[str | None]] = {}
        for line in self.journal:
            if isinstance(line.entry, CheckpointRemoved):
                gone.setdefault(line.entry.step, set()).add(line.entry.checkpoint)
        return gone


def read_records(run: RunDirectory, project: Project, note: Callable[[str], None]) -> RunRecords:
    """Reads everything of a run; what cannot be read is in `found`, or has a finding of its own elsewhere."""
    records = RunRecords(run)
    records.found += check_run_config(run, project)
    for directory in (*run.checkpoints(), *run.superseded()):
        try:
            records.saved.append(Saved(directory, directory.manifest, directory.digest))
        except EvidenceError:  # the checkpoint has its own finding
            records.unreadable.add(directory.path.name)
    places = [run.evaluations_folder, *sorted(run.path.glob(f"superseded-*/{EVALUATIONS}"))]
    for path in (path for place in places for path in sorted(place.glob("*.json"))):
        try:
            records.scored.append(Scored(path, *Evaluation.read(path)))
        except EvidenceError as error:
            records.found.append(Finding.from_error(error, "record"))
    _read_analyses(records, places)
    for path in sorted(run.conversions_folder.glob(f"step-*/{MANIFEST_FILE}")):
        try:
            records.conversions[int(path.parent.name.removeprefix("step-"))] = ConversionManifest.read(path)
        except (EvidenceError, ValueError):  # the conversion has its own finding
            continue
    wanted = _wanted(records)
    read = read_attempts(run, lambda number: wanted.get(number, set()), records.found, note)
    records.attempts = {each.number: each for each in read}
    records.recipe = _recipe(records)
    if records.recipe is not None:
        records.journal = _journal(records, run.path, note)
        records.evaluated = _journal(records, run.evaluations_folder, note)
    return records


def _read_analyses(records: RunRecords, places: Sequence[Path]) -> None:
    files = [(kind, path) for kind in ANALYSES for place in places for path in (place / kind.analysis).glob("*.json")]
    for kind, path in sorted(files, key=lambda each: each[1]):
        try:
            records.analysed.append(Analysed(path, *kind.read(path)))
        except EvidenceError as error:
            records.found.append(Finding.from_error(error, "record"))


def _wanted(records: RunRecords) -> dict[int, set[int]]:
    """The steps of each attempt that manifests and headers name."""
    wanted: dict[int, set[int]] = {}
    for each in records.saved:
        wanted.setdefault(each.manifest.attempt, set()).add(each.manifest.step)
    for attempt in records.run.attempts():
        if attempt.has_header and (parent := attempt.header.parent) is not None:
            wanted.setdefault(parent.attempt, set()).add(parent.step)
    return wanted


def _recipe(records: RunRecords) -> str | None:
    """The run's recipe: by its config, unless headers that fit the folder's name say otherwise."""
    run = records.run
    headers = {each.header.run for each in records.attempts.values() if each.header is not None}
    try:
        records.resolved = run.resolved
    except EvidenceError:
        return headers.pop() if len(headers) == 1 else None
    recipe = records.resolved.recipe.digest
    if recipe not in headers and len(headers) == 1:
        by_headers = headers.pop()
        config = run.config_file
        text = (
            f"{config}: is the config of run {short(recipe or '', RUN_ID_LENGTH)}, but every header in "
            f"{run.attempts_folder} is one of run {short(by_headers, RUN_ID_LENGTH)}: the config was replaced or "
            "digested again; a copy of the run log brings it back"
        )
        records.found.append(Finding("record", text, file=str(config)))
        records.resolved, recipe = None, by_headers
    return recipe


def _journal(records: RunRecords, folder: Path, note: Callable[[str], None]) -> list[Line]:
    journal = Journal.of(folder, records.recipe or "")
    try:
        lines = journal.lines()
    except EvidenceError as error:
        records.found.append(Finding.from_error(error, "record", journal.path))
        records.journals_hold = False
        return []
    if journal.torn() and not is_held(records.run.lock):
        note(
            f"{journal.path}: {journal.torn()} bytes of a line that was never finished; its writer died, it is no entry"
        )
    return lines


def check_anchor(records: RunRecords, head: str, by: Path) -> Iterator[Finding]:
    """Whether the journal still has the entry that another record names as its last one."""
    path = records.run.journal_file
    if head == records.recipe or not records.journals_hold or any(line.digest == head for line in records.journal):
        return
    what = "is missing" if not records.journal else f"has no entry {head}"
    text = f"{path}: {what}, but {by} names it as the journal's last one: entries were removed; {COPY}"
    yield Finding("record", text, file=str(path))


def is_current(checkpoint: CheckpointDirectory) -> bool:
    """Whether a checkpoint was not set aside: no later attempt wrote its step again."""
    return checkpoint.path.parent.name == CHECKPOINTS
