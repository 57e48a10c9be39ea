"""Where paths that a run named lie today."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from treering.errors import UserError

MAX_TEXT_BYTES: Final = 1 << 26
"""A longer file of data paths is not read; 100,000 data paths of 600 letters are fewer bytes."""


def read_text(path: Path, most_bytes: int = MAX_TEXT_BYTES) -> str:
    """A text that a run named.

    Raises:
        OSError: the file is missing or cannot be read.
        ValueError: the file is not a regular one, is longer than `most_bytes`, or is no UTF-8.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"found no regular file: {path}")
    if path.stat().st_size > most_bytes:
        raise ValueError(f"found {path.stat().st_size:,} bytes, expected at most {most_bytes:,}")
    return path.read_text(encoding="utf-8")


def parse_moved(pairs: Sequence[str]) -> dict[str, str]:
    """Where folders lie today, from `OLD=NEW` each.

    Raises:
        UserError: one is not of that form.
    """
    found = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UserError(f"--data-root {pair}: expected OLD=NEW, a folder of the run and where it lies today")
        found[old] = new
    return found


def moved_path(path: str, moved: Mapping[str, str], base: Path | None = None) -> Path:
    """A path of the run on this machine: its folder replaced, by the longest that fits; a relative one below `base`.

    Args:
        path: as the run named it.
        moved: where folders lie today, by where the run saw them.
        base: folder that relative paths start from; None: the working directory.
    """
    named = PurePosixPath(path)
    for folder in sorted(moved, key=lambda each: len(PurePosixPath(each).parts), reverse=True):
        if named.is_relative_to(folder):
            return Path(moved[folder]) / named.relative_to(folder)
    return Path(path) if base is None else base / path
