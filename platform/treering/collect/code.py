"""The code that an attempt runs: commit, local changes, and the digest of the modules that decide numbers.

The digest decides (equal code resumes a run, changed code starts over); commit and diff are evidence for people and
for a later reproduction. Everything works without git.

A module belongs to `NUMERIC_SOURCES` if a change of it could change a token, a loss or a weight of a step, while
everything that an attempt compares beside its code (recipe, corpora, environment, layout, threads) stays the same:

- the trainer's `core/` whole: model, optimizer, engine, batch reader, loop, how a rank is built from the config, and
  how state is restored, in the same layout or another one;
- the data order, and what reads tokens from a corpus;
- the recipe's sections, what resolves them, and the schedule.

What only watches, records, saves, publishes or launches does not belong. Neither does what chooses among things that
are recorded by digest: `checkpointing.resume` picks the checkpoint that an attempt's header names, and
`checkpointing.inference` reads finished weights. A test walks the imports of these modules and has the reason for each
imported module that is left out.
"""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from treering.collect.syntax import syntax_digest
from treering.config.canonical import DIGEST_PREFIX, digest_bytes, digest_file
from treering.errors import NotFoundError
from treering.files import read_bytes

NUMERIC_SOURCES: Final = (
    "trainer/treering_trainer/core",
    "platform/treering/config/ancestry.py",
    "platform/treering/config/batch_schedule.py",
    "platform/treering/config/layout.py",
    "platform/treering/config/model.py",
    "platform/treering/config/resolved.py",
    "platform/treering/config/resolved_blend.py",
    "platform/treering/config/schedule.py",
    "platform/treering/data/corpus/corpus.py",
    "platform/treering/data/corpus/index_header.py",
    "platform/treering/data/corpus/indexed.py",
    "platform/treering/data/order",
)
"""Sources, relative to the root of a clone, that decide the numbers of a training: files, folders, or patterns in which
`*` stays within one folder. Stage `train` depends on the same."""

TRAINING_SOURCES: Final = (*NUMERIC_SOURCES, "trainer/treering_trainer")
"""Those, and the rest of the trainer: what the recorded diff covers, and what all nodes of an attempt must share."""

CODE_RULE: Final = "syntax-1"
"""How the digest is made: of modules by their syntax (`treering.collect.syntax`), of other files by their bytes.

A record of code without a rule is by an earlier one. Digests of two rules say nothing about each other.
"""

EARLIER_RULE: Final = "bytes"
"""What a record without a rule is by: the bytes of every file."""

_SHOWN: Final = 6

_PACKAGES: Final = {"platform/treering": "treering", "trainer/treering_trainer": "treering_trainer"}
"""Folders of a clone, and the packages that a wheel installs of them."""


def sources_root(module: Path) -> Path:
    """The folder that `code_digest` and `collect_code` are given: the root of a clone, or the folder of the packages.

    Args:
        module: any file of a package of Treering.
    """
    package = next(folder for folder in module.resolve().parents if folder.name.startswith("treering"))
    return package.parent if is_installed(package.parent) else package.parents[1]


def is_installed(root: Path) -> bool:
    """Whether a folder holds the packages of a wheel side by side, as no clone does."""
    return all((root / package).is_dir() for package in _PACKAGES.values())


def rule_of(record: Mapping[str, Any]) -> str:
    """The rule of the digest in a record of code, as an attempt's header has one."""
    return str(record.get("rule", EARLIER_RULE))


def code_digest(root: Path, paths: Iterable[str] = NUMERIC_SOURCES) -> str:
    """Digest over the sorted pairs of relative path and digest of the given files and folders.

    Compiled files and caches do not count, and neither do the tree's path and its times. Files that a wheel installed
    count under the names that they have in a clone, so that the same code has the same digest.

    Args:
        root: see `sources_root`.
        paths: files, folders or patterns relative to it.

    Raises:
        NotFoundError: one of them is missing; a digest over fewer files would be wrong.
        UserError: a module cannot be parsed.
    """
    return _joined_digest(source_digests(root, paths))


def source_digests(root: Path, paths: Iterable[str] = NUMERIC_SOURCES) -> dict[str, str]:
    """Digest of every source file by its path relative to `root`; two of these name the files that differ.

    Raises:
        NotFoundError: one of `paths` does not exist below `root`.
        UserError: a module cannot be parsed.
    """
    found = {}
    installed = is_installed(root)
    for path in paths:
        matches = sorted(root.glob(_installed_path(path) if installed else path))
        if not matches:
            raise NotFoundError(
                f"code digest: {path} does not exist below {root}, expected the sources of Treering; install the "
                "package again: `pip install --force-reinstall 'treering[trainer]'`"
            )
        for match in matches:
            for file in _files(match):
                name = file.relative_to(root).as_posix()
                name = _clone_path(name) if installed else name
                if name not in found:
                    found[name] = _source_digest(file)
    return found


def _installed_path(path: str) -> str:
    """The path of a source among installed packages, by its path in a clone."""
    for folder, package in _PACKAGES.items():
        if path == folder or path.startswith(f"{folder}/"):
            return package + path.removeprefix(folder)
    return path


def _clone_path(path: str) -> str:
    """The path of a source in a clone, by its path among installed packages."""
    folders = {package: folder for folder, package in _PACKAGES.items()}
    package, _, rest = path.partition("/")
    return f"{folders[package]}/{rest}" if package in folders else path


def code_record(root: Path, paths: Iterable[str] = NUMERIC_SOURCES) -> dict[str, Any]:
    """What decides whether two codes are the same: `digest`, `rule`, and `sources` (digest by file)."""
    sources = source_digests(root, paths)
    return {"digest": _joined_digest(sources), "rule": CODE_RULE, "sources": sources}


def collect_code(
    root: Path, paths: Iterable[str] = NUMERIC_SOURCES, diff_paths: Iterable[str] = TRAINING_SOURCES
) -> dict[str, Any]:
    """Everything that an attempt's header records about its code, as JSON values.

    Args:
        root: see `sources_root`.
        paths: the sources that decide numbers.
        diff_paths: the sources that the diff covers, new files included.

    Returns:
        `digest`, `rule` and `sources` of `code_record`; `commit` and `dirty` (None without git, and for code that a
        wheel installed), `diff` (the text against the commit, empty when clean) and `diff_digest` (None when clean).
    """
    # Around an installed package may be a repository, but not the one of this code.
    commit = None if is_installed(root) else run_git(root, "rev-parse", "--verify", "HEAD")
    diff = _diff(root, tuple(diff_paths)) if commit else None
    return {
        **code_record(root, paths),
        "commit": commit.strip() if commit else None,
        "dirty": bool(diff) if commit else None,
        "diff": diff or "",
        "diff_digest": digest_bytes(diff.encode()) if diff else None,
    }


def code_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two records of code, in words: the files, or why that cannot be said; empty if nothing does.

    Args:
        before: the record that `now` is compared with.
        now: a record.
    """
    rule, mine = before.get("rule"), now.get("rule")
    if rule != mine:
        whose = "an earlier rule" if rule is None else f"rule {rule}, not {mine or 'the earlier rule'},"
        return f"recorded by {whose} of the code digest; whether the code is the same cannot be said"
    if before["digest"] == now["digest"]:
        return ""
    old, new = before.get("sources", {}), now.get("sources", {})
    files = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return ", ".join(files[:_SHOWN]) + more or "its files are not recorded"


def _joined_digest(sources: Mapping[str, str]) -> str:
    state = hashlib.sha256()
    for name, digest in sorted(sources.items()):
        state.update(f"{name}\0{digest}\n".encode())
    return DIGEST_PREFIX + state.hexdigest()


def _source_digest(file: Path) -> str:
    return source_digest(read_bytes(file), file) if file.suffix == ".py" else digest_file(file)


def source_digest(content: bytes, file: Path) -> str:
    """The digest of a source file in `sources`, from the file's content.

    Raises:
        UserError: it is a module that this Python cannot parse.
    """
    return syntax_digest(content, file) if file.suffix == ".py" else digest_bytes(content)


def source_file(root: Path, path: str) -> Path:
    """A source below a root (see `sources_root`), by its path in a clone."""
    return root / (_installed_path(path) if is_installed(root) else path)


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
    changes = [run_git(root, "diff", "--no-color", "--no-ext-diff", "--binary", "HEAD", "--", *paths)]
    unknown = run_git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *paths) or ""
    # --no-index ends with 1 when there is a difference, and there always is one.
    changes.extend(
        run_git(root, "diff", "--no-color", "--no-index", "--binary", "/dev/null", name, fine=(0, 1))
        for name in sorted(filter(None, unknown.split("\0")))
    )
    return "".join(filter(None, changes))


def run_git(root: Path, *arguments: str, fine: tuple[int, ...] = (0,)) -> str | None:
    """Output of a git command, None where git or a repository is missing."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="backslashreplace") if done.returncode in fine else None
