"""The tiny project with all that the report reads: curation's summary, and scores."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from treering.config.load import load_experiment
from treering.data.curate.finalize import Written
from treering.data.curate.intake import Taken
from treering.data.curate.summary import summary
from treering.project import Project
from treering.report.facts import read_facts


def taken(documents, dropped):
    return Taken(
        shards=[], intake={"documents": documents}, dropped=dropped, digests={}, objects=[], skipped={}, noted={}
    )


TAKEN = [
    taken(90, {("extract", "empty"): 2, ("filter", "too_short"): 10, ("filter", "language"): 3}),
    taken(70, {("filter", "too_short"): 1}),
]
WRITTEN = [
    Written({"train": 60, "heldout": 4}, {"train": 1, "heldout": 1}, dropped, None)
    for dropped in ({("dedup", "exact"): 10, ("decontaminate", "ngram"): 1}, {("heldout", "twin"): 5})
]


@pytest.fixture(scope="session")
def complete(scored_project, tmp_path_factory) -> Project:
    """A copy of the scored project that stage `report` can run on."""
    from treering_trainer.evaluate.__main__ import main

    project = Project(tmp_path_factory.mktemp("report") / "project")
    shutil.copytree(scored_project.root, project.root)
    found = summary(["letters", "numbers"], TAKEN, WRITTEN, {"cloze": 16, "lambada": 16})
    (project.curated / "summary.json").write_text(json.dumps(found))
    torch.set_num_threads(1)
    with contextlib.chdir(project.root):
        assert main(["scored.yaml"]) == 0
    return project


@pytest.fixture
def copy(complete, tmp_path) -> Project:
    """A copy to break."""
    shutil.copytree(complete.root, tmp_path / "project")
    return Project(tmp_path / "project")


@pytest.fixture(scope="session")
def facts_of():
    """Reads the facts of such a project."""

    def read(project):
        config = Path("scored.yaml")
        return read_facts(project, load_experiment(project.root / config), str(config))

    return read
