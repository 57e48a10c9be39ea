"""The corpus: a directory of `corpus.bin`, `corpus.idx`, `documents.parquet` and `manifest.json`.

Stage `tokenize` writes it; the blend names it by its digest, the trainer reads its tokens, the audit re-digests it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treering.data.corpus.chunks import digest_range, map_in_order
from treering.data.corpus.document_table import DOCUMENT_SCHEMA, DocumentTable
from treering.data.corpus.indexed import TokenFile, index_bytes, index_document
from treering.data.corpus.manifest import CHUNK_BYTES, read_manifest
from treering.data.corpus.mapped_offsets import MappedOffsets
from treering.errors import EvidenceError, NotFoundError
from treering.files import open_regular

BIN, IDX, DOCUMENTS, MANIFEST = "corpus.bin", "corpus.idx", "documents.parquet", "manifest.json"


def token_digest(tokens: npt.NDArray[Any]) -> str:
    """`sha256:<hex>` over tokens as little-endian uint32."""
    return f"sha256:{hashlib.sha256(np.ascontiguousarray(tokens, dtype='<u4').tobytes()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Damage:
    """A chunk of a corpus's file that is not what the manifest says.

    Attributes:
        file: name of the file in the corpus's directory.
        chunk: number of the chunk of 4 MiB.
        start: first byte of the chunk.
        end: byte after its last one.
        documents: numbers of the damaged documents that the chunk holds or describes; empty if none can be named.
        ids: their ids.
        reason: what was found and what was expected.
    """

    file: str
    chunk: int
    start: int
    end: int
    documents: tuple[int, ...]
    ids: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """The bytes and what is wrong with them, for a message that names the file."""
        return f"bytes {self.start:,} to {self.end:,} (chunk {self.chunk}): {self.reason}"


@dataclass(frozen=True)
class Corpus:
    """An opened corpus.

    Attributes:
        directory: the corpus's folder; not a part of its identity.
        manifest: its manifest, whose digest was checked.
    """

    directory: Path
    manifest: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, directory: Path) -> "Corpus":
        """Opens a corpus by its manifest; tokens are read later, when a caller needs them.

        Raises:
            NotFoundError: the directory does not exist.
            EvidenceError: the manifest is missing or does not have its digest, or a file is missing.
        """
        if not directory.is_dir():
            raise NotFoundError(f"corpus {directory}: no such directory; run `dvc repro tokenize`")
        manifest = read_manifest(directory / MANIFEST)
        for name in (BIN, IDX, DOCUMENTS):
            if name not in manifest["files"]:
                raise EvidenceError(
                    f"{directory / MANIFEST}: files.{name} is missing; `dvc checkout` restores it",
                    file=directory / MANIFEST,
                    expected=f"files.{name}",
                    remedy="`dvc checkout`",
                )
            if not (directory / name).is_file():
                raise EvidenceError(
                    f"corpus {directory}: {name} is missing; `dvc checkout` restores it",
                    file=directory / name,
                    remedy="`dvc checkout`",
                )
        return cls(directory, manifest)

    @property
    def name(self) -> str:
        """The name for people; not a part of the identity."""
        return str(self.manifest["name"])

    @property
    def digest(self) -> str:
        """The identity: `sha256:<hex>` of the manifest's content."""
        return str(self.manifest["digest"])

    @property
    def num_tokens(self) -> int:
        """Tokens, end-of-document tokens included."""
        return int(self.manifest["num_tokens"])

    @property
    def num_documents(self) -> int:
        """Documents; none is empty."""
        return int(self.manifest["num_documents"])

    @cached_property
    def _tokens(self) -> npt.NDArray[np.generic]:
        path, width = self.directory / BIN, int(self.manifest["token_width_bytes"])
        found, expected = path.stat().st_size, self.num_tokens * width
        if found != expected:
            raise EvidenceError(
                f"{path}: found {found} bytes, expected {expected} for {self.num_tokens} tokens;"
                " `dvc checkout` restores it",
                file=path,
                found=found,
                expected=expected,
                remedy="`dvc checkout`",
            )
        return self._mapped_tokens

    @cached_property
    def _table(self) -> DocumentTable:
        return DocumentTable(self.directory / DOCUMENTS, self.num_documents)

    @cached_property
    def document_offsets(self) -> npt.NDArray[np.int64]:
        """First token of each document, with the end: int64 [num_documents + 1], aligned; reads the whole index.

        Raises:
            EvidenceError: the index is damaged.
        """
        offsets = TokenFile.open(self.directory / BIN, self.directory / IDX).document_offsets
        whole = len(offsets) == self.num_documents + 1 and offsets[-1] == self.num_tokens
        if not whole or np.any(np.diff(offsets) <= 0):
            raise self._other_index(len(offsets) - 1, int(offsets[-1]))
        return offsets

    @cached_property
    def mapped_offsets(self) -> MappedOffsets:
        """`document_offsets`, looked up in the memory-mapped index: at once and without memory.

        Checked are the index's size and its ends, and its entries for each document that is looked up.

        Raises:
            EvidenceError: the index is missing, or has another number of documents or tokens.
        """
        offsets = MappedOffsets.open(self.directory / IDX)
        ends = len(offsets) - 1, int(offsets.positions[0]), offsets.num_tokens
        if ends != (self.num_documents, 0, self.num_tokens):
            raise self._other_index(len(offsets) - 1, offsets.num_tokens)
        return offsets

    def _other_index(self, documents: int, tokens: int) -> EvidenceError:
        found = f"{documents} documents of {tokens} tokens"
        expected = f"{self.num_documents} documents, none empty, of {self.num_tokens} tokens"
        return EvidenceError(
            f"{self.directory / IDX}: found {found}, expected {expected}; `dvc checkout` restores it",
            file=self.directory / IDX,
            found=found,
            expected=expected,
            remedy="`dvc checkout`",
        )

    @property
    def table_offsets(self) -> npt.NDArray[np.int64]:
        """`document_offsets` by the document table, for a corpus with a damaged index: int64 [num_documents + 1].

        Raises:
            EvidenceError: the table is damaged.
        """
        offsets = np.zeros(self.num_documents + 1, dtype=np.int64)
        for first, batch in self.batches("tokens"):
            offsets[first + 1 : first + 1 + len(batch)] = batch["tokens"].to_numpy()
        if offsets[1:].min() < 1 or int(offsets.sum()) != self.num_tokens:
            raise EvidenceError(
                f"{self.directory / DOCUMENTS}: found {offsets.sum()} tokens, expected {self.num_tokens}, no document"
                " empty; `dvc checkout` restores it",
                file=self.directory / DOCUMENTS,
                found=int(offsets.sum()),
                expected=self.num_tokens,
                remedy="`dvc checkout`",
            )
        return np.cumsum(offsets, out=offsets)

    def tokens(self, start: int, stop: int) -> npt.NDArray[np.generic]:
        """Tokens `start` to `stop` (exclusive), a view of the memory-mapped file: uint16 or uint32 [stop - start].

        Raises:
            IndexError: the range leaves the corpus.
            EvidenceError: the file's size differs from the manifest's.
        """
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"corpus {self.name}: tokens {start} to {stop} of {self.num_tokens}")
        return self._tokens[start:stop]

    def document_tokens(self, index: int) -> npt.NDArray[np.generic]:
        """Tokens of one document; only its index entry and these tokens are read: uint16 or uint32 [num_tokens of it].

        The tokens are unchecked: a caller that relies on them compares them with the digest in the document table.

        Raises:
            IndexError: no such document.
            EvidenceError: the index is missing, contradicts itself about the document, or names tokens that the corpus
                does not have.
        """
        if not 0 <= index < self.num_documents:
            raise IndexError(f"corpus {self.name}: document {index} of {self.num_documents}")
        start, stop = self.mapped_offsets[index : index + 2].tolist()
        if not 0 <= start < stop <= len(self._mapped_tokens):
            raise EvidenceError(
                f"{self.directory / IDX}: found tokens {start} to {stop} for document {index}, expected some of the "
                f"{len(self._mapped_tokens)} in {BIN}; `dvc checkout` restores both",
                file=self.directory / IDX,
                found=f"tokens {start} to {stop}",
                expected=f"some of the {len(self._mapped_tokens)} in {BIN}",
                remedy="`dvc checkout`",
            )
        return self._mapped_tokens[start:stop]

    @cached_property
    def _mapped_tokens(self) -> npt.NDArray[np.generic]:
        path, width = self.directory / BIN, int(self.manifest["token_width_bytes"])
        shape = (path.stat().st_size // width,)
        # A plain array over the map: slices of a `memmap` cost microseconds each.
        return np.asarray(np.memmap(path, f"<u{width}", "r", shape=shape)) if shape[0] else np.empty(0, f"<u{width}")

    def document(self, index: int) -> dict[str, Any]:
        """Row of the document table: id, source, offset, licence, tokens, digest.

        Raises:
            IndexError: no such document.
            EvidenceError: the document table, or this part of it, cannot be read.
        """
        if not 0 <= index < self.num_documents:
            raise IndexError(f"corpus {self.name}: document {index} of {self.num_documents}")
        return self._table.row(index)

    def documents(
        self, numbers: Sequence[int] | npt.NDArray[np.int64], columns: Sequence[str] = tuple(DOCUMENT_SCHEMA.names)
    ) -> list[dict[str, Any]]:
        """Rows of the document table, in the order of the numbers; only the row groups that hold them are read.

        Raises:
            IndexError: no such document.
            EvidenceError: the document table, or those parts of it, cannot be read.
        """
        wrong = [number for number in numbers if not 0 <= number < self.num_documents]
        if wrong:
            raise IndexError(f"corpus {self.name}: document {wrong[0]} of {self.num_documents}")
        return self._table.rows(numbers, columns)

    def batches(self, *columns: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Columns of the document table in batches of rows: the number of a batch's first row, and the batch.

        Raises:
            EvidenceError: the document table, or a part of these columns, cannot be read.
        """
        return self._table.batches(columns)

    def verify(self, advance: Callable[[int], None] = lambda _bytes: None) -> list[Damage]:
        """Digests every file again, by chunks in parallel; an empty list means that every file is as in the manifest.

        In a damaged chunk of `corpus.bin` each document is digested again, so that exactly the damaged documents are
        named. Their digests and ids come from the document table, which is checked too; a damaged table names none.

        Args:
            advance: called with the number of bytes that were digested since its last call.
        """
        found = [damage for name in (BIN, IDX, DOCUMENTS) for damage in self._damaged_chunks(name, advance)]
        if not found or any(damage.file == DOCUMENTS for damage in found):
            return found
        offsets = self.table_offsets
        damaged_documents = {BIN: self._damaged_in_bin, IDX: self._damaged_in_idx}
        named = []
        for damage in found:
            documents = tuple(damaged_documents[damage.file](damage.start, damage.end, offsets))
            ids = tuple(row["id"] for row in self.documents(documents, ["id"]))
            named.append(Damage(damage.file, damage.chunk, damage.start, damage.end, documents, ids, damage.reason))
        return named

    def _damaged_chunks(self, name: str, advance: Callable[[int], None]) -> list[Damage]:
        """Chunks of one file whose digest differs, chunks that are missing, and bytes after the expected end."""
        expected, path = self.manifest["files"][name], self.directory / name
        size, chunks = int(expected["size"]), list(expected["chunks"])
        found = []
        starts = range(0, size, CHUNK_BYTES)
        with open_regular(path) as file:
            actual_digests = map_in_order(
                lambda start: digest_range(file.fileno(), start, min(CHUNK_BYTES, size - start)), starts
            )
            for number, (start, actual, digest) in enumerate(zip(starts, actual_digests, chunks, strict=True)):
                end = min(start + CHUNK_BYTES, size)
                if actual != digest:
                    found.append(Damage(name, number, start, end, (), (), f"found {actual}, expected {digest}"))
                advance(end - start)
        extra = path.stat().st_size - size
        if extra < 0 and not found:
            reason = f"found {size + extra} bytes, expected {size} by the size in the manifest"
            found.append(Damage(name, max(0, len(chunks) - 1), size + extra, size, (), (), reason))
        if extra > 0:
            reason = f"found {extra} bytes after the end, expected {size} bytes"
            found.append(Damage(name, len(chunks), size, size + extra, (), (), reason))
        return found

    def _damaged_in_bin(self, start: int, end: int, offsets: npt.NDArray[np.int64]) -> list[int]:
        """Documents with a byte in [start, end) whose tokens no longer have their digest."""
        width = int(self.manifest["token_width_bytes"])
        first = max(0, int(np.searchsorted(offsets, start // width, side="right")) - 1)
        last = int(np.searchsorted(offsets, -(-end // width), side="left"))
        damaged = []
        numbers = range(first, min(last, self.num_documents))
        with open_regular(self.directory / BIN) as file:
            for number, row in zip(numbers, self.documents(numbers, ["digest"]), strict=True):
                file.seek(int(offsets[number]) * width)
                block = file.read(int(offsets[number + 1] - offsets[number]) * width)
                tokens = np.frombuffer(block[: len(block) // width * width], dtype=f"<u{width}")
                if token_digest(tokens) != row["digest"]:
                    damaged.append(number)
        return damaged

    def _damaged_in_idx(self, start: int, end: int, offsets: npt.NDArray[np.int64]) -> list[int]:
        """Documents whose entries in [start, end) differ from the index that the document table implies."""
        width = int(self.manifest["token_width_bytes"])
        expected = np.frombuffer(index_bytes(np.diff(offsets).astype(np.int32), width), np.uint8)[start:end]
        with open_regular(self.directory / IDX) as file:
            file.seek(start)
            block = np.frombuffer(file.read(end - start), np.uint8)
        both = min(len(block), len(expected))
        differs = np.concatenate((np.flatnonzero(block[:both] != expected[:both]), np.arange(both, len(expected))))
        named = {index_document(start + int(position), self.num_documents) for position in differs}
        return sorted(number for number in named if number is not None)
