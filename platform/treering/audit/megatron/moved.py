"""The place today of paths that a run named."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from treering.errors import UserError


def parse_moved(pairs: Sequence[str]) -> dict[str, str]:
    """Folders that moved, from `OLD=NEW` each: their place today, by their name in the run.

    Raises:
        UserError: a pair has another form.
    """
    found = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UserError(f"--data-root {pair}: expected OLD=NEW, a folder of the run and its place today")
        found[old] = new
    return found


def moved_path(path: str, moved: Mapping[str, str], base: Path | None = None) -> Path:
    """A path of the run on this machine: the longest folder that moved is replaced; a relative path is below `base`.

    Args:
        path: as the run named it.
        moved: today's place of each folder that moved, by its name in the run.
        base: folder that relative paths start from; None: the working directory.
    """
    named = PurePosixPath(path)
    for folder in sorted(moved, key=lambda each: len(PurePosixPath(each).parts), reverse=True):
        if named.is_relative_to(folder):
            return Path(moved[folder]) / named.relative_to(folder)
    return Path(path) if base is None else base / path
