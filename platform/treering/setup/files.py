"""The files of a new project: planned, compared with what is there, then written, or nothing is.

A file that is there stays as it is. Lines are added to `.gitignore` and `.dvcignore`; any other file with another
content is refused before anything is written.
"""

import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treering.collect.code import run_git
from treering.errors import UserError
from treering.files import read_text, write_durably
from treering.project import Project

_GIT_IGNORED: Final = (
    "/data/raw/",
    "/data/curated/",
    "/data/corpora/",
    "/data/blend.json",
    "/data/version.json",
    "/published/",
    "/.published.*/",
    "/runs/",
    "/.treering/",
    "/.streamlit/secrets.toml",
    "/mlflow.db",
    "/treering.db",
    "/mlartifacts/",
    "/mlruns/",
    "/dvc_plots/",
    "*.pem",
    "!*.pub.pem",
)
_DVC_IGNORED: Final = ("__pycache__/", "*.pyc")
_HEADINGS: Final = {
    ".gitignore": "# Treering: what its commands make, and private keys",
    ".dvcignore": "# Treering: bytecode",
}
_CONFIG_LINE: Final = re.compile(r"^  - config: .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Planned:
    """One file.

    Attributes:
        path: where it goes.
        content: all of it.
        there: what is there now; None if nothing is.
    """

    path: Path
    content: str
    there: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """What was done.

    Attributes:
        written: files that are new or have new lines.
        kept: files that already were as they should be.
        dvc: whether `dvc init` was run.
    """

    written: tuple[str, ...]
    kept: tuple[str, ...]
    dvc: bool


def write_project(project: Project, name: str, experiment: str, *, minimal: bool) -> Written:
    """Writes the files of a project around an experiment.

    Args:
        project: where.
        name: of the experiment.
        experiment: its YAML.
        minimal: without DVC.

    Raises:
        UserError: a file or a folder is in the way, or DVC is missing; nothing was written.
        OSError: a file cannot be written; what was written before is removed again.
    """
    planned = [_plan(project.root / "experiments" / f"{name}.yaml", experiment), _plan_ignored(project, ".gitignore")]
    if not minimal:
        template = read_text(Path(__file__).with_name("pipeline.yaml"))
        planned.append(_plan_pipeline(project.root / "dvc.yaml", template.replace("NAME", name)))
        if importlib.util.find_spec("dvc") is None:
            raise UserError(
                "init: DVC is not installed, expected it for dvc.yaml; `pip install 'treering[pipeline]'`, or without "
                "DVC: `treering init --minimal`"
            )
    _refuse_others(project, planned)
    dvc = not minimal and _init_dvc(project.root)
    if not minimal:
        planned.append(_plan_ignored(project, ".dvcignore"))  # after `dvc init`, which writes one
    done: list[Planned] = []
    try:
        for file in planned:
            if file.there != file.content:
                file.path.parent.mkdir(exist_ok=True)
                write_durably(file.path, file.content)
                done.append(file)
    except OSError:
        for file in done:
            file.path.unlink() if file.there is None else write_durably(file.path, file.there)
        raise
    names = {file.path: str(file.path.relative_to(project.root)) for file in planned}
    return Written(
        tuple(names[file.path] for file in done), tuple(names[each.path] for each in planned if each not in done), dvc
    )


def _plan(path: Path, content: str) -> Planned:
    return Planned(path, content, _there(path))


def _there(path: Path) -> str | None:
    try:
        return read_text(path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"init: {path} cannot be read ({error}), expected a file of text or none; move it") from None


def _plan_ignored(project: Project, name: str) -> Planned:
    """An ignore file with the lines that it lacks."""
    path = project.root / name
    there = _there(path)
    wanted = _GIT_IGNORED if name == ".gitignore" else _DVC_IGNORED
    lines = {line.strip() for line in (there or "").splitlines()}
    missing = [line for line in wanted if line not in lines]
    if not missing:
        return Planned(path, there or "", there)
    before = "" if not there else there.rstrip("\n") + "\n\n"
    return Planned(path, before + "\n".join([_HEADINGS[name], *missing]) + "\n", there)


def _plan_pipeline(path: Path, content: str) -> Planned:
    """`dvc.yaml`; one of this form that runs another experiment stays as it is."""
    there = _there(path)
    same = there is not None and _CONFIG_LINE.sub("", there, 1) == _CONFIG_LINE.sub("", content, 1)
    return Planned(path, there if same and there is not None else content, there)


def _refuse_others(project: Project, planned: list[Planned]) -> None:
    """Refuses what is in the way, all of it at once.

    Raises:
        UserError: something is.
    """
    remedies = {
        "dvc.yaml": "make the project in a folder of its own below this one, or without DVC: `treering init --minimal`",
        ".yaml": "choose another name, or move the file away",
    }
    found = []
    for file in planned:
        name = str(file.path.relative_to(project.root))
        if file.there is not None and file.there != file.content and not name.startswith("."):
            found.append(f"{name} is there with another content; {remedies.get(name, remedies['.yaml'])}")
    if planned[0].there is None and not _is_project(project):
        outputs = (project.raw, project.curated, project.corpora, project.blend, project.published, project.report)
        found += [
            f"{path.relative_to(project.root)} is there, and the pipeline would replace it; move it away, or make the "
            "project in a folder of its own"
            for path in outputs
            if path.exists()
        ]
    if found:
        raise UserError("\n  ".join(["init: nothing was written:", *found]))


def _is_project(project: Project) -> bool:
    """Whether a project was made in this folder before."""
    configs = (project.root / "experiments").glob("*.yaml")
    return any(re.search(r"^experiment:", _there(path) or "", re.MULTILINE) for path in configs)


def _init_dvc(root: Path) -> bool:
    """Makes the folder a DVC repository if it is in none; says whether it did.

    Raises:
        UserError: `dvc init` failed.
    """
    if any((folder / ".dvc").is_dir() for folder in (root, *root.parents)):
        return False
    top = run_git(root, "rev-parse", "--show-toplevel")
    options = ["--no-scm"] if top is None else [] if Path(top.strip()) == root.resolve() else ["--subdir"]
    command = [sys.executable, "-m", "dvc", "init", "--quiet", *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())
        raise UserError(
            f"init: `dvc init` failed: {reason}; nothing was written; mend it, or use `treering init --minimal`"
        )
    return True
