"""Killed at any moment, a run goes on and ends as if nothing had happened: same samples, same losses, same weights."""

import json
import os
import random
import shutil
import signal
import time

import psutil
import pytest
from trained import assert_identical, eventually, rings_after, run_of

from treering.project import Project
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


@pytest.mark.parametrize(
    "case",
    [
        ({"kill_after_ring": {"step": 2}}, None),
        ({"kill_after_ring": {"step": 4}}, None),  # the ring is appended, its checkpoint is not yet written
        ({"kill_after_ring": {"step": 7}}, 4),
        ({"kill_in_save": {"step": 4}}, None),
        ({"kill_in_save": {"step": 12}}, 8),
        ({"kill_in_save": {"step": 15}}, 12),
    ],
    ids=["before the first checkpoint", "before a save", "between", "first save", "later save", "last save"],
)
def test_kill_everything(case, zygote, project, reference, tmp_path):
    fault, goes_on_from = case
    zygote.train(project, tmp_path, expect=-signal.SIGKILL, **fault)
    run = run_of(tmp_path)
    assert eventually(lambda: run.state() == "broken")
    if "kill_in_save" in fault:
        assert list((run.path / "checkpoints").glob(".saving-*"))
    zygote.train(project, tmp_path)
    run = run_of(tmp_path)
    parent = run.attempts()[-1].header.parent
    assert (parent.step if parent else None) == goes_on_from
    assert not list((run.path / "checkpoints").glob(".*"))
    assert run.state() == "finished"
    assert_identical(run, reference)


def test_kill_at_random_moments(zygote, project, reference, tmp_path):
    chance = random.Random(20220131)
    kills = 0
    while kills < 3:
        # At most 4 steps before each kill, on the fastest machine: three kills come before the last of 15 steps.
        training = zygote.start(project, tmp_path, slow={"seconds": 0.4})
        time.sleep(chance.uniform(0.3, 1.6))
        training.kill(signal.SIGKILL)
        assert training.wait() == -signal.SIGKILL
        kills += 1
    zygote.train(project, tmp_path)
    assert_identical(run_of(tmp_path), reference)


def test_ranks_die_with_their_launcher(zygote, project, reference, tmp_path):
    training = zygote.start(project, tmp_path, slow={"seconds": 0.5})
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 2))
    ranks = psutil.Process(training.pid).children()
    assert len(ranks) == 2
    os.kill(training.pid, signal.SIGKILL)
    assert training.wait() == -signal.SIGKILL
    assert eventually(lambda: run_of(tmp_path).state() == "broken")
    assert not rings_after(run_of(tmp_path), 15), "they trained to the end"
    assert not [rank for rank in ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]
    zygote.train(project, tmp_path)
    assert_identical(run_of(tmp_path), reference)


def test_pipeline_resumes_too(zygote, project, tmp_path):
    zygote.train(project, tmp_path / "whole", "--set=parallel.pipeline=2")
    zygote.train(project, tmp_path / "cut", "--set=parallel.pipeline=2", expect=-9, kill_after_ring={"step": 10})
    zygote.train(project, tmp_path / "cut", "--set=parallel.pipeline=2")
    assert_identical(run_of(tmp_path / "cut"), run_of(tmp_path / "whole"))


def test_a_damaged_checkpoint_is_skipped(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 10})
    newest = run_of(tmp_path).checkpoints()[-1]
    assert newest.step == 8
    damaged = next(newest.path.rglob("*optim_states.pt"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    printed = zygote.train(project, tmp_path)
    assert "skipped checkpoint step-00000008" in printed
    assert "goes on from the checkpoint of step 4" in printed
    assert_identical(run_of(tmp_path), reference)


def test_a_manifest_damaged_twice_is_set_aside_twice(zygote, project, reference, tmp_path):
    """It names no attempt, so both times it is set aside under the same number."""
    zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 6})
    for _ in range(2):
        (run_of(tmp_path).checkpoints()[-1].path / "manifest.json").write_text("{}")
        zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 6})
    zygote.train(project, tmp_path)
    run = run_of(tmp_path)
    aside = sorted(path.relative_to(run.path).as_posix() for path in run.path.glob("superseded-*/step-*"))
    assert aside == ["superseded-0000-2/step-00000004", "superseded-0000/step-00000004"]
    assert_identical(run, reference)


def test_a_checkpoint_that_its_rings_do_not_lead_to_is_skipped(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 10})
    rings = run_of(tmp_path).attempts()[0].rings_file
    lines = rings.read_text().splitlines(keepends=True)
    lines[5] = lines[5].replace('"applied":true', '"applied":false')
    rings.write_text("".join(lines))
    printed = zygote.train(project, tmp_path)
    assert "skipped checkpoint step-00000008" in printed
    assert "ring of step 6" in printed
    assert run_of(tmp_path).attempts()[-1].header.parent.step == 4
    assert_identical(run_of(tmp_path), reference)


def test_a_finished_run_whose_last_checkpoint_is_damaged_goes_on(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, "--no-publish")
    final = run_of(tmp_path).checkpoints()[-1]
    next(final.path.rglob("layer_00*")).write_bytes(b"")
    printed = zygote.train(project, tmp_path, "--no-publish")
    assert "skipped checkpoint step-00000015" in printed
    assert run_of(tmp_path).attempts()[-1].header.parent.step == 12
    assert_identical(run_of(tmp_path), reference)


@pytest.mark.parametrize(
    "case",
    [
        ({"kill_before_end": {}}, "broken", 2),
        ({"kill_in_publish": {"before": "rename"}}, "finished", 1),
        ({"kill_in_publish": {"before": "metrics"}}, "finished", 1),
    ],
    ids=["before the end is said", "in the copy", "before metrics"],
)
def test_kill_after_the_last_step(case, zygote, project, reference, tmp_path):
    fault, state, attempts = case
    root, runs = tmp_path / "project", tmp_path / "runs"
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("published", "metrics", "plots"))
    copy = Project(root)
    zygote.train(copy, runs, expect=-9, **fault)
    assert eventually(lambda: run_of(runs).state() == state)
    zygote.train(copy, runs)
    run = run_of(runs)
    assert (run.state(), len(run.attempts())) == ("finished", attempts)
    assert_identical(run, reference)
    assert_identical(RunDirectory(copy.published), reference)
    assert json.loads((copy.metrics / "train.json").read_text())["run"] == run.id
    assert len((copy.plots / "train.csv").read_text().splitlines()) == 16
    assert not list(root.glob(".published*"))


@pytest.mark.parametrize("damage", ["other corpus", "changed byte", "missing"])
def test_corpora_that_are_not_the_blends_stop_the_start(damage, zygote, project, tmp_path):
    """Nothing is moved aside, though `--start-over` would."""
    root, runs, changed = tmp_path / "project", tmp_path / "runs", tmp_path / "changed"
    shutil.copytree(project.root, root)
    copy = Project(root)
    zygote.train(copy, runs)
    before = [(each.path, each.digest) for each in run_of(runs).checkpoints()]
    shutil.copytree(zygote.sources, changed)
    (changed / "trainer/treering_trainer/core/loop.py").open("a").write("ANOTHER = True\n")
    corpus = copy.corpus("letters")
    if damage == "other corpus":
        shutil.rmtree(corpus)
        shutil.copytree(copy.corpus("numbers"), corpus)
    elif damage == "changed byte":
        content = bytearray((corpus / "corpus.bin").read_bytes())
        content[1000] ^= 1
        (corpus / "corpus.bin").write_bytes(content)
    else:
        shutil.rmtree(corpus)
    training = zygote.start(copy, runs, "--start-over", code_root=changed)
    assert training.wait() == (2 if damage == "missing" else 3), training.output
    assert "letters" in training.output
    assert f"`treering {'blend' if damage == 'other corpus' else 'tokenize'} CONFIG`" in training.output
    assert "Traceback" not in training.output
    assert [(each.path, each.digest) for each in run_of(runs).checkpoints()] == before
    assert len(run_of(runs).attempts()) == 1
