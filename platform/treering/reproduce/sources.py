"""The code that a run was trained by: the code that is here, or a git worktree at the recorded commit with its diff."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from treering.collect.code import CODE_RULE, code_difference, code_record, rule_of, run_git, sources_root
from treering.config.canonical import digest_bytes, short
from treering.errors import EvidenceError, TreeringError
from treering.foreign import say

_COMMIT: Final = "[0-9a-f]{40}|[0-9a-f]{64}"

HERE: Final = sources_root(Path(__file__))
"""Root of the sources that run."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the code of an attempt comes from.

    Attributes:
        code: what the attempt's header records.
        repository: the repository that has the commit; None where the code that is here runs.
        same: whether the code that runs decides numbers as the recorded code does.
        reason: in words, why this code runs.
        remedy: what helps where it is not the recorded code; empty where it is.
    """

    code: Mapping[str, Any]
    repository: Path | None
    same: bool
    reason: str
    remedy: str = ""

    @property
    def installed(self) -> bool:
        """Whether an installed version of Treering trained, which a wheel holds and no repository."""
        return not self.code.get("commit")


@cache
def present_code() -> dict[str, Any]:
    """Digest and sources of the code that is here.

    Raises:
        NotFoundError: it is not complete.
    """
    return code_record(HERE)


def find_sources(code: Mapping[str, Any], repositories: Sequence[Path]) -> Sources:
    """Looks for the code that a header records.

    Args:
        code: what the header records.
        repositories: folders in git repositories that may have the commit.

    Raises:
        NotFoundError: the code that is here is not complete.
    """
    difference = code_difference(code, present_code())
    if not difference:
        return Sources(code, None, same=True, reason="the code that is here has the recorded digest")
    commit = code.get("commit")
    wanted = f"the code that is here differs ({difference})"
    if not commit:
        return Sources(
            code, None, same=False, reason=f"{wanted}, and the record names no commit: an installed version trained",
            remedy="--environment, which installs the recorded version",
        )  # fmt: skip
    diff = str(code.get("diff") or "")
    if diff and digest_bytes(diff.encode()) != code.get("diff_digest"):
        return Sources(
            code, None, same=False, reason=f"{wanted}, and the recorded diff does not have its digest",
            remedy="restore the run's folder from a copy",
        )  # fmt: skip
    found = next((each for each in repositories if has_commit(each, commit)), None)
    if found is None:
        return Sources(
            code, None, same=False, reason=f"{wanted}, and commit {short(commit)} is in no repository here",
            remedy="`git fetch` in the clone of Treering, or run this command from a clone that has the commit",
        )  # fmt: skip
    with_diff = "the recorded diff" if diff else "no diff"
    return Sources(code, found, same=True, reason=f"{wanted}; commit {short(commit)} with {with_diff} is rebuilt")


def has_commit(folder: Path, commit: str) -> bool:
    """Whether the git repository around a folder has a commit, named by its whole id: a record may hold any word."""
    named = re.fullmatch(_COMMIT, commit) is not None and folder.is_dir()
    return named and run_git(folder, "cat-file", "-e", f"{commit}^{{commit}}") is not None


def check_out(repository: Path, commit: str, diff: str, target: Path) -> None:
    """Makes a git worktree at a commit and applies a diff; a worktree that is there already is made anew.

    Args:
        repository: a folder in the repository.
        commit: the commit.
        diff: text of the changes against the commit, empty for none.
        target: the folder of the worktree.

    Raises:
        EvidenceError: git cannot check out the commit, or the diff does not apply.
    """
    remove(repository, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _git(repository, "worktree", "add", "--detach", "--force", str(target.absolute()), commit)
        if diff:
            _git(target, "apply", "--whitespace=nowarn", "-", text=diff)
    except EvidenceError:
        remove(repository, target)
        raise


def check_out_verified(sources: Sources, target: Path) -> None:
    """Makes the worktree of recorded code, and compares its digest with the record.

    Raises:
        EvidenceError: it cannot be made, or its digest is another one.
    """
    if sources.repository is None:
        raise EvidenceError(f"{target}: no repository has the recorded code")
    check_out(sources.repository, str(sources.code["commit"]), str(sources.code.get("diff") or ""), target)
    if rule_of(sources.code) != CODE_RULE:
        return  # two rules cannot be compared: commit and diff are all that identifies it
    try:
        difference = code_difference(sources.code, code_record(target))
    except TreeringError as error:
        raise EvidenceError(f"{target}: {error}", file=target) from error
    if difference:
        raise EvidenceError(
            f"{target}: commit {short(str(sources.code['commit']))} with the recorded diff gives other code than the "
            f"record ({difference}); files that git ignores may have been part of it",
            file=target,
            found=difference,
            expected=sources.code["digest"],
        )


@contextmanager
def recorded_tree(code: Mapping[str, Any], repositories: Sequence[Path]) -> Iterator[Path | None]:
    """Recorded code in a temporary worktree; None where the code that is here is the same, or no repository has it.

    Args:
        code: what a header records.
        repositories: folders in git repositories that may have the commit.
    """
    found = find_sources(code, repositories)
    with tempfile.TemporaryDirectory(prefix="treering-code-") as folder, ExitStack() as stack:
        target: Path | None = None
        if found.repository is not None:
            target = Path(folder) / "source"
            stack.callback(remove, found.repository, target)
            try:
                check_out_verified(found, target)
            except EvidenceError as error:
                say(f"the recorded code is not tested: {error}")
                target = None
        yield target


def remove(repository: Path, target: Path) -> None:
    """Removes a worktree, also one that was left half made."""
    run_git(repository, "worktree", "remove", "--force", str(target.absolute()))
    shutil.rmtree(target, ignore_errors=True)
    run_git(repository, "worktree", "prune")


def _git(folder: Path, *arguments: str, text: str | None = None) -> None:
    """Runs git.

    Raises:
        EvidenceError: git reports an error.
    """
    done = subprocess.run(["git", *arguments], cwd=folder, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EvidenceError(
            f"{folder}: git {arguments[0]} failed: {done.stderr.strip()}; the recorded code cannot be rebuilt",
            file=folder,
        )
