"""Compares records with bytes: corpora and checkpoint files digested again, every batch digest recomputed."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.corpora.catalog import Catalog
from treering.audit.evidence.rings import Recorded
from treering.audit.evidence.segments import Piece
from treering.audit.expected_file import ExpectedFile, file_problem
from treering.audit.report import Finding
from treering.config.canonical import DIGEST_PREFIX
from treering.data.corpus.chunks import map_in_order
from treering.data.corpus.corpus import BIN, IDX, MANIFEST, Corpus, Damage
from treering.data.corpus.ranged import RangedCorpus, RangedTokens
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError
from treering.progress import Progress, quiet
from treering.runlog.directory import CheckpointDirectory

_CHUNK = 1 << 14
_NO_TOKEN = np.iinfo(np.uint32).max
_SHOWN_DOCUMENTS = 8
_SHOWN_BATCHES = 3


def check_files(checkpoint: CheckpointDirectory, progress: Progress = quiet) -> list[Finding]:
    """Digests the checkpoint's files again and compares them with its manifest."""
    expected = [ExpectedFile(record.path, record.digest, record.size) for record in checkpoint.manifest.files]
    return compare_files(checkpoint.path, expected, "the checkpoint's manifest", progress)


def compare_files(folder: Path, expected: Sequence[ExpectedFile], by: str, progress: Progress = quiet) -> list[Finding]:
    """Digests the files of a checkpoint's folder and compares them with the expected digests.

    Args:
        folder: the checkpoint's folder.
        expected: every file but the manifest, which may be among them.
        by: who says so, for the findings.
        progress: is called for each file.
    """
    findings: list[Finding] = []
    problems = map_in_order(partial(file_problem, folder), expected)
    for done, (each, problem) in enumerate(zip(expected, problems, strict=True), 1):
        if problem:
            path = folder / each.path
            text = f"{path}: {problem} by {by}; `dvc checkout` restores a published one"
            findings.append(Finding("checkpoint", text, file=str(path)))
        progress("checkpoint files", done, len(expected))
    named = {folder / each.path for each in expected} | {folder / MANIFEST}
    parents = {parent for path in named for parent in path.parents}
    for path in sorted(folder.rglob("*")):
        filled = path.is_dir() and not path.is_symlink() and any(path.iterdir())  # what is in it is named
        if path not in named and path not in parents and not filled:
            what = "link" if path.is_symlink() else "empty folder" if path.is_dir() else "file"
            text = f"{path}: {by} names no such {what}: it was put there later; move it elsewhere"
            findings.append(Finding("checkpoint", text, file=str(path)))
    return findings


def check_corpora(pieces: Sequence[Piece], catalog: Catalog, progress: Progress = quiet) -> list[Finding]:
    """Digests the corpora again; names the damaged documents and the first step that read each.

    The catalog no longer believes an index that was found damaged.
    """
    findings: list[Finding] = []
    for done, (digest, corpus) in enumerate(catalog.corpora.items(), 1):
        damages = corpus.verify()
        if any(damage.file == IDX for damage in damages):
            with suppress(EvidenceError):  # the table is damaged too: both have their findings
                text = f"{corpus.directory / IDX}: its digest differs from the manifest's"
                catalog.use_table(corpus, Finding("corpus", text, file=str(corpus.directory / IDX), corpus=corpus.name))
        if damages:
            readers = _Readers(digest, pieces, catalog)
            findings += [finding for damage in damages for finding in damage_findings(corpus, damage, readers.describe)]
        progress("corpora", done, len(catalog.corpora))
    return findings


class _Readers:
    """Answers which step of a path first read a document of one corpus."""

    def __init__(self, digest: str, pieces: Sequence[Piece], catalog: Catalog) -> None:
        self._places = []
        for piece in pieces:
            digests = [component.digest for component in piece.blend.components]
            if digest in digests:
                self._places.append((piece, digests.index(digest)))
        self._catalog = catalog

    def first_step(self, document: int) -> int | None:
        """The first step that read a part of the document, None if none on the path did."""
        for piece, component in self._places:
            lo, hi = piece.sample_range
            exposures = self._catalog.order(piece.blend).exposures(component, document, hi)
            exposures = exposures[exposures >= lo]
            if len(exposures):
                return piece.schedule.step_of_sample(int(exposures[0]))
        return None

    def describe(self, document: int) -> tuple[int | None, str]:
        """That step, and the same in words."""
        step = self.first_step(document)
        return step, ": unread by this checkpoint" if step is None else f": first read by step {step}"


def _no_reader(_document: int) -> tuple[int | None, str]:
    return None, ""


def damage_findings(
    corpus: Corpus, damage: Damage, reader: Callable[[int], tuple[int | None, str]] = _no_reader
) -> Iterator[Finding]:
    """Findings for a damaged chunk: one for each damaged document, as far as they can be named.

    Args:
        corpus: the corpus.
        damage: what `Corpus.verify` found.
        reader: of a document the first step that read it, and the same in words; default without a path to look at.
    """
    file = str(corpus.directory / damage.file)
    helps = "`dvc checkout` restores the file"
    if not damage.documents:
        text = f"{file}: corpus {corpus.name}, no single document can be named; {damage.text}; {helps}"
        yield Finding("corpus", text, file=file, corpus=corpus.name, start=damage.start, end=damage.end)
    for number, name in list(zip(damage.documents, damage.ids, strict=True))[:_SHOWN_DOCUMENTS]:
        step, read = reader(number)
        text = f"{file}: corpus {corpus.name}, document {name} (number {number}){read}; {damage.text}; {helps}"
        yield Finding(
            "corpus", text, file=file, corpus=corpus.name, document=name, step=step, start=damage.start, end=damage.end
        )
    if len(damage.documents) > _SHOWN_DOCUMENTS:
        text = f"{file}: {len(damage.documents) - _SHOWN_DOCUMENTS} more documents of corpus {corpus.name} are damaged"
        yield Finding("corpus", text, file=file, corpus=corpus.name, start=damage.start, end=damage.end)


def batch_digests(stretch: Piece, corpora: Sequence[Corpus], first_step: int, last_step: int) -> Iterator[str]:
    """Recomputes the batch digests of steps [first_step, last_step] from the corpora's bytes.

    Args:
        stretch: says which samples a step reads and which tokens a sample is.
        corpora: one for each component, in the blend's order.
        first_step: first step.
        last_step: last step, inclusive.
    """
    samples = _sample_digests(DataOrder(stretch.blend), corpora, *stretch.schedule.samples_of(first_step, last_step))
    for step in range(first_step, last_step + 1):
        state = hashlib.sha256()
        for digest in itertools.islice(samples, stretch.schedule.batch_size(step)):
            state.update(digest)
        yield DIGEST_PREFIX + state.hexdigest()


def _sample_digests(order: DataOrder, corpora: Sequence[Corpus], lo: int, hi: int) -> Iterator[bytes]:
    """The raw digests of samples [lo, hi), read without the corpora's indices: samples begin at multiples of S.

    Tokens beyond the end of a file that was cut short read as the highest token, so that its digest differs.
    """
    sources = [token_map(corpus) for corpus in corpora]
    width = order.sequence_length + 1
    row = np.empty(width, dtype="<u4")  # one row, in the cache between widening and hashing
    for start in range(lo, hi, _CHUNK):
        components, firsts = order.token_ranges(start, min(start + _CHUNK, hi))
        for component, first in zip(components.tolist(), firsts.tolist(), strict=True):
            tokens = sources[component][first : first + width]
            row[:] = tokens if len(tokens) == width else _NO_TOKEN
            yield hashlib.sha256(row.data).digest()


def token_map(corpus: Corpus) -> NDArray[Any] | RangedTokens:
    """All tokens of a corpus, memory-mapped: a plain array, since slices of a `memmap` cost microseconds each."""
    if isinstance(corpus, RangedCorpus):
        return corpus.ranged_tokens
    path = corpus.directory / BIN
    width = int(corpus.manifest["token_width_bytes"])
    count = path.stat().st_size // width
    dtype = np.dtype(f"<u{width}")
    return np.asarray(np.memmap(path, dtype, "r", shape=(count,))) if count else np.empty(0, dtype)


def check_batches(recorded: Recorded, catalog: Catalog, progress: Progress = quiet) -> tuple[int, list[Finding]]:
    """Recomputes the batch digest of every step on the path.

    A batch of which a corpus is missing is not bound, and no finding: the missing corpus is one already.

    Returns:
        How many steps are bound to content, and a finding for the first steps that are not.
    """
    bound, done, different = 0, 0, []
    for piece in recorded.pieces:
        corpora = [catalog.corpora.get(component.digest or "") for component in piece.blend.components]
        at_hand = [corpus for corpus in corpora if corpus is not None]
        steps = [step for step in range(piece.first_step, piece.last_step + 1) if step in recorded.batch_digests]
        if len(at_hand) != len(corpora) or not steps:
            continue
        for step, digest in enumerate(batch_digests(piece, at_hand, steps[0], steps[-1]), steps[0]):
            if digest == recorded.batch_digests[step]:
                bound += 1
            else:
                different.append((step, digest))
            done += 1
            progress("batches", done, len(recorded.batch_digests))
    return bound, _differing(recorded, different)


def _differing(recorded: Recorded, different: list[tuple[int, str]]) -> list[Finding]:
    findings = []
    for step, digest in different[:_SHOWN_BATCHES]:
        file, line = recorded.where(step)
        findings.append(
            Finding(
                "batch",
                f"{file} line {line}: ring of step {step} was fed {recorded.batch_digests[step]}, the corpora give "
                f"{digest}; `treering batch` shows what lies there now",
                file=str(file),
                line=line,
                step=step,
            )
        )
    if len(different) > _SHOWN_BATCHES:
        text = f"batches of {len(different) - _SHOWN_BATCHES} more steps differ, the last of step {different[-1][0]}"
        findings.append(Finding("batch", text, step=different[-1][0]))
    return findings
