"""Checkpoints that cannot be saved, that are finished beside training, and that rules keep or remove."""

import signal
import subprocess

import pytest
import torch
from trained import assert_identical, eventually, rings_after, run_of

from treering.audit.checkpoint import audit_checkpoint
from treering.metrics.run_summary import run_page
from treering_trainer.checkpointing import checkpoint
from treering_trainer.checkpointing.weights import read_weights

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_save_stops_nobody(rank, zygote, project, reference, tmp_path):
    printed = zygote.train(project, tmp_path, limit_files={"rank": rank, "step": 8})
    run = run_of(tmp_path)
    (incident,) = run.attempts()[0].incidents()
    assert (incident.step, incident.kind) == (8, "checkpoint_failed")
    assert incident.text.startswith(f"rank {rank}: ")
    assert run_page(run)["attempts"][0]["incidents"] == [{**incident.model_dump(), "title": incident.title}]
    assert f"step 8  no checkpoint, training goes on: {incident.text}" in printed
    assert sorted(each.name for each in (run.path / "checkpoints").iterdir()) == [
        f"step-{step:08d}" for step in (4, 12, 15)
    ]
    assert_identical(run, reference)


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a small file system; the fixture is a function that sets its size in KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def size(kibibytes):
        options = f"{'remount,' if mounted else ''}size={kibibytes}k"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, capture_output=True)
        mounted.append(folder)
        return folder

    try:
        size(64)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("this user may not mount a file system; the test with file limits covers the same code")
    yield size
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_keeps_training_and_the_earlier_checkpoint(small_disk, zygote, project, reference):
    one = sum(file.stat().st_size for file in reference.checkpoints()[0].path.rglob("*") if file.is_file())
    disk = small_disk(one * 5 // 2 // 1024)
    printed = zygote.train(project, disk, expect=5)
    run = run_of(disk)
    assert [ring.step for ring in run.path_rings()] == list(range(1, 16))
    assert [each.step for each in run.checkpoints()] == [4, 8]
    for each in run.checkpoints():
        checkpoint.verify(each)
    assert [incident.step for incident in run.attempts()[0].incidents()] == [12, 15]
    assert "0 bytes were free in " in run.attempts()[0].incidents()[0].text
    assert run.attempts()[0].end.status == "failed"
    assert "the last step's checkpoint could not be saved: rank" in printed
    small_disk(one * 5 // 1024)
    zygote.train(project, disk)
    assert run_of(disk).attempts()[1].header.parent.step == 8
    assert_identical(run_of(disk), reference)


def test_old_checkpoints_are_removed_by_rule(zygote, project, reference, tmp_path):
    rules = ("--set=checkpoint.keep_last=1", "--set=checkpoint.keep_every=8")
    zygote.train(project, tmp_path, *rules, expect=-signal.SIGKILL, kill_in_removal={})
    run = run_of(tmp_path)
    assert [each.step for each in run.checkpoints()] == [8]
    assert (run.path / "checkpoints" / ".removing-step-00000004").exists()
    zygote.train(project, tmp_path, *rules)
    assert run_of(tmp_path).attempts()[1].header.parent.step == 8
    assert sorted(each.name for each in (run.path / "checkpoints").iterdir()) == ["step-00000008", "step-00000015"]
    assert_identical(run_of(tmp_path), reference)
    # The removed checkpoint that an attempt went on from is not needed for the proof.
    zygote.train(project, tmp_path / "again", *rules[:1], expect=-signal.SIGKILL, kill_after_ring={"step": 10})
    zygote.train(project, tmp_path / "again", *rules[:1])
    (last,) = run_of(tmp_path / "again").checkpoints()
    assert audit_checkpoint(last, project, verify=True).findings == ()


BESIDE = "--set=checkpoint.finish=beside_training"


def test_a_checkpoint_that_is_finished_beside_training(zygote, project, reference, tmp_path):
    """It is sealed some steps later, each as it was when its step was done, and none is missing in the end."""
    zygote.train(project, tmp_path, BESIDE, "--set=checkpoint.every_steps=4", slow_digest={"seconds": 0.2})
    run = run_of(tmp_path)
    assert [each.step for each in run.checkpoints()] == [4, 8, 12, 15]
    assert not list((run.path / "checkpoints").glob(".*"))
    for ours, theirs in zip(run.checkpoints(), reference.checkpoints(), strict=True):
        assert audit_checkpoint(ours, project, verify=True).findings == ()
        left, right = (read_weights(each.path) for each in (ours, theirs))
        assert all(torch.equal(left[name], right[name]) for name in right)
        assert ours.manifest.applied_steps == theirs.manifest.applied_steps
    assert_identical(run, reference)


def test_a_kill_beside_training_goes_back_to_the_checkpoint_before(zygote, project, reference, tmp_path):
    zygote.train(
        project,
        tmp_path,
        BESIDE,
        expect=-signal.SIGKILL,
        kill_after_ring={"step": 10},
        slow_digest={"seconds": 60, "after": 4},
    )
    run = run_of(tmp_path)
    assert [each.name for each in (run.path / "checkpoints").glob(".*")] == [".saving-step-00000008"]
    zygote.train(project, tmp_path, BESIDE)
    assert run_of(tmp_path).attempts()[1].header.parent.step == 4
    assert_identical(run_of(tmp_path), reference)


def test_a_rank_that_cannot_finish_beside_training_stops_nobody(zygote, project, reference, tmp_path):
    printed = zygote.train(project, tmp_path, BESIDE, fail_digest={"rank": 1, "step": 8})
    run = run_of(tmp_path)
    (incident,) = run.attempts()[0].incidents()
    assert (incident.step, incident.kind) == (8, "checkpoint_failed")
    assert incident.text == "rank 1: [Errno 5] Input/output error"
    assert "step 8  no checkpoint, training goes on: rank 1" in printed
    assert sorted(each.name for each in (run.path / "checkpoints").iterdir()) == [
        f"step-{step:08d}" for step in (4, 12, 15)
    ]
    assert_identical(run, reference)


def test_a_stop_waits_for_the_checkpoint_beside_training(zygote, project, tmp_path):
    options = (BESIDE, "--set=checkpoint.every_steps=3")
    training = zygote.start(project, tmp_path, *options, slow={"seconds": 0.3}, slow_digest={"seconds": 0.4})
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 4))
    training.kill(signal.SIGTERM)
    assert training.wait() == 75, training.output
    run = run_of(tmp_path)
    last = run.attempts()[0].end.step
    assert [each.step for each in run.checkpoints()] == sorted({*range(3, last + 1, 3), last})
    assert not list((run.path / "checkpoints").glob(".*"))


def test_the_best_checkpoint_stays(zygote, project, tmp_path):
    """Its held-out loss is the newest one measured at or before its step, before a kill or after."""
    options = (
        "--set=checkpoint.every_steps=2",
        "--set=checkpoint.keep_last=1",
        "--set=checkpoint.keep_every=4",
        "--set=checkpoint.keep_best=true",
        "--set=optimizer.peak_learning_rate=1.0",  # so that the loss rises after step 1
    )
    zygote.train(project, tmp_path, *options, expect=-9, kill_after_ring={"step": 7})
    zygote.train(project, tmp_path, *options)
    run = run_of(tmp_path)
    assert run.attempts()[1].header.parent.step == 6
    measured = {ring.step: ring.validation_loss for ring in run.path_rings() if ring.validation}
    assert sorted(measured) == [1, 5, 10, 15]
    newest = {step: max(at for at in measured if at <= step) for step in (*range(2, 15, 2), 15)}
    best = min(newest, key=lambda step: (measured[newest[step]], step))
    assert best not in {4, 8, 12, 15}
    assert [each.step for each in run.checkpoints()] == sorted({best, 4, 8, 12, 15})
    for each in run.checkpoints():
        assert each.manifest.validation_loss == measured[newest[each.step]]
        assert audit_checkpoint(each, project, verify=True).findings == ()
