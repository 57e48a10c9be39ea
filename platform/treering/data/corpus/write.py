"""Writes corpus directories: from documents, one at a time, or from parts that were written alone."""

import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST, token_digest
from treering.data.corpus.document_table import DOCUMENT_SCHEMA
from treering.data.corpus.index_writer import IndexWriter, length_blocks
from treering.data.corpus.manifest import SCHEMA_VERSION, describe_file, write_manifest
from treering.data.corpus.table import TABLE_ROWS, read_tables, write_tables
from treering.errors import UserError
from treering.files import open_regular

_BUFFER_BYTES: Final = 1 << 20


def write_tokens(
    directory: Path,
    documents: Iterable[tuple[dict[str, Any], npt.NDArray[Any]]],
    about: dict[str, Any],
    *,
    width: int,
) -> dict[str, Any]:
    """Writes one corpus directory and returns its manifest.

    Args:
        directory: the corpus's folder, which must not exist yet.
        documents: of each document a row with id, source, offset and licence, and its tokens, at least one.
        about: further fields of the manifest: name, licence, source, split, tokenizer, curation.
        width: bytes of a token, 2 or 4.

    Raises:
        UserError: there is no document, or a token needs more bytes.
    """
    directory.mkdir(parents=True)
    return _with_manifest(directory, write_part(directory, documents, width), about, width)


def write_part(
    directory: Path, documents: Iterable[tuple[dict[str, Any], npt.NDArray[Any]]], width: int
) -> IndexWriter:
    """Writes the files of a corpus, or of a part of one, without a manifest; returns the counts.

    Args:
        directory: an empty folder.
        documents: see `write_tokens`.
        width: bytes of a token, 2 or 4.

    Raises:
        UserError: a token needs more bytes.
    """
    with (directory / BIN).open("wb", _BUFFER_BYTES) as file, IndexWriter(directory / IDX, width) as index:

        def rows() -> Iterator[tuple[Any, ...]]:
            for row, tokens in documents:
                if (highest := int(tokens.max())) >> 8 * width:
                    raise UserError(
                        f"document {row['id']!r} holds token {highest}, expected numbers below {1 << 8 * width}, which "
                        f"have {width} bytes; tokenizer.vocabulary_size must be higher than every token"
                    )
                file.write(tokens.astype(f"<u{width}").tobytes())
                yield row["id"], row["source"], row["offset"], row["licence"], len(tokens), token_digest(tokens)

        def tables() -> Iterator[pa.Table]:
            remaining = rows()
            while part := list(itertools.islice(remaining, TABLE_ROWS)):
                columns = dict(zip(DOCUMENT_SCHEMA.names, zip(*part, strict=True), strict=True))
                index.add(np.array(columns["tokens"], dtype=np.int32))
                yield pa.table(columns, schema=DOCUMENT_SCHEMA)

        write_tables(directory / DOCUMENTS, tables(), DOCUMENT_SCHEMA)
    return index


def join_parts(directory: Path, parts: Sequence[Path], about: dict[str, Any], *, width: int) -> dict[str, Any]:
    """Writes the corpus directory that `write_tokens` writes of the documents of all parts, and returns its manifest.

    Parts are read by blocks: memory does not grow with their size.

    Args:
        directory: the corpus's folder, which must not exist yet.
        parts: folders of `write_part`, in the order of the documents.
        about: see `write_tokens`.
        width: bytes of a token, 2 or 4.

    Raises:
        UserError: there is no document.
    """
    directory.mkdir(parents=True)
    with (directory / BIN).open("wb") as out:
        for part in parts:
            with open_regular(part / BIN) as file:
                shutil.copyfileobj(file, out, _BUFFER_BYTES)
    with IndexWriter(directory / IDX, width) as index:
        for part in parts:
            for lengths in length_blocks(part / IDX):
                index.add(lengths)
    tables = (table for part in parts for table in read_tables(part / DOCUMENTS))
    write_tables(directory / DOCUMENTS, tables, DOCUMENT_SCHEMA)
    return _with_manifest(directory, index, about, width)


def _with_manifest(directory: Path, counts: IndexWriter, about: dict[str, Any], width: int) -> dict[str, Any]:
    """Writes the manifest.

    Raises:
        UserError: there is no document.
    """
    if not counts.num_documents:
        raise UserError(f"corpus {about['name']}: found 0 documents, expected at least 1; run `treering curate` first")
    return write_manifest(
        directory / MANIFEST,
        {
            **about,
            "schema_version": SCHEMA_VERSION,
            "num_documents": counts.num_documents,
            "num_tokens": counts.num_tokens,
            "token_width_bytes": width,
            "files": {name: describe_file(directory / name) for name in (BIN, IDX, DOCUMENTS)},
        },
    )
