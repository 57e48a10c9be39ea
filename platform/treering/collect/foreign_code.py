"""The code of a trainer that is not Treering's: its script, and its repository's commit and changes."""

import sys
from pathlib import Path
from typing import Any, Final

from treering.collect.code import run_git
from treering.config.canonical import digest_bytes, digest_file
from treering.redact import redact

_DIFF_LIMIT: Final = 1 << 20
"""Bytes of a diff that a record keeps; of a larger one it keeps the digest."""


def foreign_code(script: Path | None = None, folder: Path | None = None) -> dict[str, Any]:
    """What an attempt's header records about the code of another trainer, as JSON values.

    Args:
        script: the program; default the one that this process runs.
        folder: a folder in the trainer's repository; default the folder of the script.

    Returns:
        `script` and `script_digest` (None in an interactive session); `commit`, `dirty`, `diff` of the tracked files
        and `diff_digest` (None without git; `diff` None where it is larger than a MiB).
    """
    script = script or Path(sys.argv[0] or ".")
    found: dict[str, Any] = {"script": None, "script_digest": None}
    if script.is_file():
        found = {"script": redact(str(script)), "script_digest": digest_file(script)}
    root = folder or (script.parent if script.is_file() else Path.cwd())
    commit = run_git(root, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return {**found, "commit": None, "dirty": None, "diff": None, "diff_digest": None}
    diff = run_git(root, "diff", "--no-color", "--no-ext-diff", "HEAD") or ""
    return {
        **found,
        "commit": commit.strip(),
        "dirty": bool(diff),
        "diff": redact(diff) if len(diff) <= _DIFF_LIMIT else None,
        "diff_digest": digest_bytes(diff.encode()),
    }
