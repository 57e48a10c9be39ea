"""Answers about checkpoints kept until a file that they depend on changes.

The key is the question and the size and time of each of those files, as in `cached`.
"""

import os
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import streamlit as st

from treering.audit.attestation.check import attested
from treering.audit.attestation.place import find_attestation
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.contamination import Contamination, find_contamination
from treering.audit.documents.difference import CheckpointDifference, compare_checkpoints
from treering.audit.megatron.forms import DESCRIPTION
from treering.audit.megatron.moved import parse_moved
from treering.audit.megatron.run import AuditedRun
from treering.audit.megatron.saved import LATEST
from treering.audit.recorded.difference import RecordedDifference, compare_recorded
from treering.audit.recorded.report import RecordedAudit, audit_recorded
from treering.audit.report import AuditReport
from treering.data.corpus.corpus import DOCUMENTS
from treering.errors import EvidenceError
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.recorded_records import RecordedCheckpoint
from treering_dashboard.frames.cached import Version, corpora_version, file_version, project, runs_version, version

if TYPE_CHECKING:
    from treering.audit.attestation.keys import PublicKey

KEYS_VARIABLE: Final = "TREERING_PUBLIC_KEYS"

_DEPTH: Final = 3
_OTHERS: Final = frozenset({"data", "runs", "published", "mlartifacts", "node_modules", "__pycache__"})
"""Folders of a project that hold no run of Megatron, and may hold very many files."""
_NUMBERED: Final = ("iter_", "global_step")
"""How the folders of checkpoints begin that Megatron and DeepSpeed write."""


def trusted_keys() -> tuple[Path, ...]:
    """Files of the public keys whose signatures count, by `TREERING_PUBLIC_KEYS`."""
    named = os.environ.get(KEYS_VARIABLE, "").split(os.pathsep)
    return tuple(project().root / name for name in named if name)


def audit_of(checkpoint: CheckpointDirectory, keys: tuple[Path, ...] = ()) -> AuditReport:
    """The structural audit of a checkpoint: records, data order and, with a trusted key, attestation; no content.

    Args:
        checkpoint: the checkpoint.
        keys: files of public keys whose signatures count.

    Raises:
        EvidenceError: a record that it depends on does not hold.
        UserError: a file of a key holds none.
    """
    here = project()
    seen = path_version(checkpoint) + corpora_version() + file_version(here.root, "dvc.lock", "data/blend.json")
    for file in (find_attestation(checkpoint), *keys):
        seen += () if file is None else file_version(file.parent, escape(file.name))
    return _audit(here, checkpoint.path, keys, seen)


@st.cache_data(max_entries=64, show_spinner="Auditing …")
def _audit(project: Project, path: Path, keys: tuple[Path, ...], version: Version) -> AuditReport:
    del version  # part of the key alone
    checkpoint = CheckpointDirectory(path)
    return attested(audit_checkpoint(checkpoint, project), checkpoint, [_read_key(key) for key in keys])


def recorded_audit_of(run: RecordedRunDirectory, checkpoint: RecordedCheckpoint | None) -> RecordedAudit:
    """The audit of a recorded run's records, or of the path to one of its checkpoints; no content.

    Raises:
        EvidenceError: the run's own record does not hold.
    """
    file = None if checkpoint is None else run.checkpoint_file(checkpoint.attempt, checkpoint.step)
    seen = version(run)
    if checkpoint is not None:
        root = Path(checkpoint.path)
        folder = root.parent if root.is_file() else root
        for each in checkpoint.files:
            seen += file_version(folder, escape(each.path))
    return _recorded_audit(run.path, file, seen)


@st.cache_data(max_entries=64, show_spinner="Auditing …")
def _recorded_audit(path: Path, file: Path | None, version: Version) -> RecordedAudit:
    del version  # part of the key alone
    return audit_recorded(RecordedRunDirectory(path), None if file is None else RecordedCheckpoint.read(file)[0])


def recorded_difference_of(a: RecordedRunDirectory, b: RecordedRunDirectory) -> RecordedDifference:
    """The first step at which two recorded runs were fed different samples.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
        UserError: no step of both reports its samples.
    """
    return _recorded_difference(a.path, b.path, version(a) + version(b))


@st.cache_data(max_entries=64, show_spinner="Comparing what both runs were fed …")
def _recorded_difference(a: Path, b: Path, version: Version) -> RecordedDifference:
    del version  # part of the key alone
    return compare_recorded(RecordedRunDirectory(a), RecordedRunDirectory(b))


def _read_key(file: Path) -> "PublicKey":
    from treering.audit.attestation.keys import PublicKey  # noqa: PLC0415 - needs cryptography, which is an extra

    return PublicKey.read(file)


def difference_of(a: CheckpointDirectory, b: CheckpointDirectory) -> CheckpointDifference:
    """What two checkpoints read differently.

    Raises:
        EvidenceError: a record or a ring on the way to one of them does not hold.
    """
    return _difference(project(), a.path, b.path, path_version(a) + path_version(b) + corpora_version())


@st.cache_data(max_entries=16, show_spinner="Comparing what the two checkpoints read …")
def _difference(project: Project, a: Path, b: Path, version: Version) -> CheckpointDifference:
    del version  # part of the key alone
    return compare_checkpoints(CheckpointDirectory(a), CheckpointDirectory(b), project)


def contamination_of(checkpoint: CheckpointDirectory) -> Contamination:
    """What a checkpoint read of the project's evaluation tasks.

    Raises:
        TreeringError: see `find_contamination`.
    """
    here = project()
    looked_at = corpora_version() + file_version(here.tasks, "*.jsonl") + file_version(here.index, "[!.]*/*")
    return _contamination(here, checkpoint.path, path_version(checkpoint) + looked_at)


@st.cache_data(max_entries=16, show_spinner="Looking for every example in what was read …")
def _contamination(project: Project, checkpoint: Path, version: Version) -> Contamination:
    del version  # part of the key alone
    return find_contamination(CheckpointDirectory(checkpoint), project)


def path_version(checkpoint: CheckpointDirectory) -> Version:
    """The records of the runs on a checkpoint's path, or of all runs where it cannot be followed: one may help out."""
    try:
        runs = {segment.run.path: segment.run for segment in checkpoint.run.path_to(checkpoint)}
    except EvidenceError:
        return version(checkpoint.run) + runs_version()
    return tuple((f"{path}/{name}", size, time) for path, run in runs.items() for name, size, time in version(run))


def megatron_runs() -> list[str]:
    """Folders of the project, relative to its root, that describe a run of Megatron or hold its checkpoints."""
    root = project().root
    found = []
    for folder, names, files in os.walk(root):
        place = Path(folder).relative_to(root)
        saved = [name for name in names if name.startswith(_NUMBERED)]
        if saved or DESCRIPTION in files or LATEST in files:
            found.append(str(place))
        deeper = len(place.parts) < _DEPTH
        names[:] = sorted(n for n in names if deeper and n not in {*saved, *_OTHERS} and not n.startswith("."))
    return found


@dataclass(frozen=True, slots=True)
class _Opened:
    """A Megatron run, and its files as they were when its order was made."""

    path: Path
    run: AuditedRun
    version: Version

    @property
    def holds(self) -> bool:
        return self.version == _megatron_version(self.path, self.run)


def megatron_run(path: Path, moved: tuple[str, ...], lineage: str | None = None, *, verify: bool) -> AuditedRun:
    """A Megatron run whose order was made.

    Args:
        path: its description or a checkpoint, or the folder of one.
        moved: where folders are today, `OLD=NEW` each.
        lineage: whose order it followed, None where its arguments tell.
        verify: compare cached indices with a rebuild.

    Raises:
        TreeringError: see `AuditedRun.open` and `parse_moved`.
    """
    return _megatron_run(path, moved, lineage, verify).run


@st.cache_resource(max_entries=2, show_spinner="Making Megatron's data order …", validate=lambda opened: opened.holds)
def _megatron_run(path: Path, moved: tuple[str, ...], lineage: str | None, verify: bool) -> _Opened:
    run = AuditedRun.open(path, verify=verify, moved=parse_moved(moved), lineage=lineage)
    return _Opened(path, run, _megatron_version(path, run))


def _megatron_version(path: Path, run: AuditedRun) -> Version:
    found = file_version(run.source.parent, escape(run.source.name), LATEST)
    found += file_version(path, DESCRIPTION, LATEST, *(f"{name}*" for name in _NUMBERED))
    for launch in run.described.launches:
        found += () if launch.cache is None else file_version(launch.cache, "*")
        for place in launch.places:
            found += file_version(place.parent, f"{escape(place.name)}.idx", DOCUMENTS)
    return found
