"""An attempt's header, rings and end against the other records of its run: numbers, parents, and the journal."""

from collections.abc import Iterator

from treering.audit.evidence.checkpoints import named_checkpoint
from treering.audit.evidence.record_fields import check_header, differs
from treering.audit.evidence.records import COPY, RunRecords, check_anchor
from treering.audit.evidence.run_log import AttemptRecords
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import ConfigError, EvidenceError
from treering.runlog.journal import AttemptEnded
from treering.runlog.records import Parent


def check_attempts(records: RunRecords) -> Iterator[Finding]:
    """Numbers, headers, ends, and where each attempt goes on from."""
    run = records.run
    folder = run.attempts_folder
    for number in range(1, max(records.attempts, default=0)):
        if number not in records.attempts and not run.is_cut:
            text = f"{folder / f'{number:04d}'}: attempt {number} is missing, later ones are there; {COPY}"
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
                yield from check_anchor(records, each.header.journal, each.header_file)
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
            f"header was digested again, or is another attempt's; {COPY}"
        )
        yield Finding("record", text, file=str(header))
        return
    others = [other for other in records.attempts.values() if other.digest == each.first_prev]
    if contradicted or others:
        what = f"they are those of attempt {others[0].number}" if others else f"{contradicted} names other rings"
        text = (
            f"{rings} line 1: goes on from {each.first_prev}, but the attempt's header {header} is {each.digest}: "
            f"{what}; {COPY}"
        )
        yield Finding("ring", text, file=str(rings), line=1, step=each.first_step)
        return
    text = (
        f"{header}: its digest is {each.digest}, but line 1 of {rings} goes on from {each.first_prev}: one of the two "
        f"was digested again or replaced; no other record tells which; {COPY}"
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
    """What a header says about the checkpoint that the attempt continued from."""
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
            f"{records.run.attempts_folder} or came later; {COPY}"
        )
        yield Finding("record", text, file=str(records.run.attempt_folder(parent.attempt)))
        return
    mark = before.marks.get(parent.step)
    if mark is None and before.whole:
        text = (
            f"{before.directory.rings_file}: the rings end at step {before.last_step}, but {each.header_file} goes on "
            f"from the ring of step {parent.step}: rings were removed; {COPY}"
        )
        yield Finding("ring", text, file=str(before.directory.rings_file))
    elif mark is not None and mark.ring.digest != parent.ring:
        line = parent.step - before.first_step + 1
        text = (
            f"{before.directory.rings_file} line {line}: ring of step {parent.step} is {mark.ring.digest}, but "
            f"{each.header_file} goes on from {parent.ring}: the ring was digested again"
        )
        yield Finding("ring", text, file=str(before.directory.rings_file), line=line, step=parent.step)
    yield from named_checkpoint(records, parent.step, parent.checkpoint, str(each.header_file))


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
    """Attempts, compared with the journal's entries about their ends."""
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
                text = f"{path}: attempt {entry.attempt} is missing, but {place} names it; {COPY}"
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
            f"rings, the last {entry.last_ring}: rings were removed; {COPY}"
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
    text = f"{end}: {found}, but {place} names {entry.end}; {COPY}"
    yield Finding("record", text, file=str(end))
