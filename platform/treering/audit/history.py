"""Checks a run log by itself: every record against its digest, every ring of every attempt against its chain.

The audit of a checkpoint walks one path; this reads what lies off it as well.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from treering.audit.config_edits import edited_fields
from treering.audit.path import check_config
from treering.audit.report import Finding
from treering.errors import EvidenceError
from treering.files import open_regular
from treering.project import Project
from treering.runlog.directory import AttemptDirectory, RunDirectory
from treering.runlog.incidents import INCIDENTS_FILE
from treering.runlog.lock import is_held
from treering.runlog.records import AttemptEnd, AttemptHeader, Evaluation

_TAIL_BYTES = 1 << 20


def check_run_log(run: RunDirectory, project: Project, note: Callable[[str], None]) -> Iterator[Finding]:
    """Config, every attempt with all its rings, on the path of a checkpoint or not, and evaluations.

    Args:
        run: the run, or a published checkpoint's folder.
        project: where copies of its config may lie.
        note: told what is no damage but cannot be vouched for.
    """
    yield from _check_config(run, project)
    for path in sorted((run.path / "attempts").glob("*")):
        if path.name.isdigit():
            yield from _check_attempt(run, AttemptDirectory(path), note)
    for path in sorted((run.path / "evaluations").glob("*.json")):
        yield from _unreadable(path, partial(Evaluation.read, path))


def _check_config(run: RunDirectory, project: Project) -> Iterator[Finding]:
    try:
        yield from check_config(run)
    except EvidenceError as error:
        text = f"{error}{edited_fields(run, project)}"
        yield Finding("record", text, file=str(run.path / "resolved.json"))


def _unreadable(file: Path, read: Callable[[], object]) -> list[Finding]:
    try:
        read()
    except EvidenceError as error:
        return [Finding("record", str(error), file=str(file))]
    return []


def _check_attempt(run: RunDirectory, attempt: AttemptDirectory, note: Callable[[str], None]) -> Iterator[Finding]:
    header, end = attempt.path / "header.json", attempt.path / "end.json"
    if not attempt.started and not attempt.rings_file.exists():
        return  # died before it had anything to say
    unreadable = _unreadable(header, partial(AttemptHeader.read, header))
    yield from unreadable
    if end.exists():
        yield from _unreadable(end, partial(AttemptEnd.read, end))
    yield from _unreadable(attempt.path / INCIDENTS_FILE, attempt.incidents)
    if not unreadable:  # the chain begins with the header's digest
        yield from _check_rings(run, attempt, note)


def _check_rings(run: RunDirectory, attempt: AttemptDirectory, note: Callable[[str], None]) -> Iterator[Finding]:
    line, step, file = 1, None, str(attempt.rings_file)
    try:
        for ring in attempt.rings():
            line, step = line + 1, ring.step
    except EvidenceError as error:
        yield Finding("ring", str(error), file=file, line=line, step=None if step is None else step + 1)
        return
    rest = _unfinished(attempt.rings_file)
    if _begins_with_a_value(rest):
        text = f"{file} line {line}: a whole ring that no newline ends: the end of the line was changed"
        yield Finding("ring", text, file=file, line=line)
    elif rest and not is_held(run.lock):
        note(f"{file} line {line}: {len(rest)} bytes of a line that was never finished; its writer died, it is no ring")


def _unfinished(path: Path) -> bytes:
    """What follows the last newline of a file."""
    if not path.exists():
        return b""
    with open_regular(path) as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().rpartition(b"\n")[2]


def _begins_with_a_value(text: bytes) -> bool:
    try:
        json.JSONDecoder().raw_decode(text.decode(errors="surrogateescape"))
    except ValueError:
        return False
    return True
