"""Appends rings so that a process may die at any moment.

Each ring is one `write(2)` of a whole line on an unbuffered file: a killed process loses no ring that `append`
returned. A thread makes the rings survive the machine once a second, so that a power cut costs the last second at most;
`sync` does it at once, which the trainer asks for before every checkpoint. Standard library only.
"""

import errno
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from treering.runlog.ring_file import hold
from treering.runlog.ring_log import ChainedRing

SYNC_SECONDS: Final = 1.0

R = TypeVar("R", bound=ChainedRing)


class RingWriter(Generic[R]):
    """Appends rings to one file, which must not exist yet.

    The thread that trains owns the writer.

    Args:
        path: the file.
        kind: the kind of its rings.
        header_digest: digest of the attempt's header, which the first ring names.
    """

    def __init__(self, path: Path, kind: type[R], header_digest: str) -> None:
        self._path = path
        self._kind = kind
        self._prev = header_digest
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        hold(self._descriptor)
        self._unsynced = False
        self._error: OSError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sync_regularly, name="treering-sync", daemon=True)
        self._thread.start()

    def append(self, **values: Any) -> R:
        """Appends the next ring; when this returns, the death of the process cannot take the ring back.

        Args:
            values: all fields of the ring but `prev` and `digest`.

        Raises:
            OSError: the ring could not be written whole, or earlier rings could not be synced; training must not go on.
        """
        if self._error is not None:
            raise self._error
        ring, line = self._kind.sealed(**values, prev=self._prev)
        data = f"{line}\n".encode()
        try:
            written = os.write(self._descriptor, data)
            if written < len(data):  # the disk is full: what is left to write says so
                os.write(self._descriptor, data[written:])
                raise OSError(errno.EIO, f"{written} of {len(data)} bytes written at once")
        except OSError as error:
            self._error = OSError(
                error.errno,
                f"the ring of step {ring.step} could not be written ({error.strerror}), so training must not go on; "
                "make room on the disk, then start again",
                str(self._path),
            )
            raise self._error from error
        self._prev = ring.digest
        self._unsynced = True
        return ring

    @property
    def has_failed(self) -> bool:
        """Whether a ring could not be written or synced: no further one is taken."""
        return self._error is not None

    @property
    def last_digest(self) -> str:
        """Digest of the last ring, or of the header before the first."""
        return self._prev

    def sync(self) -> None:
        """Makes all rings survive the machine.

        Raises:
            OSError: the file cannot be synced.
        """
        self._unsynced = False
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Syncs and closes; more than once does nothing.

        Raises:
            OSError: the file cannot be synced.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()
        try:
            self.sync()
        finally:
            os.close(self._descriptor)

    def _sync_regularly(self) -> None:
        while not self._closing.wait(SYNC_SECONDS):
            if not self._unsynced:
                continue
            try:
                self.sync()
            except OSError as error:
                self._error = OSError(error.errno, error.strerror, str(self._path))
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
