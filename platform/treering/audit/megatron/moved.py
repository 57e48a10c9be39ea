"""Where paths that a run named lie today."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from treering.errors import UserError


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
