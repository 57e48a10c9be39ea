"""Lays rings, so that a process may die at any moment.

Each ring is one `write(2)` of a whole line on an unbuffered file: a killed process loses no ring that `append`
returned. `sync` makes them survive the machine as well; the trainer calls it before every checkpoint.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from treering.runlog.ring import RINGS_FILE, Ring


class RingWriter:
    """Appends rings to one attempt's `rings.jsonl`.

    Not thread-safe: the training thread of one process owns it.

    Args:
        directory: the attempt's directory.
        header_digest: digest of its header, which the first ring names.
    """

    def __init__(self, directory: Path, header_digest: str) -> None:
        self._prev = header_digest
        self._descriptor = os.open(directory / RINGS_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)

    def append(self, **values: Any) -> Ring:
        """Lays the next ring; when this returns, the death of the process cannot take it back.

        Raises:
            OSError: the ring could not be written whole; the run must not go on.
        """
        ring = Ring.seal(self._prev, **values)
        line = (ring.to_line() + "\n").encode()
        written = os.write(self._descriptor, line)
        if written != len(line):
            raise OSError(f"ring of step {ring.step}: {written} of {len(line)} bytes written")
        self._prev = ring.digest
        return ring

    @property
    def last_digest(self) -> str:
        """Digest of the last ring, or of the header before the first."""
        return self._prev

    def sync(self) -> None:
        """Makes all rings survive the machine."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Syncs and closes."""
        self.sync()
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
