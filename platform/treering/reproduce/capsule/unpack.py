"""Brings a capsule into a project: the run without its checkpoints, and its corpora by content.

The run becomes a mirror: every command reads it, and says that it is from a capsule; nothing writes to it but its
reproductions.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from treering.audit.corpora.catalog import find_corpora
from treering.collect.environment import is_recorded
from treering.config.canonical import digest_file, short
from treering.config.resolved import ANCESTORS, RUN_ID_LENGTH
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.errors import EvidenceError, UserError
from treering.files import replace_durably
from treering.progress import Progress, quiet
from treering.project import Project
from treering.reproduce.capsule.contents import RUN, Capsule, NeededCorpus
from treering.reproduce.capsule.find import FoundFiles, find_files, missing_text
from treering.reproduce.capsule.order import check_vectors, orders_of
from treering.reproduce.capsule.read import OpenCapsule, open_capsule
from treering.runlog.copied import kind_of
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.mirror import CAPSULE, Mirror
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.reproductions import REPRODUCTIONS


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A capsule in a project.

    Attributes:
        run: the run.
        capsule: the record of the capsule.
        compared_samples: golden vectors whose tokens were compared with the corpora here.
    """

    run: AnyRun
    capsule: Capsule
    compared_samples: int


def unpack_capsule(path: Path, project: Project, corpora: Path | None = None, progress: Progress = quiet) -> Unpacked:
    """Unpacks a capsule into `runs/`, puts its corpora into `data/corpora/`, and checks the data order.

    Unpacking the same capsule again changes nothing.

    Args:
        path: the zip file.
        project: the project, which may be an empty folder.
        corpora: folder with the files of the corpora under any names; None: the corpora are in the project.
        progress: is called with the number of files done.

    Raises:
        EvidenceError: the capsule is damaged or hostile, or does not fit its own records, or the data order differs;
            or a corpus is missing, and the text says which.
        UserError: the run, or another corpus of a name, is here already.
        OSError: a file cannot be read or written.
    """
    with open_capsule(path) as capsule:
        record = capsule.record
        needed = [each for each in record.corpora if not _is_here(project, each)]
        found = find_files(record, corpora, progress) if corpora is not None and needed else None
        if needed and found is None:
            missing = missing_text(record, FoundFiles({}, tuple(needed), tokenizer_missing=False))
            raise EvidenceError(f"{path}: corpora are missing; `--corpora FOLDER` finds them by content:\n  {missing}")
        if found is not None and (lost := [each for each in found.missing if each in needed]):
            missing = missing_text(record, FoundFiles(found.files, tuple(lost), found.tokenizer_missing))
            raise EvidenceError(f"{corpora}: has not all corpora of {path}; ask for them by digest:\n  {missing}")
        beside: dict[Path, Path] = {}
        try:
            run = _unpack_run(capsule, project, beside, progress)
            corpora_found = find_corpora(project, [each.blend for each in orders_of(run)]).corpora
            for each in needed:
                corpus = _link_corpus(capsule, each, found.files if found else {}, project, beside)
                corpora_found.setdefault(corpus.digest, corpus)
            compared = check_vectors(run, record.orders, corpora_found)
            for folder in reversed(beside):  # the run last: with it, all is there
                replace_durably(beside[folder], folder)
        finally:
            for unfinished in beside.values():
                shutil.rmtree(unfinished, ignore_errors=True)
        _place_tokenizer(record, found.files if found else {}, project)
    return Unpacked(_run_in(project.run(short(record.run, RUN_ID_LENGTH)), record), record, compared)


def _is_here(project: Project, needed: NeededCorpus) -> bool:
    """Whether the project has a corpus.

    Raises:
        UserError: it has another one of that name.
    """
    folder = project.corpus(needed.name, needed.split)
    if not folder.exists():
        return False
    found = Corpus.open(folder).digest
    if found != needed.digest:
        raise UserError(
            f"{folder}: found corpus {found}, expected {needed.digest} by the capsule; use an empty folder as project"
        )
    return True


def _unpack_run(capsule: OpenCapsule, project: Project, beside: dict[Path, Path], progress: Progress) -> AnyRun:
    """Unpacks the run's folder beside its place, which `beside` gets with its place; nothing if the run is here.

    Raises:
        EvidenceError: a file is damaged, or the records are another run's.
        UserError: the folder is there and is not from this capsule, or the disk has no room.
    """
    record = capsule.record
    folder = project.run(short(record.run, RUN_ID_LENGTH))
    run = _run_in(folder, record)
    digest = digest_file(capsule.path)
    mark = Mirror(
        store=f"{CAPSULE}{capsule.path.name} ({digest})",
        project=record.experiment,
        state=record.state,
        written_at=record.written_at,
        complete=True,
        rewritten={},
    )
    if folder.exists():
        if run.mirror and run.mirror.from_capsule and run.mirror.store.endswith(f" ({digest})"):
            return run  # whatever its file was called
        raise UserError(
            f"{folder}: is here already and not from this capsule, expected no such run; `treering reproduce "
            f"{folder.name}` makes the run here again, or use an empty folder as project"
        )
    names = list(_names_of_run(capsule))
    room, total = shutil.disk_usage(project.root).free, sum(record.files[name].size for name in names)
    if total > room:
        raise UserError(f"{project.root}: has {room:,} bytes left, expected {total:,} for the run of {capsule.path}")
    unpacked = beside[folder] = project.runs / f".{folder.name}.{os.getpid()}"
    for done, name in enumerate(names, 1):
        target = unpacked / PurePosixPath(name).relative_to(RUN)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            capsule.copy(name, file)
        progress("records", done, len(names))
    run = _run_in(unpacked, record)
    _check_identity(run, record, capsule.path)
    mark.write(run.mirror_file)
    return run


def _run_in(folder: Path, record: Capsule) -> AnyRun:
    return RunDirectory(folder) if record.kind == "trained" else RecordedRunDirectory(folder)


def _names_of_run(capsule: OpenCapsule) -> Iterator[str]:
    """The files of the run's folder, those that a run's folder may have.

    Raises:
        EvidenceError: there is another one.
    """
    for name in sorted(capsule.record.files):
        parts = PurePosixPath(name).parts
        if parts[0] != RUN:
            continue
        inside = PurePosixPath(*parts[3:] if parts[1:2] == (ANCESTORS,) else parts[1:]).as_posix()
        if kind_of(inside) is None or REPRODUCTIONS in parts:
            raise EvidenceError(
                f"{capsule.path}: {name}: found a file that is no record of a run, expected records alone",
                file=capsule.path,
                found=name,
                expected="a record",
            )
        yield name


def _check_identity(run: AnyRun, record: Capsule, path: Path) -> None:
    """Compares what the run's records say that it is with the capsule's record, and looks at what would be set.

    Raises:
        EvidenceError: they differ, or a header has variables that no attempt records.
    """
    found = run.resolved.recipe.digest if isinstance(run, RunDirectory) else run.digest
    if found != record.run:
        raise EvidenceError(
            f"{path}: holds the records of run {found}, expected {record.run} by its own record",
            file=path,
            found=found,
            expected=record.run,
        )
    for attempt in run.attempts():
        strange = [name for name in attempt.header.environment.get("variables", {}) if not is_recorded(name)]
        if strange:  # a reproduction sets the recorded variables
            raise EvidenceError(
                f"{path}: {attempt.header_file.relative_to(run.path)}: environment.variables: found {strange[0]}, "
                "expected variables that Treering records; do not use this capsule",
                file=path,
                found=strange[0],
                expected="a recorded variable",
            )


def _link_corpus(
    capsule: OpenCapsule, needed: NeededCorpus, files: Mapping[str, Path], project: Project, beside: dict[Path, Path]
) -> Corpus:
    """Makes a corpus's folder of links to its files and the manifest of the capsule, beside its place.

    Raises:
        EvidenceError: the manifest of the capsule is another one than its record says.
    """
    folder = project.corpus(needed.name, needed.split)
    linked = beside[folder] = folder.with_name(f".{folder.name}.{os.getpid()}")
    linked.mkdir(parents=True)
    if needed.manifest is not None:
        with (linked / MANIFEST).open("xb") as file:
            capsule.copy(needed.manifest, file)
    for name, packed in needed.files.items():
        (linked / name).symlink_to(files[packed.digest].resolve())
    found = Corpus.open(linked)
    said = {name: (each["size"], each["sha256"]) for name, each in found.manifest["files"].items()}
    if found.digest != needed.digest or said != {name: (f.size, f.digest) for name, f in needed.files.items()}:
        raise EvidenceError(
            f"{capsule.path}: {needed.manifest}: found the manifest of {found.digest}, expected {needed.digest} by "
            "the capsule's record",
            file=capsule.path,
            found=found.digest,
            expected=needed.digest,
        )
    return found


def _place_tokenizer(record: Capsule, files: Mapping[str, Path], project: Project) -> None:
    if record.tokenizer and record.tokenizer.digest in files and not project.tokenizer.exists():
        project.tokenizer.parent.mkdir(parents=True, exist_ok=True)
        project.tokenizer.symlink_to(files[record.tokenizer.digest].resolve())
