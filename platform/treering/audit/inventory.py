"""Digests again whatever lies below some folders: corpora, indexes, checkpoints, run logs, blends, attestations.

Every file is held against what was written down about it when it was made; how things fit each other, and which
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
from treering.audit.content import Progress, blame, check_files, quiet
from treering.audit.history import check_run_log
from treering.audit.report import Finding, FindingKind
from treering.config.canonical import digest_file
from treering.config.resolve import ResolvedBlend
from treering.data.corpus import BIN, DOCUMENTS, IDX, Corpus
from treering.data.ngrams import ENTRIES, NgramIndex
from treering.errors import NotFoundError, TreeringError
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory

if TYPE_CHECKING:
    from treering.audit.attestation.keys import PublicKey

Kind = Literal["corpus", "tokenizer", "blend", "run log", "checkpoint", "attestation", "index"]

_CHECKPOINT = re.compile(r"^step-\d{8,}$")
_MIB = 1 << 20
_FINDING_KINDS: dict[Kind, FindingKind] = {
    "corpus": "corpus",
    "tokenizer": "corpus",
    "blend": "record",
    "run log": "record",
    "checkpoint": "checkpoint",
    "attestation": "attestation",
    "index": "corpus",
}


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that says of itself what it must be.

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
class Inventory:
    """What was digested again, and what does not hold.

    Attributes:
        checked: everything, in order of its path.
        findings: what does not hold.
        notes: what is no damage but cannot be vouched for.
    """

    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found that does not hold."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """One line."""
        read = f"{len(self.checked)} things, {sum(each.bytes for each in self.checked):,} bytes"
        return f"holds: {read}" if self.holds else f"FAILED with {len(self.findings)} findings; {read}"

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
        progress: told how many MiB are done.

    Raises:
        NotFoundError: a path does not exist, or nothing lies there that could be checked.
    """
    places = (project.corpora, project.index, project.blend, project.runs, project.published)
    roots = paths or [path for path in places if path.exists()]
    for root in roots:
        if not root.exists():
            raise NotFoundError(f"{root}: no such file or folder")
    things = sorted({each for root in roots for each in discover(root)}, key=lambda each: (each.path, each.kind))
    if not things:
        where = ", ".join(map(str, roots)) or str(project.root)
        raise NotFoundError(f"{where}: no corpus, checkpoint or run log there; `make repro` makes them")
    sizes = [_size(thing) for thing in things]
    done, total = 0, sum(sizes)

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress("MiB", done // _MIB, -(-total // _MIB))

    checked: list[Checked] = []
    findings: list[Finding] = []
    notes: list[str] = []
    for thing, size in zip(things, sizes, strict=True):
        before = done
        found = list(_check(thing, project, trusted, advance, notes.append))
        advance(max(0, before + size - done))  # what was not counted on the way
        findings += found
        checked.append(Checked(thing.kind, str(thing.path), size, len(found)))
    return Inventory(tuple(checked), tuple(findings), tuple(notes))


def discover(root: Path) -> Iterator[Thing]:
    """Everything below a folder that can be checked, found by names, so that a lost manifest is missed."""
    if root.is_file():
        yield Thing("attestation" if root.name.endswith(SUFFIX) else "blend", root)
        return
    for name, folders, files in os.walk(root):
        folder = Path(name)
        folders.sort()
        yield from (Thing("attestation", folder / file) for file in files if file.endswith(SUFFIX))
        if {BIN, IDX, DOCUMENTS} & set(files):
            yield Thing("corpus", folder)
            tokenizer = folder.parent.parent / "tokenizer.json"
            if tokenizer.exists():
                yield Thing("tokenizer", tokenizer)
        elif ENTRIES in files and not folder.name.startswith("."):  # with a dot it is being built
            yield Thing("index", folder)
        elif _CHECKPOINT.match(folder.name):
            yield Thing("checkpoint", folder)
            folders.clear()
        elif "resolved.json" in files or "attempts" in folders:
            yield Thing("run log", folder)


def _size(thing: Thing) -> int:
    return sum(path.stat().st_size for path in _files(thing))


def _files(thing: Thing) -> Iterable[Path]:
    """What is read of a thing."""
    if thing.kind == "run log":
        patterns = ("resolved.json", "attempts/*/*.json*", "evaluations/*.json")
        return [path for pattern in patterns for path in thing.path.glob(pattern)]
    if thing.path.is_file():
        return [thing.path]
    return [path for path in thing.path.rglob("*") if path.is_file()]


def _check(
    thing: Thing,
    project: Project,
    trusted: Sequence["PublicKey"],
    advance: Callable[[int], None],
    note: Callable[[str], None],
) -> Iterator[Finding]:
    """What does not hold of one thing; a record that cannot be read ends its check with what the error says."""
    try:
        match thing.kind:
            case "corpus":
                corpus = Corpus.open(thing.path)
                for damage in corpus.verify(advance):
                    yield from blame(corpus, damage)
            case "tokenizer":
                yield from _check_tokenizer(thing.path)
            case "blend":
                ResolvedBlend.read(thing.path)
            case "checkpoint":
                checkpoint = CheckpointDirectory(thing.path)
                sizes = [file.size for file in checkpoint.manifest.files]
                yield from check_files(checkpoint, lambda _what, done, _of: advance(sizes[done - 1]))
            case "run log":
                yield from check_run_log(RunDirectory(thing.path), project, note)
            case "index":
                yield from (
                    Finding("corpus", text, file=str(thing.path)) for text in NgramIndex(thing.path).check(advance)
                )
            case "attestation":
                yield from _check_attestation(thing.path, project, trusted, note)
    except TreeringError as error:
        yield Finding(_FINDING_KINDS[thing.kind], str(error), file=str(thing.path))


def _check_tokenizer(path: Path) -> Iterator[Finding]:
    found = digest_file(path)
    for manifest in sorted(path.parent.glob("*/*/manifest.json")):
        try:
            corpus = Corpus.open(manifest.parent)
        except TreeringError:  # that corpus has its own finding
            continue
        if corpus.manifest["tokenizer"]["digest"] != found:
            text = (
                f"{path}: {found}, expected {corpus.manifest['tokenizer']['digest']} by {manifest}: corpus "
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
