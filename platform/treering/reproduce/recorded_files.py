"""The text of a source file as an attempt ran it: from the code that is here, or from the recorded commit and diff.

What is found is compared with the recorded digest of the file. Nothing in the repository changes: the diff is applied
to copies in a temporary folder.
"""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from treering.collect.code import CODE_RULE, rule_of, run_git, source_digest, source_file
from treering.config.canonical import digest_bytes
from treering.errors import UserError
from treering.files import read_bytes, write_durably
from treering.reproduce.sources import has_commit


class RecordedFiles:
    """The source files of one attempt.

    Args:
        code: what the attempt's header records of its code.
        repositories: folders that may be in a git repository with the commit.
        here: root of the code that is here, whose files are used where their digests are the recorded ones.
    """

    def __init__(self, code: Mapping[str, Any], repositories: Iterable[Path], here: Path | None = None) -> None:
        self._code = code
        self._here = here
        commit = code.get("commit")
        self._commit = str(commit) if commit else ""
        self._repository: Path | None = None
        if self._commit:
            self._repository = next((each for each in repositories if has_commit(each, self._commit)), None)
        self._digests: Mapping[str, str] = code.get("sources", {})

    @property
    def lacking(self) -> str:
        """Why files cannot be rebuilt, in words; empty where commit and diff are there."""
        if not self._commit:
            return "the record names no commit"
        if self._repository is None:
            return f"commit {self._commit[:12]} is in no git repository here"
        if self.diff is None:
            return "the recorded diff is missing or does not have its digest"
        return ""

    @property
    def diff(self) -> str | None:
        """The changes against the commit; None where they are incomplete."""
        diff, digest = self._code.get("diff"), self._code.get("diff_digest")
        if diff is None:
            return None
        return diff if not diff or digest in {None, digest_bytes(diff.encode())} else None

    @property
    def repository(self) -> Path | None:
        """A folder in the repository that has the commit, None where there is none."""
        return self._repository

    @property
    def commit(self) -> str:
        """The recorded commit, empty without one."""
        return self._commit

    def read(self, names: Iterable[str]) -> tuple[dict[str, bytes | None], list[str]]:
        """The content of files.

        Args:
            names: their paths, relative to the root of the repository.

        Returns:
            The content by name, None for a file that the attempt did not have; and the names of the files that cannot
            be had as they were.
        """
        found: dict[str, bytes | None] = {}
        wanted = []
        for name in names:
            if self._digests and name not in self._digests:
                found[name] = None
            elif (content := self._from_here(name)) is not None:
                found[name] = content
            else:
                wanted.append(name)
        if wanted and not self.lacking:
            found |= {name: each for name, each in self._rebuilt(wanted).items() if self._is_recorded(name, each)}
        return found, [name for name in wanted if name not in found]

    def _from_here(self, name: str) -> bytes | None:
        if self._here is None:
            return None
        try:
            content = read_bytes(source_file(self._here, name))
        except OSError:
            return None
        return content if name in self._digests and self._is_recorded(name, content) else None

    def _is_recorded(self, name: str, content: bytes | None) -> bool:
        if name not in self._digests:
            return True
        if content is None:
            return False
        try:
            found = source_digest(content, Path(name)) if rule_of(self._code) == CODE_RULE else digest_bytes(content)
        except UserError:  # this Python cannot parse it
            return False
        return found == self._digests[name]

    def _rebuilt(self, names: list[str]) -> dict[str, bytes | None]:
        """Files of the commit, with the diff applied; None for a file that neither has."""
        assert self._repository is not None  # noqa: S101 - `lacking` is empty
        with tempfile.TemporaryDirectory(prefix="treering-code-") as place:
            folder, diff = Path(place) / "code", Path(place) / "diff"
            folder.mkdir()
            for name in names:
                text = run_git(self._repository, "show", f"{self._commit}:{name}")
                if text is not None:
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    write_durably(folder / name, text)
            if self.diff:
                write_durably(diff, self.diff)
                run_git(folder, "init", "--quiet")  # else a repository around the folder would take the patch
                only = [f"--include={name}" for name in names]
                if run_git(folder, "apply", "--whitespace=nowarn", *only, str(diff)) is None:
                    return {}
            return {name: read_bytes(folder / name) if (folder / name).is_file() else None for name in names}
