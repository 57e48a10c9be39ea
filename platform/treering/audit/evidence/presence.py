"""Finds what the records of a project name and what is missing from it as a whole: corpora, held-out corpora, a blend.

A file that is missing inside a folder is found where the folder is checked; a folder that is missing whole is not
walked at all, so this asks the records that name it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved import CONFIG_FILE
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.errors import EvidenceError, TreeringError
from treering.project import Project
from treering.runlog.directory import RunDirectory

_HELPS = "`dvc checkout` restores it, `treering find` looks for its digest"


@dataclass(frozen=True, slots=True)
class Named:
    """A corpus that a record of a run names.

    Attributes:
        split: `train` or `heldout`.
        corpus: its name.
        digest: its identity, None where the record names it alone.
        by: the record.
    """

    split: str
    corpus: str
    digest: str | None
    by: Path


def check_presence(project: Project, note: Callable[[str], None]) -> Iterator[Finding]:
    """Corpora that the runs on the project's blend read, by digest; and what the blend states about them.

    Runs on another blend are history: their corpora may have been replaced, and only a note says so.
    """
    runs = [RunDirectory(path.parent) for path in sorted(project.runs.glob(f"*/{CONFIG_FILE}"))]
    published = RunDirectory(project.published)
    blend = _blend(project, published)
    if blend is None:
        return
    if not project.blend.exists() and project.corpora.exists() and _was_resolved(project):
        text = f"{project.blend}: is missing, but {published.path} was trained on it; `dvc repro blend` makes it"
        yield Finding("record", text, file=str(project.blend))
    if not project.corpora.exists():
        note(f"{project.corpora}: is missing: no corpus was checked; `dvc checkout` brings the corpora back")
        return
    yield from _check_blend(project, blend)
    there = _corpora(project)
    seen: set[tuple[str, str, str | None]] = set()
    for run in (*runs, published):
        for named in _named_by(run):
            key = (named.split, named.corpus, named.digest)
            if key in seen or (named.digest is not None and named.digest in there.values()):
                continue
            seen.add(key)
            folder = project.corpus(named.corpus, named.split)
            if named.digest is None and folder.is_dir():
                continue
            current = _is_on(run, blend)
            found = there.get(folder)
            if folder.is_dir() and found is None:
                continue  # the corpus has its own finding
            what = "is missing" if found is None else f"is corpus {found}"
            expected = "" if named.digest is None else f", expected {named.digest}"
            file = folder if found is None else folder / MANIFEST
            text = f"{file}: {what}{expected} by {named.by}"
            if current:
                yield Finding("corpus", f"{text}; {_HELPS}", file=str(file), corpus=named.corpus)
            else:
                note(f"{text}, of run {run.path.name} on another blend")


def _blend(project: Project, published: RunDirectory) -> ResolvedBlend | None:
    """The project's blend; where that is gone, the one of the published run."""
    with suppress(TreeringError):
        return ResolvedBlend.read(project.blend)
    with suppress(EvidenceError):
        return published.resolved.blend
    return None


def _was_resolved(project: Project) -> bool:
    return project.published.exists()


def _is_on(run: RunDirectory, blend: ResolvedBlend) -> bool:
    try:
        return run.resolved.recipe.blend == blend.digest
    except EvidenceError:
        return True


def _corpora(project: Project) -> dict[Path, str]:
    """Digest of every corpus whose manifest can be read, by folder."""
    found = {}
    for manifest in sorted(project.corpora.glob(f"*/*/{MANIFEST}")):
        with suppress(TreeringError):
            found[manifest.parent] = Corpus.open(manifest.parent).digest
    return found


def _named_by(run: RunDirectory) -> Iterator[Named]:
    for attempt in run.attempts():
        if attempt.has_header:
            for corpus, digest in attempt.header.corpora.items():
                yield Named("train", corpus, digest, attempt.header_file)
    with suppress(EvidenceError):
        for record in run.evaluations():
            for corpus, digest in record.corpora.items():
                yield Named("heldout", corpus, digest, run.evaluations_folder)
    with suppress(EvidenceError):
        for ring in run.attempts()[0].rings() if run.attempts() else ():
            if ring.validation is not None:
                for corpus in ring.validation["by_corpus"]:
                    yield Named("heldout", corpus, None, run.attempts()[0].rings_file)
                break


def _check_blend(project: Project, blend: ResolvedBlend) -> Iterator[Finding]:
    """What a blend states about its corpora beside their digests; no digest covers it."""
    there = {digest: folder for folder, digest in _corpora(project).items()}
    for number, component in enumerate(blend.components):
        folder = there.get(component.digest or "")
        if folder is None:
            continue
        corpus = Corpus.open(folder)
        for name, found, expected in (
            ("num_tokens", component.num_tokens, corpus.num_tokens),
            ("num_documents", component.num_documents, corpus.num_documents),
        ):
            if found != expected:
                text = (
                    f"{project.blend}: components.{number}.{name} is {found}, expected {expected} by "
                    f"{folder / MANIFEST} ({short(corpus.digest)}); `dvc repro -f blend` makes it anew"
                )
                yield Finding("record", text, file=str(project.blend), corpus=component.corpus)
