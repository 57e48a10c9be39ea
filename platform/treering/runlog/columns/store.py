"""Where an attempt's columns are kept: its folder `columns/`, or memory where that cannot be written."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from treering.files import read_text, write_durably
from treering.runlog.columns.head import HEAD_FILE, Head, read_head

_LOCK: Final = ".lock"
_log = logging.getLogger(__name__)
_said: set[Path] = set()


class DamagedPartError(Exception):
    """A part of the columns is missing or cannot be read; no user sees it, since the columns are built again."""


class Store(Protocol):
    """Keeps the head and the parts of one attempt's columns."""

    def head(self) -> Head | None:
        """The head, None where there is none."""

    def source(self, name: str) -> Any:
        """What Arrow reads a part from."""

    def write(self, name: str, content: bytes) -> None:
        """Keeps a part, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """

    def publish(self, head: Head) -> None:
        """Makes a head the valid one, and removes the parts that it does not name.

        Raises:
            OSError: it cannot be written.
        """

    def derived(self, name: str) -> str | None:
        """A text that was derived from the columns, None where there is none."""

    def keep_derived(self, name: str, text: str) -> None:
        """Keeps such a text.

        Raises:
            OSError: it cannot be written.
        """

    def locked(self) -> Any:
        """A context in which no other process extends the columns."""


class FolderStore:
    """Columns in a folder.

    Args:
        folder: the attempt's `columns/`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def head(self) -> Head | None:
        """The head in the folder."""
        return read_head(self.folder)

    def source(self, name: str) -> str:
        """The path of a part."""
        return str(self.folder / name)

    def write(self, name: str, content: bytes) -> None:
        """Writes a part beside its place, syncs and renames it."""
        write_durably(self.folder / name, content)

    def publish(self, head: Head) -> None:
        """Replaces `head.json`, then removes parts of no use: a reader that still needs one reads the head again."""
        write_durably(self.folder / HEAD_FILE, head.to_text())
        named = {name for part in head.parts for name in (part.name, part.pyramid)}
        for path in self.folder.iterdir():
            if path.suffix in {".parquet", ".tmp"} and path.name not in named:
                with suppress(OSError):
                    path.unlink()

    def derived(self, name: str) -> str | None:
        """The text of a file that was derived from the columns."""
        try:
            return read_text(self.folder / name)
        except (OSError, ValueError):
            return None

    def keep_derived(self, name: str, text: str) -> None:
        """Replaces such a file."""
        write_durably(self.folder / name, text)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder's lock; a file system without locks has none, and the later head counts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class MemoryStore:
    """Columns in memory: of a published run, which nothing may change, and of folders that cannot be written."""

    def __init__(self) -> None:
        self._head: Head | None = None
        self._parts: dict[str, bytes] = {}
        self._derived: dict[str, str] = {}

    def head(self) -> Head | None:
        """The head that was published last."""
        return self._head

    def source(self, name: str) -> Any:
        """The bytes of a part."""
        import pyarrow as pa  # noqa: PLC0415 - a list that finds its heads loads no Arrow

        return pa.BufferReader(self._parts[name])

    def write(self, name: str, content: bytes) -> None:
        """Keeps the bytes."""
        self._parts[name] = content

    def publish(self, head: Head) -> None:
        """Keeps the head, and the parts that it names."""
        self._head = head
        named = {name for part in head.parts for name in (part.name, part.pyramid)}
        self._parts = {name: content for name, content in self._parts.items() if name in named}

    def derived(self, name: str) -> str | None:
        """Such a text."""
        return self._derived.get(name)

    def keep_derived(self, name: str, text: str) -> None:
        """Keeps such a text."""
        self._derived[name] = text

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else sees the memory."""
        yield


def say_unwritable(folder: Path, error: OSError) -> None:
    """Says once for each folder that its columns are not kept."""
    if folder not in _said:
        _said.add(folder)
        _log.warning(
            "%s: cannot be written (%s), so the columns are built in memory each time; make the folder writable",
            folder,
            error.strerror or error,
        )
