"""Whether a run's folder has changed, without reading it: by the times and sizes of a few files."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from treering.config.canonical import digest_json
from treering.runlog.find import AnyRun
from treering.runlog.records import RunState

_COARSE_S: Final = 2.0
"""A file that changed so lately may change again within the same tick of its file system's clock."""


def position_of(run: AnyRun, state: RunState, more: Sequence[Path]) -> str | None:
    """How the folder looks now.

    Args:
        run: the run.
        state: of the run.
        more: files and folders beside those that every run has.

    Returns:
        A digest, None where a file is so new that a later look may not tell a change from it.
    """
    attempts = run.attempt_folders()
    files = [run.path, run.checkpoints_folder, run.attempts_folder, *more]
    if attempts:
        newest = attempts[-1]
        files += [newest, *(each for each in newest.iterdir() if each.is_file())]
    stamps = [(str(file.relative_to(run.path)), *_stamp(file)) for file in sorted(set(files))]
    if any(modified > (time.time() - _COARSE_S) * 1e9 for _, modified, _ in stamps):
        return None
    return digest_json([state, len(attempts), stamps])


def _stamp(file: Path) -> tuple[int, int]:
    """Time of the last change in ns, and size; zeros where there is no such file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
