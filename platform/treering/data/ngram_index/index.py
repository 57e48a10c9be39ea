"""An index from n-grams of words to the documents of a corpus that hold them.

    .treering/index/<first 16 hex of the corpus digest>/{index.json, entries.bin, blocks.bin}

Every distinct 13-gram of a document is one entry of 64 bits: as much of its hash as fits above the document's number.
Entries are in parts by the highest bits of the hash, which the entries leave out, and ascend within a part. For every
block of 4,096 entries `blocks.bin` holds the first entry and a checksum. A lookup is a binary search in `blocks.bin`,
then a binary search in each block that it names. Each of these blocks is checked, so that a damaged block is never
taken for an n-gram that no document holds. A hash only names candidates: the caller compares words.

Opening an index checks its digest, sizes, corpus, format and version of Unicode; a lookup checks the checksum of each
4,096 entries that it uses (`treering verify` all), and the caller the digest of each document that it compares.
"""

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import xxhash

from treering.config.canonical import digest_file, digest_json, parse_json, short
from treering.data.corpus.corpus import Corpus
from treering.data.words import Hashes
from treering.errors import EvidenceError, NotFoundError
from treering.files import read_bytes, write_durably

NGRAM_WORDS = 13
"""Words of an n-gram, as in decontamination (GPT-3, arXiv 2005.14165, and MT-NLG, arXiv 2201.11990)."""

INDEX, ENTRIES, BLOCKS = "index.json", "entries.bin", "blocks.bin"
FORMAT = 2
BLOCK_ENTRIES = 4096
ENTRY_BYTES = 8
MOST_PART_BITS = 16
_NAME_LENGTH = 16
_REMEDY = "`treering index --force` builds it anew"
_CHANGED = "it was changed after it was written"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What an index was built from, and what the build cost.

    Attributes:
        corpus: name of the corpus.
        corpus_digest: its identity.
        tokenizer: digest of the tokenizer that turned its tokens back into text.
        unicode: version of the character tables that decide what a letter is.
        ngram_words: words of an n-gram.
        num_documents: documents indexed.
        num_tokens: their tokens.
        num_entries: distinct n-grams, counted for each document.
        num_bytes: size of the index.
        workers: processes that built it.
        seconds: time that the build took.
    """

    corpus: str
    corpus_digest: str
    tokenizer: str
    unicode: str
    ngram_words: int
    num_documents: int
    num_tokens: int
    num_entries: int
    num_bytes: int
    workers: int
    seconds: float

    @property
    def bytes_per_token(self) -> float:
        """Size of the index for each token of the corpus."""
        return self.num_bytes / self.num_tokens


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """How entries are made.

    Attributes:
        part_bits: highest bits of a hash, which name its part.
        document_bits: bits of an entry that hold the document's number.
    """

    part_bits: int
    document_bits: int

    @property
    def num_parts(self) -> int:
        """How many parts there are."""
        return 1 << self.part_bits

    @property
    def document_mask(self) -> np.uint64:
        """The bits of the document's number."""
        return np.uint64((1 << self.document_bits) - 1)

    def parts(self, hashes: Hashes) -> npt.NDArray[np.uint16]:
        """The part of each hash."""
        # Two shifts: one by 64 is undefined.
        return (hashes >> np.uint64(1) >> np.uint64(63 - self.part_bits)).astype(np.uint16)

    def entries(self, hashes: Hashes, documents: Numbers | int) -> Hashes:
        """The entry of each hash in its part."""
        bits = np.uint64(self.document_bits)
        return (hashes << np.uint64(self.part_bits)) >> bits << bits | np.asarray(documents).astype(np.uint64)

    def documents(self, entries: Hashes) -> Numbers:
        """The document's number of each entry."""
        return (entries & self.document_mask).astype(np.int64)


class NgramIndex:
    """An index on disk, opened.

    Args:
        directory: the index's folder.
        corpus: the corpus that the index must be built from; without it only the index itself is checked.

    Attributes:
        facts: what the index was built from.

    Raises:
        NotFoundError: the index is missing.
        EvidenceError: the index was built from another corpus or by another version, or is not complete.
    """

    def __init__(self, directory: Path, corpus: Corpus | None = None) -> None:
        self._directory = directory
        document = _read_document(directory, corpus)
        try:
            self.facts = IndexFacts(**document["facts"])
            self._layout = IndexLayout(**document["layout"])
            self._part_starts = _starts(document["part_entries"])
            blocks_digest = document["blocks"]
        except (KeyError, TypeError) as error:
            _refuse(directory / INDEX, f"not an index ({error})", str(error), "an index")
        self._check_origin(corpus)
        self._block_starts = _starts(blocks_of(np.diff(self._part_starts)))
        num_blocks, num_entries = int(self._block_starts[-1]), int(self._part_starts[-1])
        expected = {ENTRIES: num_entries * ENTRY_BYTES, BLOCKS: num_blocks * 2 * ENTRY_BYTES}
        for name, size in expected.items():
            found = (directory / name).stat().st_size if (directory / name).is_file() else None
            if found != size:
                problem = "no such file" if found is None else f"found {found} bytes"
                _refuse(directory / name, f"{problem}, expected {size} bytes", found, size)
        found_digest = digest_file(directory / BLOCKS)
        if found_digest != blocks_digest:
            _refuse(directory / BLOCKS, _CHANGED, found_digest, blocks_digest)
        blocks = _mapped(directory / BLOCKS)
        self._first, self._checksums = blocks[:num_blocks], blocks[num_blocks:]
        self._entries = _mapped(directory / ENTRIES)
        self._checked = np.zeros(num_blocks, dtype=bool)

    def _check_origin(self, corpus: Corpus | None) -> None:
        facts = self.facts
        expected = {"unicode": unicodedata.unidata_version, "ngram_words": NGRAM_WORDS}
        if corpus is not None:
            expected["corpus_digest"] = corpus.digest
        for name, value in expected.items():
            found = getattr(facts, name)
            if found != value:
                _refuse(self._directory, f"built from {name} {found}, expected {value}", found, value)

    def lookup(self, hashes: Hashes) -> tuple[Numbers, Numbers]:
        """Finds the entries of some n-grams.

        Args:
            hashes: from `ngram_hashes` of `NGRAM_WORDS` words.

        Returns:
            The first entry of each n-gram, and the number of its entries, which is the number of documents that hold
            the n-gram, by its hash alone: both int64 [len(hashes)].

        Raises:
            EvidenceError: a block that was read is damaged.
        """
        parts, entries = self._layout.parts(hashes), self._layout.entries(hashes, 0)
        first = self._rank(parts, entries, "left")
        return first, self._rank(parts, entries | self._layout.document_mask, "right") - first

    def documents(self, first: int, count: int) -> Numbers:
        """The documents of the first `count` entries from an entry that `lookup` named: ascending, int64 [count].

        Raises:
            EvidenceError: a block that was read is damaged.
        """
        part = int(np.searchsorted(self._part_starts, first, side="right")) - 1
        start = int(self._part_starts[part])
        blocks = range((first - start) // BLOCK_ENTRIES, -(-(first + count - start) // BLOCK_ENTRIES))
        for block in blocks:
            self._block(part, block)
        return self._layout.documents(self._entries[first : first + count])

    def check(self, advance: Callable[[int], None] = lambda _bytes: None) -> Iterator[EvidenceError]:
        """Reads every block; yields an error for each damaged one.

        Args:
            advance: called with the number of bytes that were read since its last call.
        """
        for part, (start, end) in enumerate(pairwise(self._block_starts.tolist())):
            for block in range(end - start):
                try:
                    advance(self._block(part, block).nbytes)
                except EvidenceError as error:
                    yield error

    def _rank(self, parts: npt.NDArray[np.uint16], entries: Hashes, side: Any) -> Numbers:
        """How many entries of the index precede each of the given ones: int64 [len(entries)]."""
        rank = np.empty(len(entries), dtype=np.int64)
        order = np.lexsort((entries, parts))
        bounds = np.searchsorted(parts[order], np.arange(self._layout.num_parts + 1))
        for part in np.unique(parts).tolist():
            asked = order[bounds[part] : bounds[part + 1]]
            first = self._first[self._block_starts[part] : self._block_starts[part + 1]]
            # The last block that begins before the entry; later blocks do not count.
            blocks = np.searchsorted(first, entries[asked], side=side) - 1
            start = int(self._part_starts[part])
            rank[asked] = start
            for block in np.unique(blocks[blocks >= 0]).tolist():
                mine = asked[slice(*np.searchsorted(blocks, [block, block + 1]))]
                within = np.searchsorted(self._block(part, block), entries[mine], side=side)
                rank[mine] = start + block * BLOCK_ENTRIES + within
        return rank

    def _block(self, part: int, block: int) -> Hashes:
        """A block of a part, checked when it is read for the first time.

        Raises:
            EvidenceError: its checksum differs.
        """
        start = int(self._part_starts[part]) + block * BLOCK_ENTRIES
        end = min(start + BLOCK_ENTRIES, int(self._part_starts[part + 1]))
        entries, number = self._entries[start:end], int(self._block_starts[part]) + block
        if not self._checked[number]:
            found, expected = checksum(entries), int(self._checksums[number])
            if found != expected:
                problem = f"bytes {start * ENTRY_BYTES:,} to {end * ENTRY_BYTES:,} were changed after they were written"
                _refuse(self._directory / ENTRIES, problem, found, expected)
            self._checked[number] = True
        return entries


def index_directory(root: Path, corpus_digest: str) -> Path:
    """The folder of a corpus's index, below a project's folder of indexes."""
    return root / short(corpus_digest, _NAME_LENGTH)


def write_document(
    directory: Path, facts: IndexFacts, layout: IndexLayout, part_entries: Sequence[int], blocks_digest: str
) -> None:
    """Writes `index.json`: facts, layout, entries of each part, digest of `blocks.bin`, and a digest over all that."""
    content = {
        "format": FORMAT,
        "facts": asdict(facts),
        "layout": asdict(layout),
        "part_entries": list(part_entries),
        "blocks": blocks_digest,
    }
    text = json.dumps({**content, "digest": digest_json(content)}, indent=1)
    write_durably(directory / INDEX, text + "\n")


def blocks_of(num_entries: npt.NDArray[Any]) -> Numbers:
    """The number of blocks of each part, from its number of entries."""
    return -(-num_entries // BLOCK_ENTRIES)


def checksum(entries: Hashes) -> int:
    """XXH3 of a block. It detects damage, not forgery: whoever can write the index can write its checksums too."""
    return xxhash.xxh3_64_intdigest(entries.data)


def _read_document(directory: Path, corpus: Corpus | None) -> dict[str, Any]:
    path = directory / INDEX
    try:
        document = parse_json(read_bytes(path))
    except FileNotFoundError:
        of = "" if corpus is None else f" of corpus {corpus.name} ({short(corpus.digest)})"
        raise NotFoundError(f"{directory}: no index{of}; `treering index` builds it") from None
    except (OSError, ValueError) as error:
        _refuse(path, f"not an index ({error})", str(error), "an index")
    found = document.get("format", 1) if isinstance(document, dict) else None
    if found != FORMAT:
        _refuse(path, f"format {found}, expected {FORMAT}", found, FORMAT)
    digest = digest_json({key: value for key, value in document.items() if key != "digest"})
    if digest != document.get("digest"):
        _refuse(path, _CHANGED, digest, document.get("digest"))
    return dict(document)


def _refuse(path: Path, problem: str, found: object, expected: object) -> NoReturn:
    raise EvidenceError(f"{path}: {problem}; {_REMEDY}", file=path, found=found, expected=expected, remedy=_REMEDY)


def _starts(counts: Any) -> Numbers:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)


def _mapped(path: Path) -> Hashes:
    empty = path.stat().st_size == 0
    return np.empty(0, dtype=np.uint64) if empty else np.asarray(np.memmap(path, dtype="<u8", mode="r"))
