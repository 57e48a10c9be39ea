"""Digests again everything below some folders: corpora, indexes, checkpoints, run logs, blends, attestations.

Every file is compared with the record that was made with it; how things fit each other, and which
checkpoint read what, is the audit's matter.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treering.audit.attestation.check import compare_records, open_attestation
from treering.audit.attestation.dsse import Envelope
from treering.audit.attestation.place import SUFFIX, attested_checkpoint
from treering.audit.corpora.content import compare_files, damage_findings
from treering.audit.evidence.agreement import check_run
from treering.audit.evidence.checkpoints import contradicts_its_folder
from treering.audit.evidence.presence import check_presence
from treering.audit.expected_file import ExpectedFile
from treering.audit.recorded.records import check_recorded
from treering.audit.report import Finding, FindingKind, Judged
from treering.config.canonical import digest_file
from treering.config.resolved import CONFIG_FILE
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST, Corpus
from treering.data.ngram_index.index import ENTRIES, NgramIndex, index_directory
from treering.errors import EvidenceError, NotFoundError, TreeringError
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import UNIVERSAL, CheckpointDirectory, RunDirectory
from treering.runlog.folders import ATTEMPTS
from treering.runlog.journal import JOURNAL
from treering.runlog.recorded_directory import RECORD_FILE, RecordedRunDirectory
from treering.runlog.records import CheckpointManifest, ConversionManifest
from treering.runlog.reproductions import REPRODUCTIONS

if TYPE_CHECKING:
    from treering.audit.attestation.keys import PublicKey

Kind = Literal["corpus", "tokenizer", "blend", "run log", "checkpoint", "conversion", "attestation", "index"]

_CHECKPOINT = re.compile(r"^step-\d{8,}$")
_CORPUS_FILES = {BIN, IDX, DOCUMENTS, MANIFEST}
_MIB = 1 << 20
_FINDING_KINDS: dict[Kind, FindingKind] = {
    "corpus": "corpus",
    "tokenizer": "corpus",
    "blend": "record",
    "run log": "record",
    "checkpoint": "checkpoint",
    "conversion": "checkpoint",
    "attestation": "attestation",
    "index": "corpus",
}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file or folder that has a record of its own content.

    Attributes:
        kind: what it is.
        path: its folder, or its file.
    """

    kind: Kind
    path: Path


@dataclass(frozen=True, slots=True)
class Checked:
    """A thing that was digested again.

    Attributes:
        kind: what it is.
        path: its folder, or its file.
        bytes: read.
        findings: how many things do not hold.
    """

    kind: Kind
    path: str
    bytes: int
    findings: int


@dataclass(frozen=True, slots=True)
class Inventory(Judged):
    """What was digested again, and what does not hold.

    Attributes:
        checked: everything, in order of its path.
        findings: what does not hold.
        notes: what is not damaged but cannot be verified.
    """

    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        read = f"{len(self.checked)} things, {sum(each.bytes for each in self.checked):,} bytes"
        return f"holds: {read}" if self.holds else self.failed(read)

    def to_json(self) -> dict[str, Any]:
        """The inventory as JSON values."""
        return {"verdict": self.verdict, "holds": self.holds, **asdict(self)}


def verify_paths(
    project: Project, paths: Sequence[Path] = (), trusted: Sequence["PublicKey"] = (), progress: Progress = quiet
) -> Inventory:
    """Digests everything below some paths again.

    Args:
        project: where to look without `paths`: its corpora, their indexes, blend, runs and published checkpoint.
        paths: folders to look below, or a blend's file.
        trusted: keys whose signature under an attestation counts.
        progress: is called with the number of MiB done.

    Raises:
        NotFoundError: a path does not exist, or has nothing to check.
    """
    places = (project.corpora, project.index, project.blend, project.runs, project.published)
    beside = sorted(project.root.glob(f"*{SUFFIX}")) if not paths else []
    roots = paths or [path for path in (*places, *beside) if path.exists()]
    for root in roots:
        if not root.exists():
            raise NotFoundError(f"{root}: no such file or folder")
    artifacts = sorted({each for root in roots for each in discover(root)}, key=lambda each: (each.path, each.kind))
    if not artifacts:
        where = ", ".join(map(str, roots)) or str(project.root)
        raise NotFoundError(f"{where}: no corpus, checkpoint or run log there; `make repro` makes them")
    sizes = [_size(artifact) for artifact in artifacts]
    done, total = 0, sum(sizes)

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress("MiB", done // _MIB, -(-total // _MIB))

    checked: list[Checked] = []
    findings: list[Finding] = []
    notes: list[str] = []
    checker = _Checker(project, trusted, advance, notes.append)
    for artifact, size in zip(artifacts, sizes, strict=True):
        before = done
        found = list(checker.check(artifact))
        advance(max(0, before + size - done))  # what was not counted on the way
        findings += found
        checked.append(Checked(artifact.kind, str(artifact.path), size, len(found)))
    if not paths:
        findings += check_presence(project, notes.append)
    return Inventory(tuple(checked), tuple(findings), tuple(notes))


def discover(root: Path) -> Iterator[Artifact]:
    """Everything below a folder that can be checked, found by names, so that a lost manifest is missed."""
    if root.is_file():
        yield Artifact("attestation" if root.name.endswith(SUFFIX) else "blend", root)
        return
    seen: set[str] = set()
    for name, folders, files in os.walk(root, followlinks=True):  # a folder behind a link is read as any other
        folder = Path(name)
        folders.sort()
        if folder.name == REPRODUCTIONS:  # cut copies and links: a reproduction reads its rings when it compares
            folders.clear()
        if os.path.realpath(folder) in seen:
            folders.clear()  # a link that leads back
            continue
        seen.add(os.path.realpath(folder))
        yield from (Artifact("attestation", folder / file) for file in files if file.endswith(SUFFIX))
        if {BIN, IDX, DOCUMENTS} & set(files):
            yield Artifact("corpus", folder)
            tokenizer = folder.parent.parent / "tokenizer.json"
            if tokenizer.exists() or (folder.parent.name in {"train", "heldout"} and root in tokenizer.parents):
                yield Artifact("tokenizer", tokenizer)
        elif ENTRIES in files and not folder.name.startswith("."):  # with a dot it is being built
            yield Artifact("index", folder)
        elif _CHECKPOINT.match(folder.name):
            yield Artifact("conversion" if folder.parent.name == UNIVERSAL else "checkpoint", folder)
            folders.clear()
        elif CONFIG_FILE in files or ATTEMPTS in folders:
            yield Artifact("run log", folder)


def _size(artifact: Artifact) -> int:
    return sum(_bytes(path) for path in _files(artifact))


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a link that leads nowhere, or a file that goes just now
        return 0


def _files(artifact: Artifact) -> Iterable[Path]:
    """What is read of a thing."""
    if artifact.kind == "run log":
        patterns = (CONFIG_FILE, RECORD_FILE, JOURNAL, f"{ATTEMPTS}/*/*.json*", f"{ATTEMPTS}/*/ranks/*.json*")
        own = [path for pattern in patterns for path in artifact.path.glob(pattern)]
        return [*own, *RunDirectory(artifact.path).evaluations_folder.glob("*.json*")]
    if artifact.path.is_file():
        return [artifact.path]
    return [path for path in artifact.path.rglob("*") if path.is_file()]


@dataclass(frozen=True, slots=True)
class _Checker:
    """Compares artifacts with their own records.

    Attributes:
        project: where copies of records may be.
        trusted: keys whose signature under an attestation counts.
        advance: is called with the number of bytes that were read.
        note: is called with what is not damaged but cannot be verified.
    """

    project: Project
    trusted: Sequence["PublicKey"]
    advance: Callable[[int], None]
    note: Callable[[str], None]

    def check(self, artifact: Artifact) -> Iterator[Finding]:
        """What does not hold of one artifact. A record that cannot be read becomes a finding and ends the check."""
        try:
            yield from self._read(artifact)
        except TreeringError as error:
            yield Finding.from_error(error, _FINDING_KINDS[artifact.kind], artifact.path)
        except OSError as error:
            text = f"{error.filename or artifact.path}: cannot be read ({error.strerror or error})"
            yield Finding(_FINDING_KINDS[artifact.kind], text, file=str(error.filename or artifact.path))

    def _read(self, artifact: Artifact) -> Iterator[Finding]:
        match artifact.kind:
            case "corpus":
                yield from _check_corpus(artifact.path, self.advance, self.note)
            case "tokenizer":
                yield from _check_tokenizer(artifact.path)
            case "blend":
                ResolvedBlend.read(artifact.path)
            case "checkpoint":
                yield from self._checkpoint(CheckpointDirectory(artifact.path))
            case "conversion":
                manifest, _digest = ConversionManifest.read(artifact.path / MANIFEST)
                yield from _check_checkpoint(CheckpointDirectory(artifact.path), manifest, self.advance)
            case "run log":
                yield from self._run_log(RunDirectory(artifact.path))
            case "index":
                yield from _check_index(artifact.path, self.advance)
            case "attestation":
                yield from _check_attestation(artifact.path, self.project, self.trusted, self.note)

    def _checkpoint(self, checkpoint: CheckpointDirectory) -> Iterator[Finding]:
        if checkpoint.run.mirror_file.exists():
            self.note(f"{checkpoint.path}: weights are not in a mirror, so they were not checked")
        else:
            yield from _check_checkpoint(checkpoint, checkpoint.manifest, self.advance)

    def _run_log(self, run: RunDirectory) -> Iterator[Finding]:
        if run.mirror_doubt:
            self.note(f"{run.path}: {run.mirror_doubt}")
        recorded = RecordedRunDirectory(run.path)
        if recorded.record_file.exists():
            yield from check_recorded(recorded, self.note)
        else:
            yield from check_run(run, self.project, self.note)


def _check_index(folder: Path, advance: Callable[[int], None]) -> Iterator[Finding]:
    """An index against its own digests, and its folder's name, which begins with its corpus's digest."""
    index = NgramIndex(folder)
    yield from (Finding.from_error(error, "corpus", folder) for error in index.check(advance))
    facts = index.facts
    if folder.name != index_directory(folder.parent, facts.corpus_digest).name:
        text = (
            f"{folder}: is the index of corpus {facts.corpus} ({facts.corpus_digest}), expected one whose digest "
            "begins with the folder's name: it was copied or swapped; `treering index --force` builds it anew"
        )
        yield Finding("corpus", text, file=str(folder))


def _check_corpus(folder: Path, advance: Callable[[int], None], note: Callable[[str], None]) -> Iterator[Finding]:
    """A corpus by its manifest, which must be that of its folder where the files do not fit it."""
    corpus = Corpus.open(folder)
    damages = corpus.verify(advance)
    place = corpus.name, corpus.manifest.get("split", folder.parent.name)
    if damages and place != (folder.name, folder.parent.name):
        manifest = folder / MANIFEST
        text = (
            f"{manifest}: is the manifest of corpus {place[0]} ({place[1]}), but its folder is that of {folder.name} "
            f"({folder.parent.name}), and the files do not fit it: it was copied or swapped; `dvc checkout` restores it"
        )
        yield Finding("corpus", text, file=str(manifest), corpus=folder.name)
        return
    if {place[1], folder.parent.name} == {"train", "heldout"}:
        text = f"{folder}: is a corpus of the split {place[1]} by {folder / MANIFEST}: it was moved or swapped"
        yield Finding("corpus", text, file=str(folder), corpus=corpus.name)
    elif place[0] != folder.name:
        note(f"{folder}: is corpus {place[0]} by {folder / MANIFEST}; a corpus is found by its content")
    for damage in damages:
        yield from damage_findings(corpus, damage)
    for path in sorted(folder.iterdir()):
        if path.name not in _CORPUS_FILES:
            text = f"{path}: no part of a corpus: it was put there later; move it elsewhere"
            yield Finding("corpus", text, file=str(path), corpus=corpus.name)


def _check_checkpoint(
    checkpoint: CheckpointDirectory, manifest: CheckpointManifest | ConversionManifest, advance: Callable[[int], None]
) -> Iterator[Finding]:
    """A checkpoint or a conversion by its manifest, which must be that of its folder."""
    try:
        recipe: str | None = checkpoint.run.resolved.recipe.digest
    except EvidenceError:  # the run log has its own finding
        recipe = None
    wrong = contradicts_its_folder(checkpoint, manifest, recipe)
    if wrong:
        file = checkpoint.path / MANIFEST
        text = f"{file}: {wrong}: the manifest or its folder was copied or swapped; a copy of the run brings it back"
        yield Finding("checkpoint", text, file=str(file))
        return
    sizes = [file.size for file in manifest.files]
    expected = [ExpectedFile(record.path, record.digest, record.size) for record in manifest.files]
    by = "the checkpoint's manifest" if isinstance(manifest, CheckpointManifest) else "the conversion's manifest"
    yield from compare_files(checkpoint.path, expected, by, lambda _what, done, _of: advance(sizes[done - 1]))


def _check_tokenizer(path: Path) -> Iterator[Finding]:
    if not path.is_file():
        text = f"{path}: is missing, the corpora beside it were cut by a tokenizer; `dvc checkout` restores it"
        yield Finding("corpus", text, file=str(path))
        return
    found = digest_file(path)
    for manifest in sorted(path.parent.glob(f"*/*/{MANIFEST}")):
        try:
            corpus = Corpus.open(manifest.parent)
        except TreeringError:  # that corpus has its own finding
            continue
        expected = corpus.manifest.get("tokenizer", {}).get("digest")
        if expected != found:
            text = (
                f"{path}: {found}, expected {expected} by {manifest}: corpus "
                f"{corpus.name} was cut by another tokenizer; `dvc checkout` restores it"
            )
            yield Finding("corpus", text, file=str(path), corpus=corpus.name)


def _check_attestation(
    path: Path, project: Project, trusted: Sequence["PublicKey"], note: Callable[[str], None]
) -> Iterator[Finding]:
    """Signature and statement, and the records against it; the checkpoint's files are a thing of their own."""
    if not trusted:
        Envelope.read(path)
        note(f"{path}: its signature was not checked, for no trusted key was given: `--public-key` checks it")
        return
    _, statement = open_attestation(path, trusted)
    checkpoint = attested_checkpoint(path)
    if checkpoint is None:
        note(f"{path}: the signature holds; no checkpoint lies beside it to compare")
        return
    yield from compare_records(path, statement, checkpoint, project)
