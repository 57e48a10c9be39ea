"""Manifests of checkpoints and conversions against config, headers, rings and journal; and which are missing."""

from collections.abc import Callable, Iterator

from treering.audit.evidence.record_fields import differs
from treering.audit.evidence.records import COPY, RunRecords, Saved, check_anchor, is_current
from treering.audit.evidence.run_log import AttemptRecords
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import EvidenceError
from treering.runlog.ancestry import origin_of
from treering.runlog.directory import MANIFEST_FILE, CheckpointDirectory, checkpoint_name
from treering.runlog.journal import CheckpointSaved, Line
from treering.runlog.records import AttemptHeader, CheckpointManifest, ConversionManifest


def check_checkpoints(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
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
            if line is not None and is_current(each.directory):
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
            found += check_anchor(records, each.manifest.journal, each.file)
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
        text = f"{path}: attempt {manifest.attempt} is missing, but {each.file} was saved by it; {COPY}"
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
        origin = origin_of(records.run, header, records.recipe or "")
        if origin is None:
            return applied, loss
        if not origin.own:
            return None, None
        place, step = records.attempts.get(origin.attempt), origin.step
    return None, None


def named_checkpoint(records: RunRecords, step: int, digest: str, by: str) -> Iterator[Finding]:
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


def check_conversions(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
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
            yield from named_checkpoint(records, step, manifest.source, str(file))
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
        for each in _that_loaded(records, saved.directory.step) if is_current(saved.directory) else ():
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


def check_missing(records: RunRecords, note: Callable[[str], None]) -> Iterator[Finding]:
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
