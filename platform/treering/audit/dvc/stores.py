"""Looks into DVC's stores without DVC: the cache, and remotes that are folders. Others: `audit.dvc.remotes`.

A store holds a file under its md5 as `files/md5/ab/cdef…`, and a tracked folder as `files/md5/ab/cdef….dir`, a JSON
list of md5 and path of every file in it.
Source: https://dvc.org/doc/user-guide/project-structure/internal-files (DVC 3).

DVC's public API opens a path of a Git revision, and needs DVC installed. The audit looks for content by its digest,
which no path need name, also where DVC is missing. So the store's own layout is read.
"""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from treering.config.yaml_text import parse_yaml
from treering.files import read_bytes, read_text

_TREE = re.compile(r"\b[0-9a-f]{32}\.dir\b")


@dataclass(frozen=True, slots=True)
class Store:
    """A folder that holds files by their md5.

    Attributes:
        remote: name of the remote, None for the cache.
        path: the folder.
    """

    remote: str | None
    path: Path

    @property
    def name(self) -> str:
        """For people."""
        return "DVC's cache" if self.remote is None else f"DVC's remote {self.remote}"

    def file(self, md5: str) -> Path:
        """The path of a file of that md5, if this store has it."""
        return self.path / "files" / "md5" / md5[:2] / md5[2:]

    def read(self, md5: str) -> bytes | None:
        """A small file of that md5, None if it cannot be read here."""
        try:
            return read_bytes(self.file(md5))
        except OSError:
            return None

    def holds(self, md5: str) -> bool:
        """Whether this store has a file of that md5."""
        return self.file(md5).exists()

    def bring(self, md5: str, target: str) -> str:
        """The command that copies a file of that md5 to a place, both for a shell."""
        return f"cp {shlex.quote(str(self.file(md5)))} {target}"

    def fetch(self, md5: str, target: Path) -> None:
        """Copies a file of that md5 to a place.

        Raises:
            OSError: it cannot be written.
        """
        shutil.copyfile(self.file(md5), target)

    def trees(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every tracked folder: its md5 (with `.dir`), and of each file in it the md5 by its relative path."""
        for path in sorted((self.path / "files" / "md5").glob("??/*.dir")):
            md5 = path.parent.name + path.name
            entries = files_of_tree(self.read(md5) or b"")
            if entries is not None:  # else a torn download; DVC itself will say so
                yield md5, entries


def files_of_tree(content: bytes) -> dict[str, str] | None:
    """Of each file of a tracked folder the md5 by its relative path, from its list; None if that is none."""
    try:
        return {str(entry["relpath"]): str(entry["md5"]) for entry in json.loads(content)}
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Tracked:
    """Where a project says that a folder of some md5 belongs.

    Attributes:
        out: the folder, relative to the project's root.
        file: the file that says so.
        commit: the newest commit in which it says so, None if it does now.
    """

    out: str
    file: str
    commit: str | None


def find_stores(root: Path) -> tuple[list[Store], dict[str, str]]:
    """The cache and the remotes of a project, by its `.dvc/config` and `.dvc/config.local`.

    Returns:
        The stores that are folders here, and of the remotes that are none the URL by name.
    """
    folder = root / ".dvc"
    config = configparser.ConfigParser(interpolation=None)
    config.read([folder / "config", folder / "config.local"])
    stores = [Store(None, _resolve(folder, config.get("cache", "dir", fallback="cache")))]
    elsewhere = {}
    for section in config.sections():
        if not section.strip("'").startswith("remote "):
            continue
        name, url = section.strip("'").split(" ", 1)[1].strip('"'), config.get(section, "url", fallback="")
        if "://" in url and not url.startswith("file://"):
            elsewhere[name] = url
        else:
            stores.append(Store(name, _resolve(folder, url.removeprefix("file://"))))
    return [store for store in stores if store.path.is_dir()], elsewhere


def _resolve(folder: Path, path: str) -> Path:
    return (folder / path).resolve()


def tracked(root: Path, md5: str) -> Tracked | None:
    """Where the project, now or in a commit of its git history, says that a folder of that md5 belongs."""
    for file in (root / "dvc.lock", *sorted(root.glob("**/*.dvc"))):
        if file.is_file() and md5 in (text := read_text(file, errors="replace")):
            name = file.relative_to(root).as_posix()
            out = _out_of(text, name, md5)
            if out is not None:
                return Tracked(out, name, None)
    for commit in _git(root, "log", "--all", "--format=%H", f"-S{md5}", "--", "dvc.lock", "*.dvc").split():
        for line in _git(root, "grep", "-l", "--fixed-strings", md5, commit, "--", "dvc.lock", "*.dvc").splitlines():
            name = line.partition(":")[2]
            out = _out_of(_git(root, "show", line), name, md5)
            if out is not None:
                return Tracked(out, name, commit)
    return None


def named_trees(root: Path) -> set[str]:
    """The md5 of every folder that the project, now or in any commit of its git history, says it tracks."""
    texts = [
        read_text(file, errors="replace") for file in (root / "dvc.lock", *root.glob("**/*.dvc")) if file.is_file()
    ]
    history = _git(root, "log", "--all", "--format=", "--patch", "--unified=0", "--", "dvc.lock", "*.dvc")
    return {md5 for text in (*texts, history) for md5 in _TREE.findall(text)}


def _out_of(text: str, name: str, md5: str) -> str | None:
    """Path of the out with that md5 in a `dvc.lock` or a `.dvc` file, relative to the project's root."""
    try:
        document: Any = parse_yaml(text)
        stages = document["stages"].values() if "stages" in document else [document]
        outs = [out for stage in stages for out in stage.get("outs", ()) if out.get("md5") == md5]
    except (yaml.YAMLError, AttributeError, TypeError):
        return None
    return (Path(name).parent / str(outs[0]["path"])).as_posix() if outs else None


def _git(root: Path, *arguments: str) -> str:
    """Output of git; nothing where there is no git or no repository."""
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
