"""Reading files that somebody else may have made: regular ones only, and small ones within a bound.

Standard library only: the run log's writer stands on this file. A pipe, a device or a folder in a file's place would
block or never end, so it is refused before it is read; `/dev/stdin` and what a shell opens as `/dev/fd/…` are read.
Errors are those of the operating system, with the path: whoever reads handles them already.
"""

import errno
import io
import os
import stat
from pathlib import Path

SMALL_FILE_BYTES = 64 << 20
"""Most bytes that are read of a file which is held in memory whole: records, manifests, lists, texts."""

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
        OSError: it cannot be opened, or is a folder, a pipe, a socket or a device.
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
        UnicodeDecodeError: it is no text of that encoding.
    """
    text = read_bytes(path, limit).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def reason(error: Exception) -> str:
    """Why a file could not be read, for a text that names the file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _size(count: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count >> shift:,} {unit}"
    return f"{count:,} bytes"
