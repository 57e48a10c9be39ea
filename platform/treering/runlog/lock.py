"""One process group holds a run at a time.

An open-file-description lock: ranks that the holder forks share it, the kernel drops it when the last of them is gone,
and a reader asks who holds it without ever taking it.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path

from treering.errors import RunLockedError
from treering.runlog.mirror import refuse_mirror

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def acquire(path: Path, work: str = "trains this run") -> int:
    """Takes the lock until every process that inherits the descriptor has ended.

    Args:
        path: the lock's file.
        work: what its holder does, for the message.

    Returns:
        The descriptor; keep it open.

    Raises:
        RunLockedError: another process group holds the lock.
        UserError: the run is a mirror.
        OSError: the file system has no locks.
    """
    refuse_mirror(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            os.close(descriptor)
            raise  # a file system without locks, say: nobody holds it
        holder = os.pread(descriptor, 64, 0).decode(errors="replace").partition("\n")[0]  # the attempt follows
        os.close(descriptor)
        raise RunLockedError(
            f"{path.parent}: another process group {work} (process {holder or 'unknown'}); "
            "wait for it or end it, then start again"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def is_held(path: Path) -> bool:
    """Whether any process holds the lock; asks the kernel and takes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY)  # asking needs no right to write
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(descriptor)
    kind: int = struct.unpack(_FLOCK, answer)[0]
    return kind != fcntl.F_UNLCK
