"""Copies of a small project with real corpora and a run of two attempts."""

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from audited_project import DOCUMENTS, cut_checkpoint, lay_attempt, lay_project, start_run
from versioned_project import lay_versions

from treering.audit.attestation.keys import PrivateKey, generate
from treering.audit.attestation.sign import attest
from treering.data.corpus.corpus import Corpus
from treering.data.order.treering1 import DataOrder
from treering.project import Project
from treering.runlog.directory import RunDirectory


@pytest.fixture(scope="session")
def laying():
    """The means to lay a run on corpora of one's own."""
    return SimpleNamespace(lay_attempt=lay_attempt, cut_checkpoint=cut_checkpoint)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """The project that tests copy."""
    root = tmp_path_factory.mktemp("template")
    return SimpleNamespace(root=root, texts=lay_project(root))


@pytest.fixture
def built(template, tmp_path, monkeypatch):
    """A copy of the template to work on and to damage, as the working directory."""
    root = tmp_path / "project"
    shutil.copytree(template.root, root)
    monkeypatch.chdir(root)
    project = Project(Path(root))
    run = RunDirectory(next(project.runs.iterdir()))
    corpora = {name: Corpus.open(project.corpus(name)) for name in DOCUMENTS}
    order = DataOrder(run.resolved.blend, {name: corpus.document_offsets for name, corpus in corpora.items()})
    return SimpleNamespace(
        project=project,
        run=run,
        corpora=corpora,
        order=order,
        schedule=run.resolved.schedule,
        first=run.checkpoints()[0],
        last=run.checkpoints()[-1],
        texts=template.texts,
        start_run=partial(start_run, project),
        lay_attempt=partial(lay_attempt, project),
        cut_checkpoint=cut_checkpoint,
    )


@pytest.fixture(scope="session")
def versioned(template, tmp_path_factory):
    """A project with a history of corpora, as `lay_versions` makes it."""
    return lay_versions(template.root, tmp_path_factory.mktemp("versioned") / "project")


@pytest.fixture
def gone(versioned, tmp_path):
    """A copy to work on, whose first corpora are gone; `remote` is the original's and is only read."""
    root = tmp_path / "versions"
    shutil.copytree(versioned.root, root, symlinks=True)
    return SimpleNamespace(project=Project(root), root=root, digests=versioned.digests, remote=versioned.remote)


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """Two signers: their key files."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: (folder / f"{name}.pem", generate(folder / f"{name}.pem")[1]) for name in ("signer", "stranger")}


@pytest.fixture(scope="session")
def signer(keys):
    return PrivateKey.read(keys["signer"][0])


@pytest.fixture
def signed(built, signer):
    """The last checkpoint with its attestation."""
    path, statement = attest(built.last, built.project, signer, verify=True)
    return path, statement
