"""A run of an audited project, its capsule, and an empty project with the files of the corpora under other names."""

import shutil

import pytest
from audited_project import lay_project

from treering.project import Project
from treering.reproduce.capsule.write import write_capsule
from treering.runlog.directory import RunDirectory


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    root = tmp_path_factory.mktemp("capsule") / "project"
    root.mkdir()
    lay_project(root)
    (root / "experiments").mkdir()
    shutil.copy(root / "tiny.yaml", root / "experiments/tiny.yaml")
    project = Project(root)
    RunDirectory(next(project.runs.iterdir())).resolved.blend.write(project.blend)
    return project


@pytest.fixture(scope="module")
def packed(template):
    run = RunDirectory(next(template.runs.iterdir()))
    return write_capsule(run, template.root.parent / "run.zip", template)


@pytest.fixture
def elsewhere(tmp_path, store):
    """An empty project, and a folder that has the files of the corpora under other names."""
    (tmp_path / "again").mkdir()
    return Project(tmp_path / "again"), store


@pytest.fixture
def store(template, tmp_path):
    files = [path for path in sorted(template.corpora.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    (tmp_path / "store/deep").mkdir(parents=True)
    for number, path in enumerate(files):
        shutil.copy(path, tmp_path / ("store/deep" if number % 2 else "store") / f"blob-{number}")
    return tmp_path / "store"
