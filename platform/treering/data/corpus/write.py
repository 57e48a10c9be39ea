"""Writes one corpus directory: tokens, index, document table and manifest, one document at a time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST, token_digest
from treering.data.corpus.document_table import DOCUMENT_SCHEMA
from treering.data.corpus.indexed import index_bytes
from treering.data.corpus.manifest import SCHEMA_VERSION, describe_file, write_manifest
from treering.data.corpus.table import write_rows
from treering.errors import UserError


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
        UserError: there is no document.
    """
    directory.mkdir(parents=True)
    lengths: list[int] = []
    with (directory / BIN).open("wb") as file:

        def rows() -> Iterator[dict[str, Any]]:
            for row, found in documents:
                tokens = found.astype(f"<u{width}")
                file.write(tokens.tobytes())
                lengths.append(len(tokens))
                described = {key: row[key] for key in ("id", "source", "offset", "licence")}
                yield {**described, "tokens": len(tokens), "digest": token_digest(tokens)}

        write_rows(directory / DOCUMENTS, rows(), DOCUMENT_SCHEMA)
    if not lengths:
        raise UserError(f"corpus {about['name']}: found 0 documents, expected at least 1; run `treering curate` first")
    (directory / IDX).write_bytes(index_bytes(np.array(lengths, dtype=np.int32), width))
    return write_manifest(
        directory / MANIFEST,
        {
            **about,
            "schema_version": SCHEMA_VERSION,
            "num_documents": len(lengths),
            "num_tokens": sum(lengths),
            "token_width_bytes": width,
            "files": {name: describe_file(directory / name) for name in (BIN, IDX, DOCUMENTS)},
        },
    )
