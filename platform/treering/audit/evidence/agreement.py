"""Holds the records of one run against each other, and finds what they name and what is missing.

Each record carries its own digest, so a change that is not digested again is found by the record itself. A change
that is digested again is found here: other records say otherwise, or name another digest. Of two records that
contradict each other the chains are believed first (rings, journals), then what a chain confirms.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from treering.audit.evidence.path import check_header, differs
from treering.audit.evidence.run_log import AttemptRecords, check_run_config, read_attempts
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolve import RUN_ID_LENGTH, Resolved
from treering.errors import ConfigError, EvidenceError, TreeringError
from treering.project import Project
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.chronicle import pending_evaluation
from treering.runlog.directory import (
    CHECKPOINTS,
    EVALUATIONS,
    MANIFEST_FILE,
    CheckpointDirectory,
    RunDirectory,
    checkpoint_name,
)
from treering.runlog.journal import (
    AttemptEnded,
    CheckpointRemoved,
    CheckpointSaved,
    Evaluated,
    Journal,
    Line,
)
from treering.runlog.lock import is_held
from treering.runlog.records import AttemptHeader, CheckpointManifest, ConversionManifest, Evaluation, Parent

_ROUNDING = 1e-9
_MEANS = ("acc", "acc_norm")


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
    conversions: dict[int, tuple[ConversionManifest, str]] = field(default_factory=dict)
    journal: list[Line] = field(default_factory=list)
    evaluated: list[Line] = field(default_factory=list)
    journals_hold: bool = True
    found: list[Finding] = field(default_factory=list)

    def in_place(self, step: int) -> Saved | None:
        """The checkpoint of a step that was not set aside."""
        return next((each for each in self.saved if each.directory.step == step and _is_current(each.directory)), None)

    def removed(self) -> dict[int, set[str | None]]:
        """Digests of the checkpoints that retention removed, by step."""
        gone: dict[int, set[str | None]] = {}
        for line in self.journal:
            if isinstance(line.entry, CheckpointRemoved):
                gone.setdefault(line.entry.step, set()).add(line.entry.checkpoint)
        return gone


def check_run(run: RunDirectory, project: Project, note: Callable[[str], None]) -> Iterator[Finding]:
    """Everything of a run but the files of its checkpoints and conversions.

    Args:
        run: the run, or a published checkpoint's folder.
        project: where copies of its records may be.
        note: told what is no damage but cannot be vouched for.
    """
    records = _read(run, project, note)
    found = records.found
    if records.recipe is not None:
        checks = (
            _check_attempts(records),
            _check_checkpoints(records, note),
            _check_conversions(records, note),
            _check_evaluations(records, note),
            _check_missing(records, note),
            _check_copies(records, project),
        )
        found += [finding for check in checks for finding in check]
    yield from dict.fromkeys(found)


def _read(run: RunDirectory, project: Project, note: Callable[[str], None]) -> RunRecords:
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
            records.found.append(Finding("record", str(error), file=str(path)))
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
        records.found.append(Finding("record", str(error), file=str(journal.path)))
        records.journals_hold = False
        return []
    if journal.torn() and not is_held(records.run.lock):
        note(
            f"{journal.path}: {journal.torn()} bytes of a line that was never finished; its writer died, it is no entry"
        )
    return lines


def _check_attempts(records: RunRecords) -> Iterator[Finding]:
    """Numbers, headers, ends, and where each attempt goes on from."""
    run = records.run
    folder = run.attempts_folder
    for number in range(1, max(records.attempts, default=0)):
        if number not in records.attempts and not run.is_cut:
            text = f"{folder / f'{number:04d}'}: attempt {number} is missing, later ones are there; {_COPY}"
            yield Finding("record", text, file=str(folder / f"{number:04d}"))
    for each in records.attempts.values():
        if each.header is not None:
            blamed = list(_check_header_identity(records, each))
            yield from blamed
            if not blamed and records.resolved is not None:
                yield from check_header(run, each.directory, each.header)
            if not blamed:
                yield from _check_parent(records, each)
            if each.header.journal is not None:
                yield from _check_anchor(records, each.header.journal, each.header_file)
        yield from _check_end(records, each)
    yield from _check_ended(records)
    yield from _check_newest(records)


def _check_newest(records: RunRecords) -> Iterator[Finding]:
    """The config's part that may change under a run: it is the one of the newest attempt."""
    newest = records.attempts[max(records.attempts)] if records.attempts else None
    if newest is None or newest.header is None or records.resolved is None or records.run.is_cut:
        return
    config, by = records.run.config_file, f"the newest attempt's header {newest.header_file}"
    for name in type(newest.header.config).model_fields:
        here, there = (getattr(each, name) for each in (records.resolved.attempt, newest.header.config))
        yield from differs(config, f"attempt.{name}", here, there, by)


_COPY = "a copy of the run log brings it back"


def _check_header_identity(records: RunRecords, each: AttemptRecords) -> Iterator[Finding]:
    """Whether header and rings belong together, and if not, which of them is to blame."""
    header, rings = each.header_file, each.directory.rings_file
    if each.first_prev is None or each.first_prev == each.digest:
        return
    confirmed, contradicted = _witnesses(records, each)
    if confirmed or (each.header is not None and each.header.attempt != each.number and not contradicted):
        by = f"; {confirmed} confirms the rings" if confirmed else ""
        text = (
            f"{header}: its digest is {each.digest}, but line 1 of {rings} goes on from {each.first_prev}{by}: the "
            f"header was digested again, or is another attempt's; {_COPY}"
        )
        yield Finding("record", text, file=str(header))
        return
    others = [other for other in records.attempts.values() if other.digest == each.first_prev]
    if contradicted or others:
        what = f"they are those of attempt {others[0].number}" if others else f"{contradicted} names other rings"
        text = (
            f"{rings} line 1: goes on from {each.first_prev}, but the attempt's header {header} is {each.digest}: "
            f"{what}; {_COPY}"
        )
        yield Finding("ring", text, file=str(rings), line=1, step=each.first_step)
        return
    text = (
        f"{header}: its digest is {each.digest}, but line 1 of {rings} goes on from {each.first_prev}: one of the two "
        f"was digested again or replaced; no other record tells which; {_COPY}"
    )
    yield Finding("record", text, file=str(header))


def _witnesses(records: RunRecords, each: AttemptRecords) -> tuple[str, str]:
    """A record that names a ring of an attempt as it is, and one that names another; empty where there is none."""
    confirmed = contradicted = ""
    said: list[tuple[int, str, str]] = [
        (saved.manifest.step, saved.manifest.ring, str(saved.file))
        for saved in records.saved
        if saved.manifest.attempt == each.number
    ]
    for other in records.attempts.values():
        parent = None if other.header is None else other.header.parent
        if parent is not None and parent.attempt == each.number and parent.run == records.recipe:
            said.append((parent.step, parent.ring, str(other.header_file)))
    for step, ring, place in said:
        mark = each.marks.get(step)
        if mark is not None and mark.ring.digest == ring:
            confirmed = place
        elif each.whole:
            contradicted = place
    for line in records.journal:
        if isinstance(line.entry, AttemptEnded) and line.entry.attempt == each.number:
            place = f"line {line.number} of {records.run.journal_file}"
            if line.entry.header == each.first_prev:
                confirmed = place
            elif line.entry.header == each.digest:
                contradicted = place
    return confirmed, contradicted


def _check_parent(records: RunRecords, each: AttemptRecords) -> Iterator[Finding]:
    """What a header says of the checkpoint that the attempt went on from."""
    parent = each.header.parent if each.header is not None else None
    if parent is None:
        if each.first_step > 1 and each.header is not None:
            text = f"{each.header_file}: parent is missing, but the rings begin at step {each.first_step}"
            yield Finding("record", text, file=str(each.header_file))
        return
    if each.first_step and each.first_step != parent.step + 1:
        text = (
            f"{each.directory.rings_file} line 1: step {each.first_step}, expected {parent.step + 1}: by "
            f"{each.header_file} the attempt goes on from step {parent.step}"
        )
        yield Finding("ring", text, file=str(each.directory.rings_file), line=1, step=each.first_step)
    if parent.run != records.recipe:
        yield from _check_other_run(records, each, parent)
        return
    before = records.attempts.get(parent.attempt)
    if parent.attempt >= each.number or before is None or before.is_empty:
        text = (
            f"{each.header_file}: goes on from attempt {parent.attempt}, which is missing in "
            f"{records.run.attempts_folder} or came later; {_COPY}"
        )
        yield Finding("record", text, file=str(records.run.attempt_folder(parent.attempt)))
        return
    mark = before.marks.get(parent.step)
    if mark is None and before.whole:
        text = (
            f"{before.directory.rings_file}: the rings end at step {before.last_step}, but {each.header_file} goes on "
            f"from the ring of step {parent.step}: rings were removed; {_COPY}"
        )
        yield Finding("ring", text, file=str(before.directory.rings_file))
    elif mark is not None and mark.ring.digest != parent.ring:
        line = parent.step - before.first_step + 1
        text = (
            f"{before.directory.rings_file} line {line}: ring of step {parent.step} is {mark.ring.digest}, but "
            f"{each.header_file} goes on from {parent.ring}: the ring was digested again"
        )
        yield Finding("ring", text, file=str(before.directory.rings_file), line=line, step=parent.step)
    yield from _named_checkpoint(records, parent.step, parent.checkpoint, str(each.header_file))


def _check_other_run(records: RunRecords, each: AttemptRecords, parent: Parent) -> Iterator[Finding]:
    other = records.run.ancestor(parent.run)
    name = short(parent.run, RUN_ID_LENGTH)
    if not other.path.is_dir():
        text = (
            f"{other.path}: run {name} is missing, but {each.header_file} goes on from its step {parent.step}; a copy "
            "of its folder brings it back, and no audit answers for its steps without it"
        )
        yield Finding("record", text, file=str(other.path))
        return
    try:
        recipe = other.resolved.recipe.digest
    except EvidenceError as error:
        text = f"{each.header_file}: goes on from run {name}, whose config does not hold: {error}"
        yield Finding("record", text, file=str(other.config_file))
        return
    if recipe != parent.run:
        text = f"{other.path}: is run {short(recipe, RUN_ID_LENGTH)}, expected {name} by {each.header_file}"
        yield Finding("record", text, file=str(other.config_file))
    try:
        ring = next((ring for ring in other.attempt(parent.attempt).rings() if ring.step == parent.step), None)
    except EvidenceError:
        return  # that run has its own finding
    if ring is None or ring.digest != parent.ring:
        text = (
            f"{each.header_file}: goes on from ring {parent.ring} of step {parent.step}, but "
            f"{other.attempt(parent.attempt).rings_file} has {ring.digest if ring else 'no ring of that step'}"
        )
        yield Finding("record", text, file=str(each.header_file))


def _check_end(records: RunRecords, each: AttemptRecords) -> Iterator[Finding]:
    """An attempt's end against its rings."""
    if each.end is None or not each.whole:
        return
    end = each.directory.end_file
    if each.end.step != each.last_step:
        rings, expected = each.directory.rings_file, each.end.step
        text = (
            f"{rings}: the rings end at step {each.last_step}, but {end} says that the attempt ended at step "
            f"{expected}: rings were removed, or the end is another attempt's"
        )
        yield Finding("ring", text, file=str(rings if each.last_step < expected else end))
    if records.resolved is None or each.end.status != "finished":
        return
    try:
        num_steps = records.resolved.schedule.num_steps
    except ConfigError:  # the config has its own finding
        return
    if each.end.step != num_steps:
        text = f"{end}: status is finished at step {each.end.step}, but the schedule has {num_steps} steps"
        yield Finding("record", text, file=str(end))


def _check_ended(records: RunRecords) -> Iterator[Finding]:
    """Attempts against what the journal says of their ends."""
    run = records.run
    for line in records.journal:
        entry = line.entry
        if not isinstance(entry, AttemptEnded):
            continue
        place = f"line {line.number} of {run.journal_file}"
        each = records.attempts.get(entry.attempt)
        if each is None or each.is_empty:
            if not run.is_cut:
                path = run.attempt_folder(entry.attempt)
                text = f"{path}: attempt {entry.attempt} is missing, but {place} names it; {_COPY}"
                yield Finding("record", text, file=str(path))
            continue
        if each.digest is not None and each.digest != entry.header and each.first_prev in {None, each.digest}:
            text = f"{each.header_file}: its digest is {each.digest}, but {place} names {entry.header}"
            yield Finding("record", f"{text}: it was digested again", file=str(each.header_file))
        if not run.is_cut:
            yield from _check_tail(each, entry, place)
            yield from _check_end_digest(each, entry, place)


def _check_tail(each: AttemptRecords, entry: AttemptEnded, place: str) -> Iterator[Finding]:
    """The number of rings and the last one, as the journal has them."""
    rings, last = each.directory.rings_file, None if each.last is None else each.last.digest
    if not each.whole or (each.rings, last) == (entry.rings, entry.last_ring):
        return
    if each.rings < entry.rings:
        text = (
            f"{rings} line {each.rings}: the rings end here, but {place} says that the attempt left {entry.rings} "
            f"rings, the last {entry.last_ring}: rings were removed; {_COPY}"
        )
    else:
        text = (
            f"{rings} line {each.rings}: {each.rings} rings, the last {last}; but {place} says that the attempt left "
            f"{entry.rings}, the last {entry.last_ring}: rings were put in or digested again"
        )
    yield Finding("ring", text, file=str(rings), line=each.rings)


def _check_end_digest(each: AttemptRecords, entry: AttemptEnded, place: str) -> Iterator[Finding]:
    end = each.directory.end_file
    if entry.end in {None, each.end_digest} or (each.end_digest is None and end.exists()):
        return  # one that cannot be read has its own finding
    found = "is missing" if each.end_digest is None else f"has digest {each.end_digest}"
    text = f"{end}: {found}, but {place} names {entry.end}; {_COPY}"
    yield Finding("record", text, file=str(end))


def _check_anchor(records: RunRecords, head: str, by: Path) -> Iterator[Finding]:
    """Whether the journal still has the entry that another record names as its last one."""
    path = records.run.journal_file
    if head == records.recipe or not records.journals_hold or any(line.digest == head for line in records.journal):
        return
    what = "is missing" if not records.journal else f"has no entry {head}"
    text = f"{path}: {what}, but {by} names it as the journal's last one: entries were removed; {_COPY}"
    yield Finding("record", text, file=str(path))


def _is_current(checkpoint: CheckpointDirectory) -> bool:
    return checkpoint.path.parent.name == CHECKPOINTS


def _check_checkpoints(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
    """Manifests against config, headers, rings, and the journal."""
    entered = {line.entry.checkpoint: line for line in records.journal if isinstance(line.entry, CheckpointSaved)}
    steps = {line.entry.step: line for line in records.journal if isinstance(line.entry, CheckpointSaved)}
    for each in records.saved:
        if contradicts_its_folder(each.directory, each.manifest, records.recipe):
            continue  # the checkpoint has its own finding
        found = list(_check_manifest(records, each))
        anchored = each.digest in entered
        if records.journal and not anchored and not records.run.is_cut and records.journals_hold:
            line = steps.get(each.manifest.step)
            newest = max(records.attempts, default=0)
            if line is not None and _is_current(each.directory):
                text = (
                    f"{each.file}: its digest is {each.digest}, but line {line.number} of "
                    f"{records.run.journal_file} names {_digest_of(line)} for step {each.manifest.step}: the "
                    "manifest was digested again or replaced"
                )
                found.insert(0, Finding("record", text, file=str(each.file)))
            elif each.manifest.attempt == newest and each.manifest.step > max(steps, default=0):
                note(f"{each.file}: the journal has no entry for it yet; its writer died, the next start writes it")
            else:
                text = f"{each.file}: the journal {records.run.journal_file} has no entry for it: it was put in"
                found.insert(0, Finding("record", text, file=str(each.file)))
        elif each.manifest.journal is not None:
            found += _check_anchor(records, each.manifest.journal, each.file)
        yield from found


def _digest_of(line: Line) -> str | None:
    return line.entry.checkpoint if isinstance(line.entry, CheckpointSaved) else None


def contradicts_its_folder(
    checkpoint: CheckpointDirectory, manifest: CheckpointManifest | ConversionManifest, recipe: str | None
) -> str:
    """What a manifest says that its folder's name or its run contradicts, in words; empty where it is in its place."""
    if manifest.step != checkpoint.step:
        return f"step is {manifest.step}, but its folder is that of step {checkpoint.step}"
    if recipe is not None and manifest.run != recipe:
        ids = (short(each, RUN_ID_LENGTH) for each in (manifest.run, recipe))
        return "run is {}, but its folder is in run {}".format(*ids)
    return ""


def _check_manifest(records: RunRecords, each: Saved) -> Iterator[Finding]:
    manifest, run = each.manifest, records.run
    attempt = records.attempts.get(manifest.attempt)
    if attempt is None or attempt.is_empty:
        path = run.attempt_folder(manifest.attempt)
        text = f"{path}: attempt {manifest.attempt} is missing, but {each.file} was saved by it; {_COPY}"
        yield Finding("record", text, file=str(path))
        return
    said: list[tuple[str, object, str]] = []
    if records.resolved is not None:
        recipe, by = records.resolved.recipe, str(run.config_file)
        said += [(name, getattr(recipe, name), by) for name in ("blend", "tokenizer")]
    if attempt.header is not None:
        header, by = attempt.header, str(attempt.header_file)
        said += [("code", header.code["digest"], by), ("environment", header.environment["digest"], by)]
        said += [("upstream", header.upstream, by), ("layout", header.layout, by)]
    mark = attempt.marks.get(manifest.step)
    if mark is not None:
        by = f"the ring of step {manifest.step} in {attempt.directory.rings_file}"
        said += [("ring", mark.ring.digest, by), ("consumed_samples", mark.ring.consumed_samples, by)]
        said.append(("consumed_tokens", mark.ring.consumed_tokens, by))
        applied, loss = _totals(records, attempt, manifest.step)
        if applied is not None:
            by = f"the rings on the path, the last in {attempt.directory.rings_file}"
            said.append(("applied_steps", applied, by))
            if manifest.validation_loss is not None:
                said.append(("validation_loss", loss, by))
    elif attempt.whole:
        text = (
            f"{attempt.directory.rings_file}: the rings end at step {attempt.last_step}, but {each.file} was cut after "
            f"step {manifest.step}: rings were removed, or the manifest is another attempt's"
        )
        yield Finding("ring", text, file=str(attempt.directory.rings_file))
    for name, expected, by in said:
        yield from differs(each.file, name, getattr(manifest, name), expected, by)


def _totals(records: RunRecords, attempt: AttemptRecords, step: int) -> tuple[int | None, float | None]:
    """Steps applied on the path of this run up to a step, and its newest held-out loss; None where it is not whole."""
    applied, loss, seen = 0, None, set[int]()
    place: AttemptRecords | None = attempt
    while place is not None and place.number not in seen:
        seen.add(place.number)
        mark, header = place.marks.get(step), place.header
        if mark is None or header is None:
            return None, None
        applied += mark.applied
        loss = mark.validation_loss if loss is None else loss
        if header.parent is None:
            return applied, loss
        if header.parent.run != records.recipe:
            return None, None
        place, step = records.attempts.get(header.parent.attempt), header.parent.step
    return None, None


def _named_checkpoint(records: RunRecords, step: int, digest: str, by: str) -> Iterator[Finding]:
    """Whether a checkpoint that a record names is there, or was removed by retention, as the journal says."""
    if records.run.is_cut or any(each.digest == digest for each in records.saved):
        return
    name = checkpoint_name(step)
    if name in records.unreadable or {digest, None} & records.removed().get(step, set()):
        return
    in_place = records.in_place(step)
    folder = records.run.checkpoints_folder / name
    if in_place is not None:
        text = f"{in_place.file}: its digest is {in_place.digest}, but {by} names {digest} for step {step}"
        yield Finding("record", f"{text}: one of them was digested again or replaced", file=str(in_place.file))
    elif not records.journal and _may_remove(records):
        return  # an earlier version removed checkpoints without a record
    else:
        text = f"{folder}: the checkpoint of step {step} is missing, but {by} names it and nothing says it was removed"
        yield Finding("checkpoint", text, file=str(folder))


def _may_remove(records: RunRecords) -> bool:
    """Whether an attempt's config lets retention remove checkpoints."""
    headers = [each.header for each in records.attempts.values() if each.header is not None]
    return not headers or any(header.config.checkpoint.keep_last is not None for header in headers)


def _check_conversions(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
    """Conversions against the checkpoints that they were made from, and the headers that name them."""
    for step, (manifest, digest) in records.conversions.items():
        path = records.run.conversion_folder(step)
        file, source = path / MANIFEST_FILE, records.in_place(step)
        if contradicts_its_folder(CheckpointDirectory(path), manifest, records.recipe):
            continue  # the conversion has its own finding
        if source is not None:
            by = str(source.file)
            yield from differs(file, "source", manifest.source, source.digest, by)
            yield from differs(file, "layout", manifest.layout, source.manifest.layout, by)
        elif checkpoint_name(step) not in records.unreadable:
            yield from _named_checkpoint(records, step, manifest.source, str(file))
        for each in _that_loaded(records, step):
            if manifest.created_at > each.started_at:
                note(f"{file}: was made again after attempt {each.attempt}, which had loaded an earlier conversion")
            else:
                by = f"the header of attempt {each.attempt} in {records.run.path}"
                yield from differs(file, "digest", digest, each.converted, by)
    if not records.run.is_cut:
        _note_missing_conversions(records, note)


def _note_missing_conversions(records: RunRecords, note: Callable[[str], None]) -> None:
    for saved in records.saved:
        folder = records.run.conversion_folder(saved.directory.step)
        for each in _that_loaded(records, saved.directory.step) if _is_current(saved.directory) else ():
            if not folder.exists():
                note(
                    f"{folder}: the conversion that attempt {each.attempt} loaded is missing; `treering checkpoint "
                    "convert` makes it again from the checkpoint"
                )


def _that_loaded(records: RunRecords, step: int) -> Iterator[AttemptHeader]:
    """Headers of the attempts that loaded the conversion of a step of this run."""
    for each in records.attempts.values():
        header = each.header
        if header is None or header.converted is None or header.parent is None:
            continue
        if header.parent.step == step and header.parent.run == records.recipe:
            yield header


def _check_evaluations(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
    """Evaluations against their names, their checkpoints, their own items, and the journal."""
    folder = records.run.evaluations_folder
    place = records.run.evaluation_journal_file
    entered = {line.entry.evaluation: line for line in records.evaluated if isinstance(line.entry, Evaluated)}
    newest = {line.entry.checkpoint: line for line in records.evaluated if isinstance(line.entry, Evaluated)}
    unanchored = []
    for each in records.scored:
        line = entered.get(each.digest)
        if each.file.stem != checkpoint_name(each.record.step):
            text = f"{each.file}: is the evaluation of step {each.record.step}: it was copied or swapped"
            yield Finding("record", text, file=str(each.file))
            continue
        if records.evaluated and line is None:
            yield Finding("record", _not_entered(each, newest.get(each.record.checkpoint), place), file=str(each.file))
            continue
        if not records.evaluated and each.record.anchored and records.journals_hold:
            text = f"{place}: is missing, but {each.file} is an evaluation that it must name; {_COPY}"
            yield Finding("record", text, file=str(place))
        yield from _check_scores(records, each)
        if line is not None:
            yield from _check_entry(each, line, place)
        if line is None or (isinstance(line.entry, Evaluated) and line.entry.found):
            unanchored.append(each.file.name)
    if unanchored and records.journals_hold:
        note(
            f"{folder}: not anchored: {', '.join(sorted(unanchored))}: an earlier version wrote "
            f"{'it' if len(unanchored) == 1 else 'them'} without an entry in a journal; scored again, they get one"
        )
    yield from _check_missing_evaluations(records, newest, note)


def _check_entry(each: Scored, line: Line, place: Path) -> Iterator[Finding]:
    """What an entry says of its evaluation beside its digest."""
    entry, record = line.entry, each.record
    if isinstance(entry, Evaluated):
        here = (entry.step, entry.checkpoint, entry.harness, entry.tasks, entry.scores, entry.items)
        there = (
            record.step, record.checkpoint, record.harness, record.tasks, record.scores_digest, record.items_digest
        )  # fmt: skip
        if here != there:
            text = (
                f"{place} line {line.number}: says of {each.file} what that does not say: the entry was digested again"
            )
            yield Finding("record", text, file=str(place), line=line.number)


def _not_entered(each: Scored, other: Line | None, place: Path) -> str:
    if other is None:
        what = f"{place} has no entry for it: it was put in, or its checkpoint was changed"
    else:
        name = _evaluation_of(other)
        what = f"line {other.number} of {place} names {name} for its checkpoint: it was digested again or replaced"
    return f"{each.file}: its digest is {each.digest}, but {what}"


def _check_missing_evaluations(
    records: RunRecords, newest: dict[str, Line], note: Callable[[str], None]
) -> Iterator[Finding]:
    """The newest evaluation of each checkpoint, as the journal names it."""
    folder = records.run.evaluations_folder
    digests = {each.digest for each in records.scored}
    for checkpoint, line in newest.items():
        entry = line.entry
        if not isinstance(entry, Evaluated) or entry.evaluation in digests:
            continue
        file = folder / f"{checkpoint_name(entry.step)}.json"
        if file.exists() or file.is_symlink():
            continue  # it has its own finding
        pending = pending_evaluation(file)
        if pending.exists() and _has_digest(pending, entry.evaluation):
            note(f"{pending}: has its entry and not yet its name; its writer died, `treering evaluate` goes on")
            continue
        if records.run.is_cut and all(each.digest != checkpoint for each in records.saved):
            continue
        text = f"{file}: the evaluation of step {entry.step} is missing, but line {line.number} of "
        text += f"{records.run.evaluation_journal_file} names it ({entry.evaluation}); {_COPY}"
        yield Finding("record", text, file=str(file))


def _evaluation_of(line: Line) -> str | None:
    return line.entry.evaluation if isinstance(line.entry, Evaluated) else None


def _has_digest(file: Path, digest: str) -> bool:
    try:
        return Evaluation.read(file)[1] == digest
    except EvidenceError:
        return False


def _check_scores(records: RunRecords, each: Scored) -> Iterator[Finding]:
    record, file = each.record, each.file
    yield from differs(file, "run", record.run, records.recipe, "the run that its folder belongs to")
    aside = each.file.parent.parent if each.file.parent.parent.name.startswith("superseded-") else None
    of_step = [
        saved
        for saved in records.saved
        if saved.directory.step == record.step
        and (_is_current(saved.directory) if aside is None else saved.directory.path.parent == aside)
    ]
    if not of_step and not records.run.is_cut:
        yield from _named_checkpoint(records, record.step, record.checkpoint, str(file))
    for saved in of_step:
        yield from differs(file, "checkpoint", record.checkpoint, saved.digest, str(saved.file))
        by = str(saved.file)
        yield from differs(file, "consumed_tokens", record.consumed_tokens, saved.manifest.consumed_tokens, by)
    for task, by_shots in (record.items or {}).items():
        for shots, by_metric in by_shots.items():
            scores = record.scores.get(task, {}).get(shots, {})
            for metric, items in by_metric.items():
                mean = math.fsum(items.values()) / len(items) if items else math.nan
                if metric in _MEANS and items and not abs(scores.get(metric, math.nan) - mean) <= _ROUNDING:
                    text = (
                        f"{file}: scores.{task}.{shots}.{metric} is {scores.get(metric)}, expected {mean}, the mean of "
                        f"its {len(items)} items in the same file"
                    )
                    yield Finding("record", text, file=str(file))


def _check_missing(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
    """Checkpoints that the journal saved, or that a config must have left, and that are not there."""
    run = records.run
    if run.is_cut:
        if not records.saved and not records.unreadable and run.path.parent.name != "ancestors":
            text = f"{run.checkpoints_folder}: the published checkpoint is missing; `dvc checkout` restores it"
            yield Finding("checkpoint", text, file=str(run.checkpoints_folder))
        return
    there, removed = {each.digest for each in records.saved}, records.removed()
    named = set[int]()
    for line in records.journal:
        entry = line.entry
        if not isinstance(entry, CheckpointSaved) or entry.checkpoint in there or entry.step in named:
            continue
        if {entry.checkpoint, None} & removed.get(entry.step, set()):
            continue
        name = checkpoint_name(entry.step)
        if name in records.unreadable or records.in_place(entry.step) is not None:
            continue  # it has its own finding
        if (run.checkpoints_folder / name).exists():
            continue
        named.add(entry.step)
        folder = run.checkpoints_folder / name
        text = (
            f"{folder}: the checkpoint of step {entry.step} is missing: line {line.number} of "
            f"{run.journal_file} says that it was saved ({entry.checkpoint}), and no line that it was removed"
        )
        yield Finding("checkpoint", text, file=str(folder))
    if not records.journal:
        for text in _missing_steps(records):
            note(text)


def _missing_steps(records: RunRecords) -> Iterator[str]:
    """Checkpoints that an attempt of an earlier version must have saved, where no config lets retention remove any."""
    if _may_remove(records):
        return
    steps = {each.directory.step for each in records.saved} | {
        int(name.removeprefix("step-")) for name in records.unreadable
    }
    for each in records.attempts.values():
        if each.header is None or each.last is None:
            continue
        saved = [other.manifest.step for other in records.saved if other.manifest.attempt == each.number]
        every = each.header.config.checkpoint.every_steps
        try:
            failed = {incident.step for incident in each.directory.incidents()}
        except EvidenceError:
            continue
        ended = each.end is not None and each.end.status != "failed"
        newest = each.last.step if ended else max(saved, default=0)
        for step in range(-(-each.first_step // every) * every, newest + 1, every):
            if step not in steps and step not in failed:
                folder = records.run.checkpoint_folder(step)
                yield (
                    f"{folder}: no checkpoint of step {step}, though attempt {each.number} saved one every {every} "
                    "steps and no attempt's config lets one be removed; the run has no journal, which would say why"
                )


def _check_copies(records: RunRecords, project: Project) -> Iterator[Finding]:
    """A cut copy against the run that it was cut from, where that is in the project; and the other way round."""
    run = records.run
    if not run.is_cut:
        yield from _check_published_end(records, project)
        return
    original = RunDirectory(project.runs / short(records.recipe or "", RUN_ID_LENGTH))
    if original.path.resolve() == run.path.resolve():
        return
    for each in records.attempts.values():
        other = AttemptDirectory(original.attempt_folder(each.number)).header_file
        if each.digest is None or not other.is_file():
            continue
        twin = original.attempt(each.number)
        if twin.has_header:
            yield from differs(each.header_file, "digest", each.digest, twin.header_digest, f"its original {other}")
    pairs = ((records.journal, original.path), (records.evaluated, original.evaluations_folder))
    for lines, folder in pairs:
        yield from _check_journal_copy(lines, Journal.of(folder, records.recipe or ""), run)
    for saved in records.saved:
        twin_checkpoint = CheckpointDirectory(original.checkpoints_folder / saved.directory.path.name)
        if twin_checkpoint.has_manifest and twin_checkpoint.manifest.attempt == saved.manifest.attempt:
            by = f"its original {twin_checkpoint.manifest_file}"
            yield from differs(saved.file, "digest", saved.digest, twin_checkpoint.digest, by)


def _check_journal_copy(copied: list[Line], original: Journal, run: RunDirectory) -> Iterator[Finding]:
    """A copy of a journal is where its original began."""
    try:
        lines = original.lines()
    except EvidenceError:  # it has its own finding
        return
    for number, line in enumerate(copied):
        if number >= len(lines) or lines[number].digest != line.digest:
            what = "is missing" if number >= len(lines) else f"is {lines[number].digest}"
            text = f"{original.path} line {number + 1}: {what}, but its copy beside or in {run.path} has {line.digest}"
            yield Finding("record", f"{text}: one of them was changed; {_COPY}", file=str(original.path))
            return


def _check_published_end(records: RunRecords, project: Project) -> Iterator[Finding]:
    """A published run had ended: its last attempt's `end.json` was written before it was published."""
    published = RunDirectory(project.published)
    try:
        if records.journal or published.resolved.recipe.digest != records.recipe:
            return
        [final] = published.checkpoints()
        attempt = records.attempts.get(final.manifest.attempt)
    except (TreeringError, ValueError):
        return
    if attempt is not None and attempt.end is None and not attempt.directory.end_file.exists():
        end = attempt.directory.end_file
        text = f"{end}: is missing, but the run was published in {published.path}, so that attempt had ended; {_COPY}"
        yield Finding("record", text, file=str(end))
