"""Opens a capsule that a stranger may have made: everything is checked before any of it is used, and nothing is run."""

import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from treering.config.canonical import DIGEST_PREFIX
from treering.errors import EvidenceError
from treering.files import SMALL_FILE_BYTES, open_regular
from treering.reproduce.capsule.contents import METADATA, RECORD, Capsule

_MOST_ENTRIES: Final = 200_000
_MOST_TIMES: Final = 200
"""How many times larger than the zip file its content may be: rings of a run become a tenth."""
_ALWAYS: Final = 64 << 20
"""Bytes of content that any capsule may have."""
_BLOCK: Final = 1 << 20
_LONGEST: Final = 255
_HELPS: Final = "get the capsule again from its makers, and compare its digest with theirs"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class OpenCapsule:
    """A capsule whose list of files was checked.

    Attributes:
        path: the zip file.
        record: its record.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        _check_list(path, archive)
        with refused(path, RECORD):
            content = archive.open(RECORD).read(SMALL_FILE_BYTES + 1)
        if len(content) > SMALL_FILE_BYTES:
            _refuse(path, RECORD, f"more than {SMALL_FILE_BYTES:,} bytes", "a record")
        self.record = Capsule.parse(content, path / RECORD)
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Compares the list of files with the record.

        Raises:
            EvidenceError: they differ, or the content is far larger than the file.
        """
        listed = {entry.filename: entry for entry in self._archive.infolist()}
        expected = {*self.record.files, RECORD, METADATA}
        for name in sorted(listed.keys() ^ expected):
            found, wanted = ("a file", "none") if name in listed else ("no file", "one")
            _refuse(self.path, name, found, f"{wanted} by {RECORD}")
        for each in self.record.corpora:
            if each.manifest is not None and each.manifest not in self.record.files:
                _refuse(self.path, f"{RECORD}: corpora", f"manifest {each.manifest}", "one of its files")
        for name, packed in self.record.files.items():
            if listed[name].file_size != packed.size:
                _refuse(self.path, name, f"{listed[name].file_size:,} bytes", f"{packed.size:,} by {RECORD}")

    def copy(self, name: str, target: BinaryIO) -> None:
        """Copies a file out of the capsule and checks size and digest on the way.

        Args:
            name: of the file, one of the record's.
            target: where to.

        Raises:
            EvidenceError: the file is damaged, or is another one than the record says.
        """
        packed, state, left = self.record.files[name], sha256(), self.record.files[name].size
        with refused(self.path, name), self._archive.open(name) as source:
            while block := source.read(_BLOCK):
                left -= len(block)
                if left < 0:
                    _refuse(self.path, name, f"more than {packed.size:,} bytes", f"{packed.size:,} by {RECORD}")
                state.update(block)
                target.write(block)
        found = DIGEST_PREFIX + state.hexdigest()
        if found != packed.digest:
            _refuse(self.path, name, f"digest {found}", f"{packed.digest} by {RECORD}")


@contextmanager
def open_capsule(path: Path) -> Iterator[OpenCapsule]:
    """Opens a capsule.

    Args:
        path: the zip file.

    Raises:
        EvidenceError: it is not a capsule, is damaged, or is hostile.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        with refused(path, ""):
            archive = zipfile.ZipFile(file)
        with archive:
            yield OpenCapsule(path, archive)


def _check_list(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuses names that lead elsewhere, forms that no capsule has, and content that is too large.

    Raises:
        EvidenceError: one of them was found.
    """
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        _refuse(path, "", f"{len(entries):,} files", f"at most {_MOST_ENTRIES:,}")
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename
        if not _is_plain(name):
            _refuse(path, name, "a name that leads elsewhere", "a path inside the capsule")
        if name.casefold() in seen:
            _refuse(path, name, "the name twice", "each name once")
        seen.add(name.casefold())
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() or kind not in (0, stat.S_IFREG):
            _refuse(path, name, "a link or a folder", "a regular file")
        if entry.flag_bits & 1 or entry.compress_type not in _METHODS:
            _refuse(path, name, "an encrypted file, or one of another compression", "a deflated file")
    total, size = sum(entry.file_size for entry in entries), path.stat().st_size
    if total > max(_ALWAYS, _MOST_TIMES * size):
        _refuse(path, "", f"{total:,} bytes in a file of {size:,}", f"at most {_MOST_TIMES} times as many")
    if RECORD not in archive.namelist():
        _refuse(path, RECORD, "no such file", "the record of a capsule")


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    return (
        not PurePosixPath(name).is_absolute()
        and "\\" not in name
        and name.isprintable()
        and all(part not in ("", ".", "..") and len(part) <= _LONGEST and ":" not in part for part in parts)
    )


@contextmanager
def refused(path: Path, name: str) -> Iterator[None]:
    """Turns what the library raises about a damaged zip file into an error that names the place.

    Args:
        path: the zip file.
        name: of the file in it; empty for the whole.

    Raises:
        EvidenceError: the zip file is damaged.
    """
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError) as error:
        _refuse(path, name, " ".join(str(error).split()) or type(error).__name__, "a whole zip file")


def _refuse(path: Path, name: str, found: str, expected: str) -> None:
    """Refuses a capsule.

    Raises:
        EvidenceError: always.
    """
    place = f"{path}: {name}" if name else str(path)
    raise EvidenceError(
        f"{place}: found {found}, expected {expected}; {_HELPS}",
        file=path,
        found=found,
        expected=expected,
        remedy=_HELPS,
    )
