"""A project whose corpora DVC and git keep, with real DVC and git."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from treering.data.corpus.corpus import Corpus
from treering.project import Project


def run(root, *command):
    """A command in a folder; DVC's files of the machine lie beside it."""
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(root / ".dvc-site")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    subprocess.run(command, cwd=root, check=True, capture_output=True, env=environment)


def dvc(root, *commands):
    """DVC's own command line, several commands in one process."""
    code = "import sys; from dvc.cli import main; sys.exit(any(main(line.split()) for line in sys.argv[1:]))"
    run(root, sys.executable, "-c", code, *commands)


def git(root, *arguments):
    """Git as somebody."""
    run(root, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments)


def lay_versions(template, root):
    """Corpora tracked by DVC in a git repository, then replaced by others: the first ones are history.

    Returns:
        The project's `root`, the `digests` of the first corpora by name, and the `remote`, a folder, that holds them.
    """
    shutil.copytree(template, root)
    project = Project(root)
    remote = root.parent / "remote"
    digests = {name: Corpus.open(project.corpus(name)).digest for name in ("red", "green", "blue")}
    git(root, "init", "-q")
    dvc(
        root,
        "init -q",
        f"remote add -q shelf {remote}",
        "remote add -q cloud gs://bucket/path",
        "add -q data/corpora",
        "push -q -r shelf",
    )
    git(root, "add", ".dvc", "data/corpora.dvc")
    git(root, "commit", "-qm", "first corpora")
    shutil.rmtree(project.corpora)
    project.corpora.mkdir()
    (project.corpora / "other").write_text("other")
    dvc(root, "add -q data/corpora")
    git(root, "commit", "-qam", "other corpora")
    return SimpleNamespace(root=root, digests=digests, remote=remote)
