"""Builds the index of a corpus's n-grams, in several processes, in bounded memory.

First the corpus is compared with its manifest. Then each worker takes ranges of documents, sorts their entries into
parts, and appends them to a file that only this worker writes. Then each worker takes parts: it collects the entries of
a part from all files, sorts them, and writes them into the index. The result does not depend on the workers. The index
appears when it is complete.

`--workers` processes (default: one a core, fewer for a small corpus) take ranges of documents, then parts of the index,
which stay small unless one run is in tens of millions of documents.
"""

import fcntl
import os
import shutil
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treering.config.canonical import digest_file
from treering.data.corpus.corpus import BIN, IDX, Corpus
from treering.data.corpus.mapped_offsets import MappedOffsets
from treering.data.corpus.text import Detokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.ngram_index.hashes import ngram_hashes
from treering.data.ngram_index.index import (
    BLOCK_ENTRIES,
    BLOCKS,
    ENTRIES,
    ENTRY_BYTES,
    MOST_PART_BITS,
    NGRAM_WORDS,
    IndexFacts,
    IndexLayout,
    checksum,
    index_directory,
    write_document,
)
from treering.data.ngram_index.workers import worker_map
from treering.data.words import Hashes
from treering.errors import EvidenceError, StoreError, UserError
from treering.progress import Progress, quiet

_BATCH_TOKENS = 1 << 16  # their characters stay in a core's cache
_MOST_RUN_TOKENS = 1 << 24  # longer runs would be read back in longer pieces, but take more memory
_FEWEST_RUN_TOKENS = 1 << 18
_PART_TOKENS = 1 << 25  # 256 MiB, since a token begins one n-gram at most
_WORKER_TOKENS = 1 << 24  # for fewer tokens a process takes longer to start than it saves
_MIB = 1 << 20
_BUILDING = ".building"


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries of a range of documents, on disk.

    Attributes:
        file: name of the file.
        start: its first byte there.
        bounds: first entry of each part, with the end: int32 [num_parts + 1].
    """

    file: str
    start: int
    bounds: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of the index: where its entries are, and where they go.

    Attributes:
        files: names of the files that hold pieces of it.
        starts: first byte of each piece: [num_pieces].
        counts: entries of each piece: [num_pieces].
        entry: its first entry in the index.
    """

    files: Sequence[str]
    starts: Sequence[int]
    counts: Sequence[int]
    entry: int


@dataclass(frozen=True, slots=True)
class _Build:
    """What the workers need; sent to their processes.

    Attributes:
        corpus: the corpus's folder.
        token: numpy's name of its tokens' type.
        spelling: its tokens as text.
        layout: how entries are made.
        work: folder of the unfinished index.
    """

    corpus: Path
    token: str
    spelling: Spelling
    layout: IndexLayout
    work: Path

    def run(self, documents: tuple[int, int]) -> _Run:
        """Sorts the entries of documents [first, last) into parts, and appends them to this process's file."""
        parts: list[npt.NDArray[np.uint16]] = []
        entries: list[Hashes] = []
        for hashes, numbers in self._hashes(*documents):
            parts.append(self.layout.parts(hashes))
            entries.append(self.layout.entries(hashes, numbers))
        part = np.concatenate(parts)
        sorted_entries = np.concatenate(entries)[np.argsort(part, kind="stable")]
        bounds = np.zeros(self.layout.num_parts + 1, dtype=np.int32)
        path = self.work / f"run-{os.getpid()}"
        with path.open("ab") as file:
            start = file.tell()
            ends = np.cumsum(np.bincount(part, minlength=self.layout.num_parts)).tolist()
            for number, (first, last) in enumerate(pairwise([0, *ends])):
                distinct = _distinct(sorted_entries[first:last])
                file.write(distinct.data)
                bounds[number + 1] = bounds[number] + len(distinct)
        return _Run(path.name, start, bounds)

    def _hashes(self, first: int, last: int) -> Iterator[tuple[Hashes, npt.NDArray[np.int64]]]:
        """Hashes of the n-grams of documents [first, last) with their numbers, some documents at a time."""
        offsets = MappedOffsets.open(self.corpus / IDX)[first : last + 1]
        tokens = np.memmap(self.corpus / BIN, dtype=self.token, mode="r")
        for lo, hi in pairwise(_cuts(offsets, _BATCH_TOKENS)):
            block = np.asarray(tokens[offsets[lo] : offsets[hi]])
            texts = self.spelling.texts(block, offsets[lo + 1 : hi + 1] - offsets[lo])
            hashes, numbers = ngram_hashes(texts, NGRAM_WORDS)
            yield hashes, numbers + (first + lo)

    def part(self, part: _Part) -> tuple[Hashes, Hashes]:
        """Sorts one part into the index; returns the first entry and the checksum of each of its blocks.

        Raises:
            OSError: a file is shorter than it was written.
        """
        entries = np.empty(sum(part.counts), dtype=np.uint64)
        content, filled = entries.view(np.uint8), 0
        with ExitStack() as stack:
            files = {name: stack.enter_context((self.work / name).open("rb", buffering=0)) for name in set(part.files)}
            for name, start, count in zip(part.files, part.starts, part.counts, strict=True):
                files[name].seek(start)
                size = count * ENTRY_BYTES
                if files[name].readinto(content[filled : filled + size].data) != size:
                    raise OSError(f"{self.work / name}: ends before byte {start + size:,}")
                filled += size
        entries.sort()
        with (self.work / ENTRIES).open("r+b") as file:
            file.seek(part.entry * ENTRY_BYTES)
            file.write(entries.data)
        blocks = range(0, len(entries), BLOCK_ENTRIES)
        sums = [checksum(entries[start : start + BLOCK_ENTRIES]) for start in blocks]
        return entries[::BLOCK_ENTRIES].copy(), np.array(sums, dtype=np.uint64)


def build_index(
    corpus: Corpus,
    text_of: Detokenizer,
    root: Path,
    progress: Progress = quiet,
    workers: int | None = None,
) -> IndexFacts:
    """Builds the index of a corpus; it appears when it is complete.

    Args:
        corpus: the corpus.
        text_of: turns its tokens back into text.
        root: the project's folder of indexes.
        progress: called with what is done, how much of it is finished, and how much there is.
        workers: processes; default: one for each core, fewer where the corpus is small.

    Raises:
        EvidenceError: the corpus is damaged, or was made by another tokenizer.
        UserError: another process builds an index there.
        StoreError: the disk is full, or a worker was killed.
    """
    text_of.check(corpus)
    if workers is None:
        workers = min(len(os.sched_getaffinity(0)), 1 + corpus.num_tokens // _WORKER_TOKENS)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _only_builder(root):
            return _build_there(corpus, text_of, root, progress, workers)
    except OSError as error:
        raise StoreError(
            f"{root}: {error}; building takes twice the index's size, some 16 bytes a token, on that disk"
        ) from error


def _build_there(corpus: Corpus, text_of: Detokenizer, root: Path, progress: Progress, workers: int) -> IndexFacts:
    """Builds in a hidden folder, which gets its name when the index is complete."""
    started = time.monotonic()
    for left in root.glob(f".*{_BUILDING}"):  # by builders that were killed
        shutil.rmtree(left, ignore_errors=True)
    final = index_directory(root, corpus.digest)
    work = final.with_name(f".{final.name}{_BUILDING}")
    work.mkdir()
    try:
        _check_corpus(corpus, progress)
        num_entries, part_entries = _build(corpus, text_of, work, progress, workers)
        facts = IndexFacts(
            corpus=corpus.name,
            corpus_digest=corpus.digest,
            tokenizer=text_of.digest,
            unicode=unicodedata.unidata_version,
            ngram_words=NGRAM_WORDS,
            num_documents=corpus.num_documents,
            num_tokens=corpus.num_tokens,
            num_entries=num_entries,
            num_bytes=sum((work / name).stat().st_size for name in (ENTRIES, BLOCKS)),
            workers=workers,
            seconds=time.monotonic() - started,
        )
        write_document(work, facts, _layout(corpus), part_entries, digest_file(work / BLOCKS))
        shutil.rmtree(final, ignore_errors=True)
        work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return facts


def _build(corpus: Corpus, text_of: Detokenizer, work: Path, progress: Progress, workers: int) -> tuple[int, list[int]]:
    """Writes entries and blocks; returns the number of entries, and of those in each part."""
    layout = _layout(corpus)
    token = f"<u{corpus.manifest['token_width_bytes']}"
    build = _Build(corpus.directory, token, text_of.spelling, layout, work)
    offsets = corpus.mapped_offsets
    cuts = _cuts(offsets, min(_MOST_RUN_TOKENS, max(_FEWEST_RUN_TOKENS, corpus.num_tokens // (4 * workers))))
    runs: list[_Run] = []
    with worker_map(workers) as map_over:
        for end, run in zip(cuts[1:], map_over(build.run, pairwise(cuts)), strict=True):
            runs.append(run)
            progress(f"index {corpus.name}", end, corpus.num_documents)
        bounds = np.stack([run.bounds for run in runs])
        part_entries = np.diff(bounds, axis=1).sum(axis=0, dtype=np.int64)
        (work / ENTRIES).touch()
        blocks = []
        for done, found in enumerate(map_over(build.part, _parts(runs, bounds, part_entries)), 1):
            blocks.append(found)
            progress(f"sort {corpus.name}", done, layout.num_parts)
    with (work / BLOCKS).open("wb") as file:
        for column in zip(*blocks, strict=True):
            file.write(np.concatenate(column).data)
    for name in {run.file for run in runs}:
        (work / name).unlink()
    return int(part_entries.sum()), part_entries.tolist()


def _layout(corpus: Corpus) -> IndexLayout:
    """The layout whose parts are small, whatever the corpus's size."""
    parts = -(-corpus.num_tokens // _PART_TOKENS)
    return IndexLayout(
        part_bits=min((parts - 1).bit_length(), MOST_PART_BITS), document_bits=(corpus.num_documents - 1).bit_length()
    )


def _parts(runs: Sequence[_Run], bounds: npt.NDArray[np.int32], part_entries: npt.NDArray[np.int64]) -> Iterator[_Part]:
    """Every part, its pieces in the order of the runs."""
    entry, files = 0, [run.file for run in runs]
    starts = np.array([run.start for run in runs])
    for part, count in enumerate(part_entries.tolist()):
        places = starts + bounds[:, part].astype(np.int64) * ENTRY_BYTES
        yield _Part(files, places.tolist(), (bounds[:, part + 1] - bounds[:, part]).tolist(), entry)
        entry += count


def _cuts(offsets: MappedOffsets | npt.NDArray[np.int64], most_tokens: int) -> list[int]:
    """Where to cut the documents, both ends included, into ranges of about `most_tokens` and at least one document."""
    start, end, last = int(offsets[0]), int(offsets[-1]), len(offsets) - 1
    inner = offsets.searchsorted(np.arange(start + most_tokens, end, most_tokens))
    return sorted({0, *np.asarray(inner).tolist(), last})


def _distinct(entries: Hashes) -> Hashes:
    """Sorts entries in place; returns each distinct one."""
    entries.sort()
    differs: npt.NDArray[np.bool_] = np.diff(entries, prepend=~entries[:1]) != 0
    return entries[differs]


def _check_corpus(corpus: Corpus, progress: Progress) -> None:
    """Refuses a damaged corpus, of whose tokens an index would miss some.

    Raises:
        EvidenceError: a byte of the corpus differs from its manifest.
    """
    done, total = 0, sum(int(file["size"]) for file in corpus.manifest["files"].values())

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress(f"check {corpus.name}", done // _MIB, -(-total // _MIB))

    damages = corpus.verify(advance)
    if damages:
        first = damages[0]
        raise EvidenceError(
            f"{corpus.directory / first.file}: bytes {first.start:,} to {first.end:,}: {first.reason}; "
            "`treering verify` names the damaged documents, `dvc checkout` restores them",
            file=corpus.directory / first.file,
            found=first.reason,
            remedy="`dvc checkout`",
        )


@contextmanager
def _only_builder(root: Path) -> Iterator[None]:
    """Refuses a second builder, which would write into the same files; the lock ends with its process.

    Raises:
        UserError: another process builds an index there.
    """
    with (root / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{root}: another process builds an index there; try again when it has finished") from None
        yield
