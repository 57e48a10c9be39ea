"""The code that an attempt runs: commit, local changes, and the digest of the sources that decide numbers.

The digest decides (equal code resumes a run, changed code starts over); commit and diff are evidence for people and
for a later reproduction. Everything works without git.
"""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from treering.config.canonical import DIGEST_PREFIX, digest_bytes, digest_file
from treering.errors import NotFoundError

NUMERIC_SOURCES: Final = (
    "trainer/treering_trainer/__init__.py",
    "trainer/treering_trainer/checkpointing",
    "trainer/treering_trainer/core",
    "trainer/treering_trainer/launch",
    "trainer/treering_trainer/monitor",
    "platform/treering/config/model.py",
    "platform/treering/config/resolve.py",
    "platform/treering/config/schedule.py",
    "platform/treering/data/order/batch.py",
    "platform/treering/data/corpus/corpus.py",
    "platform/treering/data/order/feistel.py",
    "platform/treering/data/corpus/indexed.py",
    "platform/treering/data/order/treering1.py",
    "platform/treering/data/order/spans.py",
    "platform/treering/data/order/weyl.py",
)
"""Sources, relative to the project's root, that decide the numbers of a training: files, folders, or patterns in which
`*` stays within one folder. Stage `train` depends on the same."""


def code_digest(root: Path, paths: Iterable[str] = NUMERIC_SOURCES) -> str:
    """Digest over the sorted pairs of relative path and file digest of the given files and folders.

    Compiled files and caches do not count; where the tree lies and when it was written does not either.

    Args:
        root: the project's root.
        paths: files, folders or patterns relative to it.

    Raises:
        NotFoundError: one of them is missing: a digest over less than what was named would lie.
    """
    state = hashlib.sha256()
    for name, digest in sorted(source_digests(root, paths).items()):
        state.update(f"{name}\0{digest}\n".encode())
    return DIGEST_PREFIX + state.hexdigest()


def source_digests(root: Path, paths: Iterable[str] = NUMERIC_SOURCES) -> dict[str, str]:
    """Digest of every source file by its path relative to `root`; two of these name the files that differ.

    Raises:
        NotFoundError: one of `paths` does not exist below `root`.
    """
    found = {}
    for path in paths:
        matches = sorted(root.glob(path))
        if not matches and path in NUMERIC_SOURCES and not (root / path.partition("/")[0]).exists():
            raise NotFoundError(
                f"code digest: found no folder {path.partition('/')[0]} below {root}, expected a clone of Treering: "
                "training and audits of code need its sources. Clone the repository and install it there: "
                "`pip install --editable '.[trainer]'`"
            )
        if not matches:
            raise NotFoundError(f"code digest: {path} does not exist below {root}; run from the project's root")
        for match in matches:
            for file in _files(match):
                found[file.relative_to(root).as_posix()] = digest_file(file)
    return found


def collect_code(root: Path, paths: Iterable[str] = NUMERIC_SOURCES) -> dict[str, Any]:
    """Everything that an attempt's header records about its code, as JSON values.

    Args:
        root: the project's root.
        paths: the sources that decide numbers; the diff covers them, new files included.

    Returns:
        `digest` (of the sources), `sources` (digest by file), `commit` and `dirty` (None without git), `diff` (the text
        against the commit, empty when clean) and `diff_digest` (None when clean).
    """
    paths = tuple(paths)
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    diff = _diff(root, paths) if commit else None
    return {
        "digest": code_digest(root, paths),
        "sources": source_digests(root, paths),
        "commit": commit.strip() if commit else None,
        "dirty": bool(diff) if commit else None,
        "diff": diff or "",
        "diff_digest": digest_bytes(diff.encode()) if diff else None,
    }


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in path.rglob("*"):
        parts = file.relative_to(path).parts
        if file.is_file() and file.suffix != ".pyc" and not any(p.startswith((".", "__pycache__")) for p in parts):
            yield file


def _diff(root: Path, paths: tuple[str, ...]) -> str:
    """Changes against the commit; files that git does not know yet appear as additions."""
    paths = tuple(f":(glob){path}" for path in paths)
    changes = [_git(root, "diff", "--no-color", "--no-ext-diff", "--binary", "HEAD", "--", *paths)]
    unknown = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *paths) or ""
    # --no-index ends with 1 when there is a difference, and there always is one.
    changes.extend(
        _git(root, "diff", "--no-color", "--no-index", "--binary", "/dev/null", name, fine=(0, 1))
        for name in sorted(filter(None, unknown.split("\0")))
    )
    return "".join(filter(None, changes))


def _git(root: Path, *arguments: str, fine: tuple[int, ...] = (0,)) -> str | None:
    """Output of a git command, None where git or a repository is missing."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="backslashreplace") if done.returncode in fine else None
