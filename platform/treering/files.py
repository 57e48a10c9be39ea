"""Files: how foreign files are read safely, and how a file is replaced so that a power cut leaves it complete.

Standard library only, since the run log's writer imports this file. Only regular files are read, and small ones up to a
limit: a pipe, a device or a folder in a file's place would block or never end, so it is refused before it is read.
`/dev/stdin` and the `/dev/fd/…` of a shell are read. Errors are those of the operating system, with the path; every
caller handles them already. Every file and folder that is replaced is replaced by `write_durably` or
`replace_durably`.
"""

import errno
import io
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

SMALL_FILE_BYTES = 64 << 20
"""Most bytes that are read of a file which is held in memory whole: records, manifests, lists, texts."""

_TAIL_BYTES = 1 << 14
"""First look of `last_lines`; each further one is twice as long."""

_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a file for reading its bytes, if it is a regular one.

    Raises:
        OSError: the file cannot be opened, or is a pipe, a socket or a device.
        IsADirectoryError: it is a folder.
    """
    name = os.fspath(path)
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer must not block
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode) and not name.startswith(_STREAMS):
            kind = next((text for matches, text in _KINDS if matches(mode)), "no file")
            raise OSError(errno.ENODEV, f"is {kind}, expected a regular file", name)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_text(path: Path, *, errors: str = "strict") -> io.TextIOWrapper:
    r"""Opens a file for reading its UTF-8 text by lines, which end with `\n` alone.

    Raises:
        OSError: as `open_regular`.
    """
    return io.TextIOWrapper(open_regular(path), encoding="utf-8", errors=errors, newline="\n")


def check_regular(path: Path) -> None:
    """Checks a file that a library opens by its name.

    Raises:
        OSError: as `open_regular`.
    """
    open_regular(path).close()


def read_bytes(path: Path, limit: int = SMALL_FILE_BYTES) -> bytes:
    """The content of a small file.

    Args:
        path: the file.
        limit: most bytes that it may hold.

    Raises:
        OSError: as `open_regular`, or the file holds more.
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"holds more than {_size(limit)}, the most for a file of this kind", os.fspath(path))
    return content


def read_text(path: Path, limit: int = SMALL_FILE_BYTES, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    r"""The text of a small file, with `\n` for every end of a line.

    Raises:
        OSError: as `read_bytes`.
        UnicodeDecodeError: it is not text of that encoding.
    """
    text = read_bytes(path, limit).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def last_lines(file: BinaryIO, count: int, limit: int = SMALL_FILE_BYTES) -> tuple[list[bytes], bytes]:
    """The last lines of an open file, read from its end: the cost is the same however long the file is.

    Args:
        file: the file, open for reading bytes.
        count: most lines to return.
        limit: most bytes to read; a line that begins further from the end is cut.

    Returns:
        The last whole lines, oldest first, each without its newline; and what follows the last newline.
    """
    end = file.seek(0, os.SEEK_END)
    start, tail = end, b""
    while start and tail.count(b"\n") <= count and len(tail) < limit:
        start = max(0, end - limit, start - max(_TAIL_BYTES, len(tail)))
        file.seek(start)
        tail = file.read(end - start)
    *lines, rest = tail.split(b"\n")
    return lines[max(0, len(lines) - count) :], rest


def reason(error: Exception) -> str:
    """Why a file could not be read, for a text that names the file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def write_durably(path: Path, content: str | bytes) -> None:
    """Writes a small file whole or not at all: writes beside it, fsync, rename, fsync of the folder.

    A pipe or a device, such as `/dev/stdout`, is written to and stays what it is.

    Args:
        path: the file.
        content: bytes, or text, which is written as UTF-8.

    Raises:
        OSError: the file cannot be written; with the file's own name.
        IsADirectoryError: it is a folder.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        try:
            path.write_bytes(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        return
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None
    sync_directory(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Gives a file or a folder another name, which survives a power cut; a file of that name is replaced.

    Its content is not synced: whoever wrote it has done that.

    Raises:
        OSError: it cannot be renamed.
    """
    source.replace(target)
    sync_directory(target.parent)
    if source.parent != target.parent:
        sync_directory(source.parent)


def replace_durably(temporary: Path, target: Path) -> None:
    """Puts a file that was written beside another one, or a folder, into its place: fsync, rename, fsync of the folder.

    A folder in that place is moved aside first and removed afterwards.

    Raises:
        OSError: it cannot be synced or renamed.
    """
    sync_all(temporary)
    old = target.with_name(f".{target.name}.replaced")
    shutil.rmtree(old, ignore_errors=True)
    if temporary.is_dir() and target.exists():
        target.replace(old)
    rename_durably(temporary, target)
    shutil.rmtree(old, ignore_errors=True)


def sync_all(path: Path) -> None:
    """Makes a file, or a folder with all that is in it, survive a power cut."""
    if not path.is_dir():
        _sync(path, os.O_RDONLY)
        return
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(Path(folder, name), os.O_RDONLY)
        sync_directory(Path(folder))


def sync_directory(path: Path) -> None:
    """Makes renames and new names in a folder survive a power cut."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(count: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count >> shift:,} {unit}"
    return f"{count:,} bytes"
