"""The copy of a working directory in which a recorded command runs again, and what the command could write outside it.

Files are copied, of any size. A folder that git does not track, such as data, is linked if nothing in it changed since
the run's process began. Else the command may have written into it, and the copy has the folder anew, with copies of its
files. Where that time is not recorded, every file counts as changed.
The working directory and the folders around it are never links: a command in a linked folder would run in the original.
Symbolic links that lead to a place inside the working directory lead to the same place inside the copy.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from treering.collect.code import run_git
from treering.config.canonical import digest_bytes
from treering.reproduce.sources import check_out

_PYTHON: Final = ("pyvenv.cfg", "conda-meta")
"""What a folder with a Python environment has: commands write bytecode into it, and no results."""

_ABSOLUTE: Final = re.compile(r"(?<![^=:,;'\"\s])/[^:,;'\"\s]+")
_CLOCK_S: Final = 2.0
"""How far the times of a file system may be behind the clock."""

_NEW_FILE: Final = re.compile(r"^\+\+\+ b/(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """One thing of a working directory.

    Attributes:
        name: its path in the working directory.
        source: the file or folder itself, behind a symbolic link.
        how: `folder` made anew, `copied` file, folder `linked` to the original, or symbolic link `within` the copy.
    """

    name: Path
    source: Path
    how: Literal["folder", "copied", "linked", "within"]


@dataclass(frozen=True, slots=True)
class WorkingCopy:
    """How a working directory is copied.

    Attributes:
        root: the folder that is copied: the repository's, else the working directory.
        folder: the working directory.
        commit: of the code, empty where the files are taken as they are.
        diff: the changes against the commit.
        since: when the run's process began, Unix seconds; None where that is not recorded.
        left_out: folders of runs and checkpoints, which the command must not find.
    """

    root: Path
    folder: Path
    commit: str
    diff: str
    since: float | None
    left_out: frozenset[Path]
    _changed: dict[Path, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def parts(self) -> Iterator[Part]:
        """What the copy has beside the files of the commit, folders before what is in them."""
        yield from self._inside(self.root, Path(), self._tracked(), ())

    @property
    def linked(self) -> list[str]:
        """The folders that are links to the original's."""
        return [str(each.name) for each in self.parts() if each.how == "linked"]

    def stamp(self) -> str:
        """Digest of what a copy would be made of now; a copy with another stamp is of other files.

        Files beside a commit do not count: other programs write there.
        """
        if self.commit:
            return digest_bytes(f"{self.commit}\0{self.diff}".encode())
        files = ((each.name, each.source.stat()) for each in self.parts() if each.how == "copied")
        lines = (f"{name}\0{status.st_size}\0{status.st_mtime_ns}" for name, status in files)
        return digest_bytes(os.fsencode("\0".join(lines)))

    def make(self, work: Path) -> None:
        """Makes the copy; one that is there already is made anew.

        Raises:
            EvidenceError: the code cannot be rebuilt.
        """
        if self.commit:
            check_out(self.root, self.commit, self.diff, work)
            self._lead_inside(work)
        else:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
        for part in self.parts():
            self._make(part, work)

    def changed(self, path: Path) -> bool:
        """Whether a file, or any file in a folder or behind its links, changed since the run's process began."""
        real = _resolved(path)
        if real not in self._changed:
            self._changed[real] = False  # a link to a folder around it ends here
            self._changed[real] = self._has_changed(real)
        return self._changed[real]

    def _has_changed(self, path: Path) -> bool:
        try:
            status = path.stat()
            if path.is_file() or path.is_dir():
                if self.since is None or max(status.st_mtime, status.st_ctime) >= self.since - _CLOCK_S:
                    return True
                return path.is_dir() and any(self.changed(each) for each in path.iterdir())
        except OSError:  # a link that leads nowhere
            return False
        return False

    def _tracked(self) -> frozenset[Path]:
        """Files and folders of the commit with the diff, relative to the root."""
        if not self.commit:
            return frozenset()
        listed = run_git(self.root, "ls-tree", "-r", "-z", "--full-tree", "--name-only", self.commit) or ""
        files = {Path(each) for each in [*listed.split("\0"), *_NEW_FILE.findall(self.diff)] if each}
        return frozenset(files.union(*(each.parents for each in files))) if files else frozenset()

    def _inside(self, folder: Path, name: Path, tracked: frozenset[Path], around: Sequence[Path]) -> Iterator[Part]:
        for entry in sorted(folder.iterdir()):
            if entry.name != ".git":
                yield from self._parts_of(entry, name / entry.name, tracked, (*around, folder))

    def _parts_of(self, entry: Path, name: Path, tracked: frozenset[Path], around: Sequence[Path]) -> Iterator[Part]:
        real = _resolved(entry)
        if entry in self.left_out or real in self.left_out or real in around:
            return
        if entry.is_symlink() and real.is_relative_to(_resolved(self.root)):
            yield Part(name, real, "within")
        elif real.is_file():
            if entry.is_symlink() or name not in tracked:
                yield Part(name, real, "copied")
        elif real.is_dir():
            kept = (*self.left_out, self.folder, _resolved(self.folder))
            holds = any(each.is_relative_to(entry) or each.is_relative_to(real) for each in kept)
            mixed = name in tracked and not entry.is_symlink()
            anew = holds or mixed or (self.changed(real) and not _is_python(real))
            yield Part(name, real, "folder" if anew else "linked")
            if anew:
                yield from self._inside(real, name, tracked, around)

    def _make(self, part: Part, work: Path) -> None:
        place = work / part.name
        if place.is_symlink() or (place.exists() and part.how != "folder"):
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if part.how == "folder":
            place.mkdir(exist_ok=True)
        elif part.how == "copied":
            shutil.copy2(part.source, place)
        elif part.how == "linked":
            place.symlink_to(part.source, target_is_directory=True)
        else:
            there = work / part.source.relative_to(_resolved(self.root))
            place.symlink_to(os.path.relpath(there, place.parent))

    def _lead_inside(self, work: Path) -> None:
        """Removes the symbolic links of the commit that lead out of the copy; `parts` makes them anew."""
        for folder, folders, files in os.walk(work):
            for name in (*folders, *files):
                link = Path(folder) / name
                if link.is_symlink() and not _resolved(link).is_relative_to(_resolved(work)):
                    link.unlink()


def _resolved(path: Path) -> Path:
    """The path behind symbolic links; of links in a circle the path itself."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def _is_python(folder: Path) -> bool:
    return any((folder / name).exists() for name in _PYTHON)


def in_copy(word: str, root: Path, work: Path) -> str:
    """A word of the command with the copy in place of the original folder, but not of a folder whose name goes on.

    A path that leads into the original folder through symbolic links is replaced too.
    """
    for text in _ABSOLUTE.findall(word):
        inside = _resolved(Path(text))
        if not Path(text).is_relative_to(root) and inside.is_relative_to(_resolved(root)):
            word = word.replace(text, str(root / inside.relative_to(_resolved(root))))
    return re.sub(rf"(?<![\w.~-]){re.escape(str(root))}(?=[/:,;'\"\s]|$)", lambda _: str(work), word)


def outside(words: Sequence[str], root: Path) -> list[Path]:
    """The files and folders outside a folder that words of a command name by their absolute paths."""
    found = [_resolved(Path(text)) for word in words for text in _ABSOLUTE.findall(word)]
    return [
        each
        for each in dict.fromkeys(found)
        if (each.is_file() or each.is_dir()) and not each.is_relative_to(_resolved(root))
    ]
