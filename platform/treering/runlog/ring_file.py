"""The file of a rank's rings: `rings.jsonl` while it grows, `rings.jsonl.zst` after it was compressed.

The compressed file is in Zstandard's seekable format: frames of 2 MiB with a table at the end, so that one ring is read
without the rest, and `zstd -d` gives the lines back. Digests and offsets are those of the lines, compressed or not.
"""

import fcntl
import io
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, cast

from treering.errors import EvidenceError
from treering.files import open_regular, reason, replace_durably, sync_directory

COMPRESSED: Final = ".zst"
_FRAME_BYTES: Final = 2 << 20
_LEVEL: Final = 9
"""Of Zstandard: 80 MB/s. Level 15 saves 4 % more at 6 MB/s."""
_COPY_BYTES: Final = 1 << 20
_LONG_BYTES: Final = 4 << 20

_log = logging.getLogger(__name__)


def stored(path: Path) -> Path:
    """The file that holds the rings: the compressed one, where the plain one is missing.

    Args:
        path: the plain file, whether it exists or not.
    """
    packed = _packed(path)
    return packed if not path.exists() and packed.exists() else path


@contextmanager
def open_rings(path: Path) -> Iterator[BinaryIO]:
    """Opens the lines of a file of rings, compressed or not; a file that is missing has none.

    Args:
        path: the plain or the compressed file; where it is missing, the other one is read.

    Raises:
        EvidenceError: the compressed file is damaged.
    """
    plain = _plain(path)
    file = _opened(plain)
    if file is not None:
        with file:
            yield file
        return
    compressed = _opened(_packed(plain))
    if compressed is None:
        yield io.BytesIO()
        return
    import pyzstd  # noqa: PLC0415 - a training process that only appends rings does not load it

    with compressed:
        if not compressed.peek(1):  # pyzstd reads an empty file as one without lines; `compress` never writes one
            text, packed = _damaged(plain, "empty")
            raise EvidenceError(text, file=packed, found="empty")
        try:
            yield cast("BinaryIO", io.BufferedReader(pyzstd.SeekableZstdFile(compressed), _COPY_BYTES))
        except (pyzstd.ZstdError, pyzstd.SeekableFormatError, EOFError) as error:
            text, packed = _damaged(plain, str(error))
            raise EvidenceError(text, file=packed, found=str(error)) from error


def state_of(path: Path) -> tuple[int, int]:
    """Bytes of the lines in a file of rings, and the time of their last write; zeros where it is missing.

    Compression changes neither.

    Args:
        path: the plain or the compressed file.

    Raises:
        EvidenceError: the compressed file is damaged.
    """
    plain = _plain(path)
    with suppress(FileNotFoundError):
        state = plain.stat()
        return state.st_size, state.st_mtime_ns
    try:
        state = _packed(plain).stat()
    except FileNotFoundError:
        return 0, 0
    return _length(plain, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns), state.st_mtime_ns


@lru_cache(maxsize=1024)
def _length(plain: Path, *state: int) -> int:
    """Bytes of the lines in a compressed file, kept while the file is the same: a page asks fifty times."""
    del state  # part of the key alone
    with open_rings(plain) as file:
        return file.seek(0, os.SEEK_END)


def compress(path: Path) -> bool:
    """Replaces a file of rings by a compressed one, if no process writes it.

    The plain file is removed after the compressed one is on disk and was read back equal: a process that is killed
    leaves the plain file, or both, of which readers take the plain one.

    Args:
        path: the plain or the compressed file.

    Returns:
        Whether it was replaced: not where the plain file is missing or empty, or where a process writes or compresses
        it.

    Raises:
        OSError: a file cannot be read or written, or was read back different.
    """
    path = _plain(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # for reading only, NFS refuses an exclusive lock
    except FileNotFoundError:
        return False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a process holds it, or the file system has no locks by which to see one
            return False
        state = os.fstat(descriptor)
        if not state.st_size or not path.exists() or not os.path.samestat(state, path.stat()):
            return False
        _write_packed(path, state)
        path.unlink()
        sync_directory(path.parent)
        return True
    finally:
        os.close(descriptor)


def compress_long(paths: Iterable[Path]) -> None:
    """Compresses the files of a run that has finished, if they are longer than 4 MiB: shorter ones stay text.

    A file that cannot be compressed stays as it is, which a warning says.

    Args:
        paths: the plain files.
    """
    for path in paths:
        try:
            if path.stat().st_size >= _LONG_BYTES:
                compress(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("%s: not compressed (%s); the rings are whole", path, reason(error))


def hold(descriptor: int) -> None:
    """Marks a new file of rings as one that a process writes, until the process closes it or dies."""
    with suppress(OSError):  # a file system without locks: such a file is never compressed
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _write_packed(path: Path, state: os.stat_result) -> None:
    import pyzstd  # noqa: PLC0415 - see above

    packed = _packed(path)
    temporary = packed.with_name(f".{packed.name}.tmp")
    options: dict[int, int] = {pyzstd.CParameter.compressionLevel: _LEVEL, pyzstd.CParameter.checksumFlag: 1}
    try:
        with (
            open_regular(path) as source,
            pyzstd.SeekableZstdFile(
                temporary, "w", level_or_option=options, max_frame_content_size=_FRAME_BYTES
            ) as target,
        ):
            while data := source.read(_COPY_BYTES):
                target.write(data)
        temporary.chmod(state.st_mode & 0o777)
        os.utime(temporary, ns=(state.st_atime_ns, state.st_mtime_ns))
        replace_durably(temporary, packed)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if not _equal(path, packed):
        packed.unlink()
        raise OSError(f"{packed}: read back different from {path.name}, which stays; check the disk")


def _equal(path: Path, packed: Path) -> bool:
    import pyzstd  # noqa: PLC0415 - see above

    try:
        with open_regular(path) as one, open_regular(packed) as file, pyzstd.SeekableZstdFile(file) as other:
            while data := one.read(_COPY_BYTES):
                if data != _exactly(other, len(data)):
                    return False
            return not other.read(1)
    except (pyzstd.ZstdError, pyzstd.SeekableFormatError, EOFError):
        return False


def _exactly(file: io.BufferedIOBase, count: int) -> bytes:
    found = b""
    while len(found) < count and (data := file.read(count - len(found))):
        found += data
    return found


def _opened(path: Path) -> io.BufferedReader | None:
    try:
        return open_regular(path)
    except FileNotFoundError:
        return None


def _damaged(plain: Path, found: str) -> tuple[str, Path]:
    packed = _packed(plain)
    return f"{packed}: damaged ({found}); restore the file from a copy", packed


def _plain(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(COMPRESSED))


def _packed(path: Path) -> Path:
    return path.with_name(f"{path.name}{COMPRESSED}")
