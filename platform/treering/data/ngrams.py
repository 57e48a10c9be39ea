"""An index from runs of words to the documents of a corpus that hold them.

    .treering/index/<first 16 hex of the corpus digest>/{index.json, hashes.bin, documents.bin}

Every distinct 13-gram of a document is one entry: its 64-bit hash and the document's number, sorted by hash; a lookup is
a binary search in two memory-mapped files. Built from the corpus's tokens, so that it is bound to the corpus's digest;
built in parts by the hash's highest bits, so that neither corpus nor index is ever whole in memory. A hash only names
candidates: whoever asks compares words.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt

from treering.config.canonical import short
from treering.data.corpus import Corpus
from treering.data.curate.words import Hashes, run_hashes, word_hashes
from treering.data.text import TextOf
from treering.errors import EvidenceError, NotFoundError

NGRAM_WORDS = 13
"""Words of an n-gram, as in decontamination (GPT-3, arXiv 2005.14165, and MT-NLG, arXiv 2201.11990)."""

INDEX, HASHES, DOCUMENTS = "index.json", "hashes.bin", "documents.bin"
_ENTRY = np.dtype([("hash", "<u8"), ("document", "<u4")])
_PART_BITS = 6
_FLUSH = 1 << 20
_BATCH = 256
_NAME_LENGTH = 16


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What an index was built from, and what that cost.

    Attributes:
        corpus: name of the corpus.
        corpus_digest: its identity.
        tokenizer: digest of the tokenizer that turned its tokens back into text.
        ngram_words: words of an n-gram.
        num_documents: documents indexed.
        num_tokens: their tokens.
        num_entries: distinct n-grams, counted for each document.
        num_bytes: size of the index.
        seconds: time that the build took.
    """

    corpus: str
    corpus_digest: str
    tokenizer: str
    ngram_words: int
    num_documents: int
    num_tokens: int
    num_entries: int
    num_bytes: int
    seconds: float

    @property
    def bytes_per_token(self) -> float:
        """Size of the index for each token of the corpus."""
        return self.num_bytes / self.num_tokens


class NgramIndex:
    """An index on disk, opened.

    Args:
        directory: where it lies.
        corpus: the corpus that it must have been built from.

    Raises:
        NotFoundError: there is none.
        EvidenceError: it was built from another corpus, or is not whole.
    """

    def __init__(self, directory: Path, corpus: Corpus) -> None:
        try:
            self.facts = IndexFacts(**json.loads((directory / INDEX).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise NotFoundError(
                f"{directory}: no index of corpus {corpus.name} ({short(corpus.digest)}); `treering index` builds it"
            ) from None
        except (ValueError, TypeError) as error:
            raise EvidenceError(f"{directory / INDEX}: not an index ({error}); `treering index` builds it anew") from error
        sizes = [(directory / name).stat().st_size for name in (HASHES, DOCUMENTS)]
        expected = [self.facts.num_entries * 8, self.facts.num_entries * 4]
        if self.facts.corpus_digest != corpus.digest or sizes != expected:
            raise EvidenceError(
                f"{directory}: built from {self.facts.corpus_digest} with files of {sizes} bytes, expected "
                f"{corpus.digest} and {expected}; `treering index --force` builds it anew"
            )
        self._hashes = _mapped(directory / HASHES, "<u8")
        self._documents = _mapped(directory / DOCUMENTS, "<u4")

    def lookup(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Documents that hold one of some n-grams, by their hashes alone.

        Args:
            hashes: from `run_hashes` of `NGRAM_WORDS` words.

        Returns:
            Positions in `hashes` and numbers of documents, int64 of one length.
        """
        first = np.searchsorted(self._hashes, hashes, side="left")
        counts = np.searchsorted(self._hashes, hashes, side="right") - first
        positions = np.repeat(np.arange(len(hashes), dtype=np.int64), counts)
        before = np.cumsum(counts) - counts
        entries = first[positions] + np.arange(len(positions), dtype=np.int64) - before[positions]
        return positions, self._documents[entries].astype(np.int64)


def index_directory(root: Path, corpus_digest: str) -> Path:
    """Where the index of a corpus lies below a project's folder of indexes."""
    return root / short(corpus_digest, _NAME_LENGTH)


def build_index(
    corpus: Corpus, text_of: TextOf, root: Path, progress: Callable[[str, int, int], None] = lambda *_: None
) -> IndexFacts:
    """Builds the index of a corpus; it appears when it is whole.

    Args:
        corpus: the corpus.
        text_of: turns its tokens back into text.
        root: the project's folder of indexes.
        progress: told how many documents are done.
    """
    started = time.monotonic()
    final = index_directory(root, corpus.digest)
    work = final.with_name(f".{final.name}.building")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    num_entries = 0
    with ExitStack() as stack:
        parts = [stack.enter_context((work / f"part-{number:02d}").open("w+b")) for number in range(1 << _PART_BITS)]
        for entries in _entries(corpus, text_of, progress):
            num_entries += len(entries)
            _distribute(entries, parts)
        hashes = stack.enter_context((work / HASHES).open("wb"))
        documents = stack.enter_context((work / DOCUMENTS).open("wb"))
        for part in parts:
            part.seek(0)
            entries = np.fromfile(part, dtype=_ENTRY)
            entries = entries[np.argsort(entries["hash"], kind="stable")]
            hashes.write(entries["hash"].tobytes())
            documents.write(entries["document"].tobytes())
    for path in work.glob("part-*"):
        path.unlink()
    facts = IndexFacts(
        corpus=corpus.name,
        corpus_digest=corpus.digest,
        tokenizer=text_of.digest,
        ngram_words=NGRAM_WORDS,
        num_documents=corpus.num_documents,
        num_tokens=corpus.num_tokens,
        num_entries=num_entries,
        num_bytes=num_entries * _ENTRY.itemsize,
        seconds=time.monotonic() - started,
    )
    (work / INDEX).write_text(json.dumps(asdict(facts), indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    work.rename(final)
    return facts


def _entries(
    corpus: Corpus, text_of: TextOf, progress: Callable[[str, int, int], None]
) -> Iterator[npt.NDArray[np.void]]:
    """The distinct n-grams of every document, some million at a time."""
    found: list[npt.NDArray[np.void]] = []
    held = 0
    for start in range(0, corpus.num_documents, _BATCH):
        numbers = range(start, min(start + _BATCH, corpus.num_documents))
        for number, text in zip(numbers, text_of.documents(corpus, numbers), strict=True):
            runs = np.unique(run_hashes(word_hashes(text), NGRAM_WORDS))
            entries = np.empty(len(runs), dtype=_ENTRY)
            entries["hash"], entries["document"] = runs, number
            found.append(entries)
            held += len(runs)
        progress(f"index {corpus.name}", numbers.stop, corpus.num_documents)
        if held >= _FLUSH:
            yield np.concatenate(found)
            found, held = [], 0
    if held:
        yield np.concatenate(found)


def _distribute(entries: npt.NDArray[np.void], parts: Sequence[BinaryIO]) -> None:
    """Appends entries to the part that their hash's highest bits name, documents ascending."""
    part = (entries["hash"] >> np.uint64(64 - _PART_BITS)).astype(np.int64)
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(len(parts) + 1))
    for number, file in enumerate(parts):
        if bounds[number] < bounds[number + 1]:
            file.write(entries[order[bounds[number] : bounds[number + 1]]].tobytes())


def _mapped(path: Path, dtype: str) -> npt.NDArray[np.generic]:
    empty = path.stat().st_size == 0
    return np.empty(0, dtype=dtype) if empty else np.asarray(np.memmap(path, dtype=dtype, mode="r"))
