"""A loop of one's own that reads by `BlendDataset`: any world size, exact resume, every sample recomputed."""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
from pathlib import Path

import audited_project
import numpy as np
import pytest
import yaml

from treering.config.load import load_experiment
from treering.config.resolved_blend import ResolvedBlend
from treering.data.blend.corpora import resolve_blend
from treering.data.corpus.corpus import Corpus
from treering.data.order.batch import read_samples
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, UserError
from treering.project import Project
from treering.record.blend_dataset import BlendDataset
from treering.record.start import start
from treering.runlog.find import find_recorded_runs

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def project(tmp_path, monkeypatch):
    here = Project(tmp_path)
    audited_project.write_corpora(here)
    config = tmp_path / "experiment.yaml"
    config.write_text(yaml.safe_dump(audited_project.CONFIG))
    resolve_blend(load_experiment(config), here).write(here.blend)
    monkeypatch.chdir(tmp_path)
    return here


def samples(project, lo, hi):
    """Samples [lo, hi) of the project's order, straight from order and corpora."""
    blend = ResolvedBlend.read(project.blend)
    corpora = [Corpus.open(project.corpus(component.corpus)) for component in blend.components]
    return read_samples(DataOrder(blend), corpora, lo, hi).astype(np.int64)


def train(steps, *, world_size=1, batch=4, die_at=0, fault=0, shuffle=False):
    """Trains in a process a rank, by torch's DataLoader; returns their exit codes."""

    def rank_of(rank):
        import torch

        torch.manual_seed(5)
        data = BlendDataset(num_samples=400, rank=rank, world_size=world_size)
        run = start("loop", data=data, rank=rank, world_size=world_size)
        together.wait(120)
        data.first_sample += fault
        loader = iter(torch.utils.data.DataLoader(data, batch_size=batch, shuffle=shuffle))
        for step in range(run.resumed_step + 1, steps + 1):
            tokens = next(loader)
            together.wait(120)  # as a training's collectives do
            run.step(loss=float(tokens.sum()), tokens=tokens)
            together.wait(120)
            if step % 4 == 0 and rank == 0:
                Path(f"ckpt/{step}").mkdir(parents=True, exist_ok=True)
                run.checkpoint(f"ckpt/{step}")
            if step == die_at:
                together.wait(120)
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish()

    together = FORK.Barrier(world_size)
    ranks = [FORK.Process(target=rank_of, args=(rank,)) for rank in range(world_size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return [process.exitcode for process in ranks]


def test_ranks_read_the_order_without_a_gap(project):
    expected = samples(project, 5, 25)
    for world_size in (1, 3):
        ranks = [
            BlendDataset(first_sample=5, num_samples=25, rank=rank, world_size=world_size) for rank in range(world_size)
        ]
        assert sum(map(len, ranks)) == 20
        read = [ranks[i % world_size][i // world_size] for i in range(20)]
        np.testing.assert_array_equal(np.stack(read), expected)
    with pytest.raises(IndexError, match="4"):
        BlendDataset(num_samples=4)[4]
    assert len(BlendDataset()) > 1 << 60


@pytest.mark.usefixtures("project")
def test_a_worker_gets_the_data_set_without_open_corpora():
    data = BlendDataset()
    first = data[0]
    copied = pickle.dumps(data)
    assert len(copied) < 10_000
    np.testing.assert_array_equal(pickle.loads(copied)[0], first)  # noqa: S301 our own bytes


def test_declared_and_other_corpora_are_refused(project):
    blend = ResolvedBlend.read(project.blend)
    red = project.corpus("red")
    shutil.rmtree(red)
    shutil.copytree(project.corpus("green"), red)
    with pytest.raises(EvidenceError, match=r"found corpus sha256:.*run `treering blend`"):
        BlendDataset()
    component = blend.components[0].model_copy(update={"digest": None})
    blend.model_copy(update={"components": (component, *blend.components[1:])}).write(project.blend)
    with pytest.raises(UserError, match=r"found declared corpora \(red\)"):
        BlendDataset()


@pytest.mark.slow
def test_a_loop_that_was_killed_and_resumed_at_another_world_size_is_content_bound(project, treering):
    assert train(12, world_size=2, batch=3, die_at=6) == [-9, -9]
    assert train(12, world_size=3, batch=2) == [0, 0, 0]
    (run,) = find_recorded_runs(project.runs)
    assert [attempt.header.data["first_sample"] for attempt in run.attempts()] == [0, 24]
    code, out, err = treering("audit", run.id, "--verify", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["level"], found["steps_content_bound"], found["samples"]) == ("content-bound", 12, 72)
    assert [restart["state"] for restart in found["restarts"]] == ["same samples"]
    assert not any("Which documents" in text for text in found["not_proven"])


@pytest.mark.slow
def test_a_loader_that_did_not_follow_the_order_is_named(project, treering):
    assert train(5, shuffle=True) == [0]
    (run,) = find_recorded_runs(project.runs)
    code, out, _ = treering("audit", run.id, "--verify", "--json")
    found = json.loads(out)
    assert (code, found["level"], found["steps_content_bound"]) == (3, "declared", 0)
    assert "step 1 was fed other samples than 0 to 3 of the order on rank 0" in found["findings"][0]["text"]


@pytest.mark.slow
def test_a_resumed_data_set_at_another_place_is_named(project, treering):
    assert train(12, die_at=6) == [-9]
    assert train(12, fault=4) == [0]
    (run,) = find_recorded_runs(project.runs)
    code, out, _ = treering("audit", run.id, "--verify", "--json")
    assert code == 3
    texts = [finding["text"] for finding in json.loads(out)["findings"]]
    assert any("step 5 was fed other samples than 16 to 19 of the order" in text for text in texts)


def test_a_run_without_an_order_has_nothing_to_recompute(tmp_path, monkeypatch, treering):
    monkeypatch.chdir(tmp_path)
    with start("plain") as run:
        run.step(loss=1.0)
    code, _, err = treering("audit", run.id, "--verify")
    assert (code, "has nothing to recompute" in err) == (2, True)
