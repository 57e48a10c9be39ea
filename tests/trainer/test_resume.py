"""Killed at any moment, a run goes on and ends as if nothing had happened: same samples, same losses, same weights."""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import psutil
import pytest
import torch
from trained import assert_identical, eventually, run_of

from treering.audit.checkpoint import audit_checkpoint
from treering.metrics.run_summary import run_page
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing import checkpoint
from treering_trainer.checkpointing.weights import read_weights

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def rings_after(run, step):
    return any(ring.step >= step for attempt in run.attempts() for ring in attempt.rings())


@pytest.mark.parametrize(
    "case",
    [
        ({"kill_after_ring": {"step": 2}}, None),
        ({"kill_after_ring": {"step": 4}}, None),  # the ring is laid, its checkpoint is not yet written
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
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 2), 30)
    ranks = psutil.Process(training.pid).children()
    assert len(ranks) == 2
    os.kill(training.pid, signal.SIGKILL)
    assert training.wait() == -signal.SIGKILL
    # They would train for seconds yet.
    assert eventually(lambda: run_of(tmp_path).state() == "broken", 4.0)
    assert not [rank for rank in ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]
    zygote.train(project, tmp_path)
    assert_identical(run_of(tmp_path), reference)


def test_second_signal_ends_at_once(zygote, project, tmp_path):
    training = zygote.start(project, tmp_path, slow={"seconds": 60})
    assert eventually(lambda: list(tmp_path.glob("*/attempts/0001/rings.jsonl")), 30)
    os.kill(training.pid, signal.SIGTERM)
    time.sleep(0.5)
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait() == 75, training.output
    assert run_of(tmp_path).state() == "interrupted"


def test_pipeline_resumes_too(zygote, project, tmp_path):
    zygote.train(project, tmp_path / "whole", "--set=parallel.pipeline=2")
    zygote.train(project, tmp_path / "cut", "--set=parallel.pipeline=2", expect=-9, kill_after_ring={"step": 10})
    zygote.train(project, tmp_path / "cut", "--set=parallel.pipeline=2")
    assert_identical(run_of(tmp_path / "cut"), run_of(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("ignored", "number", "code"),
    [((signal.SIGINT,), signal.SIGTERM, 75), ((), signal.SIGUSR1, 75), ((), signal.SIGINT, 130)],
    ids=["SIGTERM in a background job", "SIGUSR1", "SIGINT"],
)
def test_stops_with_a_checkpoint(  # noqa: PLR0917 - three of them are the case
    ignored, number, code, zygote, project, reference, tmp_path
):
    training = zygote.start(
        project, tmp_path, "--set=checkpoint.every_steps=1000", ignored=ignored, slow={"seconds": 0.1}
    )
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 5), 30)
    for each in ignored:
        training.kill(each)
        assert eventually(lambda: rings_after(run_of(tmp_path), 7), 30), "what was ignored stays ignored"
    training.kill(number)
    assert training.wait() == code, training.output
    run = run_of(tmp_path)
    assert run.state() == "interrupted"
    stopped = run.attempts()[0].end
    assert (stopped.reason, stopped.step) == (
        "asked to stop by a signal",
        [ring.step for ring in run.attempts()[0].rings()][-1],
    )
    (unscheduled,) = run.checkpoints()
    assert unscheduled.step == stopped.step
    assert audit_checkpoint(unscheduled, project, verify=True).findings == ()
    zygote.train(project, tmp_path)
    assert run_of(tmp_path).attempts()[1].header.parent.step == stopped.step
    assert [each.step for each in run.checkpoints()] == sorted(
        {stopped.step, *(step for step in (8, 12, 15) if step > stopped.step)}
    )
    assert_identical(run_of(tmp_path), reference)


def test_a_warning_is_no_second_signal(zygote, project, tmp_path):
    """Slurm sends SIGUSR1, then SIGTERM: the second one must not take the checkpoint away."""
    training = zygote.start(project, tmp_path, "--set=checkpoint.every_steps=1000", slow={"seconds": 0.5})
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 1), 30)
    os.kill(training.pid, signal.SIGUSR1)
    time.sleep(0.1)
    os.kill(training.pid, signal.SIGTERM)
    assert training.wait() == 75, training.output
    assert len(run_of(tmp_path).checkpoints()) == 1


def test_time_limit_stops_with_a_checkpoint(zygote, project, reference, tmp_path):
    options = ("--set=checkpoint.every_steps=1000", "--time-limit=0m3s")
    zygote.train(project, tmp_path, *options, expect=75, slow={"seconds": 0.4})
    run = run_of(tmp_path)
    end = run.attempts()[0].end
    assert (end.status, end.reason) == ("interrupted", "the time limit is over")
    assert [each.step for each in run.checkpoints()] == [end.step] * (end.step > 0)
    zygote.train(project, tmp_path, "--time-limit=1h")
    assert_identical(run_of(tmp_path), reference)


def test_time_limit_must_be_a_time(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--time-limit=soon", expect=2)
    assert "'soon' is no span of time" in printed


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
    """A file system of its own, its size in KiB to be set."""
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
        pytest.skip("mounting a file system needs rights that this user has not; the test of file limits stands in")
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
    assert eventually(lambda: list(tmp_path.glob("*/resolved.json")) and rings_after(run_of(tmp_path), 4), 60)
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


def test_damaged_checkpoint_is_passed_over(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 10})
    newest = run_of(tmp_path).checkpoints()[-1]
    assert newest.step == 8
    damaged = next(newest.path.rglob("*optim_states.pt"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    printed = zygote.train(project, tmp_path)
    assert "passed over checkpoint step-00000008" in printed
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


def test_a_checkpoint_that_its_rings_do_not_lead_to_is_passed_over(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 10})
    rings = run_of(tmp_path).attempts()[0].rings_file
    lines = rings.read_text().splitlines(keepends=True)
    lines[5] = lines[5].replace('"applied":true', '"applied":false')
    rings.write_text("".join(lines))
    printed = zygote.train(project, tmp_path)
    assert "passed over checkpoint step-00000008" in printed
    assert "ring of step 6" in printed
    assert run_of(tmp_path).attempts()[-1].header.parent.step == 4
    assert_identical(run_of(tmp_path), reference)


def test_a_finished_run_whose_last_checkpoint_is_damaged_goes_on(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, "--no-publish")
    final = run_of(tmp_path).checkpoints()[-1]
    next(final.path.rglob("layer_00*")).write_bytes(b"")
    printed = zygote.train(project, tmp_path, "--no-publish")
    assert "passed over checkpoint step-00000015" in printed
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


def test_runs_that_cannot_be_written(zygote, project, tmp_path):
    (tmp_path / "runs").write_text("a file")
    printed = zygote.train(project, tmp_path / "runs", expect=5)
    assert "training cannot read or write" in printed
    assert "Traceback" not in printed


def test_changed_code_starts_over(zygote, project, reference, tmp_path):
    runs, changed = tmp_path / "runs", tmp_path / "changed"
    zygote.train(project, runs, expect=-9, kill_after_ring={"step": 10})
    before = run_of(runs).checkpoints()[-1]
    weights = read_weights(before.path)
    shutil.copytree(zygote.sources, changed)
    (changed / "trainer/treering_trainer/core/loop.py").open("a").write("ANOTHER = True\n")
    training = zygote.start(project, runs, code_root=changed)
    assert training.wait() == 0, training.output
    assert "changed since attempt 1: code (trainer/treering_trainer/core/loop.py)" in training.output
    run = run_of(runs)
    header = run.attempts()[-1].header
    assert (header.origin, header.parent) == ("restart", None)
    assert header.code["digest"] != run.attempts()[0].header.code["digest"]
    assert_identical(run, reference)
    # The old checkpoint is still whole, and still says which attempt made it.
    aside = checkpoint.CheckpointDirectory(run.path / "superseded-0001" / "step-00000008")
    assert checkpoint.verify(aside).attempt == 1
    assert [ring.step for ring in run.path_rings(aside)] == list(range(1, 9))
    assert all(torch.equal(weights[name], tensor) for name, tensor in read_weights(aside.path).items())


def test_a_finished_run_stays_finished_until_it_is_started_over(zygote, project, reference, tmp_path):
    root, runs, changed = tmp_path / "project", tmp_path / "runs", tmp_path / "changed"
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("published", "metrics", "plots"))
    copy = Project(root)
    zygote.train(copy, runs, "--no-publish")
    run = run_of(runs)
    digests = [each.digest for each in run.checkpoints()]
    shutil.copytree(zygote.sources, changed)
    (changed / "trainer/treering_trainer/core/optim.py").open("a").write("ANOTHER = True\n")

    def again(*options, expect=0):
        training = zygote.start(copy, runs, *options, code_root=changed)
        assert training.wait() == expect, training.output
        return training.output

    printed = again()
    assert "finished at step 15; nothing to train" in printed
    assert "changed since: code (trainer/treering_trainer/core/optim.py); `--start-over` trains" in printed
    assert "nothing to train" in again("--continue-changed")
    assert "layout (1x1x2 to 1x1x1" in again("--set=parallel.data=1")
    assert ([each.digest for each in run.checkpoints()], len(run.attempts())) == (digests, 1)
    assert list(run.path.glob("superseded-*")) == []
    assert RunDirectory(copy.published).checkpoints()[-1].digest == digests[-1]  # published all the same

    printed = again("--start-over")
    assert "attempt 2 starts from nothing again" in printed
    assert [(each.header.origin, each.header.changed) for each in run.attempts()][1:] == [
        ("restart", ("code (trainer/treering_trainer/core/optim.py)",))
    ]
    assert [each.manifest.attempt for each in run.checkpoints()] == [2, 2, 2, 2]
    assert len(list(run.path.glob("superseded-0001/step-*"))) == 4
    assert_identical(run, reference)


def test_an_unfinished_run_can_be_started_over_with_nothing_changed(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 10})
    assert "attempt 2 starts from nothing again" in zygote.train(project, tmp_path, "--start-over")
    run = run_of(tmp_path)
    assert (run.attempts()[-1].header.origin, run.attempts()[-1].header.changed) == ("restart", ())
    assert_identical(run, reference)


@pytest.mark.parametrize("damage", ["weights", "folder"])
def test_a_damaged_end_of_a_finished_run_waits_for_a_word_where_code_changed(damage, zygote, project, tmp_path):
    runs, changed = tmp_path / "runs", tmp_path / "changed"
    zygote.train(project, runs, "--no-publish")
    run = run_of(runs)
    final = run.checkpoints()[-1]
    if damage == "weights":
        next(final.path.rglob("layer_00*")).write_bytes(b"")
    else:
        shutil.rmtree(final.path)
    shutil.copytree(zygote.sources, changed)
    (changed / "trainer/treering_trainer/core/optim.py").open("a").write("ANOTHER = True\n")
    training = zygote.start(project, runs, "--no-publish", code_root=changed)
    assert training.wait() == 3
    assert "the run is finished, and its checkpoint of step 15 does not hold" in training.output
    assert "`--continue-changed` trains the missing steps again" in training.output
    assert (len(run.attempts()), list(run.path.glob("superseded-*"))) == (1, [])
    training = zygote.start(project, runs, "--no-publish", "--continue-changed", code_root=changed)
    assert training.wait() == 0, training.output
    assert (run.attempts()[-1].header.parent.step, run.state()) == (12, "finished")


def test_continue_changed_is_on_record(zygote, project, reference, tmp_path):
    runs, changed = tmp_path / "runs", tmp_path / "changed"
    zygote.train(project, runs, expect=-9, kill_after_ring={"step": 10})
    shutil.copytree(zygote.sources, changed)
    (changed / "trainer/treering_trainer/core/loop.py").open("a").write("ANOTHER = True\n")
    training = zygote.start(project, runs, "--continue-changed", code_root=changed)
    assert training.wait() == 0, training.output
    header = run_of(runs).attempts()[-1].header
    assert (header.origin, header.parent.step, header.continue_changed) == ("resume", 8, True)
    assert header.changed == ("code (trainer/treering_trainer/core/loop.py)",)
    assert_identical(run_of(runs), reference)


def test_a_comment_resumes(zygote, project, reference, tmp_path):
    runs, changed = tmp_path / "runs", tmp_path / "changed"
    zygote.train(project, runs, expect=-9, kill_after_ring={"step": 10})
    shutil.copytree(zygote.sources, changed)
    path = changed / "trainer/treering_trainer/core/loop.py"
    path.write_text("# another comment\n\n" + path.read_text())
    (changed / "trainer/treering_trainer/monitor/hooks.py").open("a").write("ANOTHER = True\n")
    training = zygote.start(project, runs, code_root=changed)
    assert training.wait() == 0, training.output
    assert "changed since" not in training.output
    headers = [attempt.header for attempt in run_of(runs).attempts()]
    assert (headers[1].origin, headers[1].parent.step, headers[1].changed) == ("resume", 8, ())
    assert headers[0].code["rule"] == headers[1].code["rule"] == "syntax-1"
    assert headers[0].code["digest"] == headers[1].code["digest"]
    assert_identical(run_of(runs), reference)


@pytest.mark.parametrize(("options", "expected"), [((), ("restart", 1)), (("--continue-changed",), ("resume", 9))])
def test_an_earlier_rule_of_the_code_digest_counts_as_changed_code(options, expected, zygote, project, tmp_path):
    zygote.train(project, tmp_path, expect=-9, kill_after_ring={"step": 10}, record_code_by_an_earlier_rule={})
    run = run_of(tmp_path)
    printed = zygote.train(project, tmp_path, *options)
    text = "code (recorded by an earlier rule of the code digest; whether the code is the same cannot be said)"
    assert f"changed since attempt 1: {text}" in printed
    assert run_of(tmp_path).path == run.path, "the code is no part of the run's id"
    header = run.attempts()[-1].header
    assert (header.changed, header.code["rule"], run.state()) == ((text,), "syntax-1", "finished")
    assert (header.origin, next(run.attempts()[-1].rings()).step) == expected


def test_changed_layout_starts_over(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, "--set=parallel.data=1", expect=-9, kill_after_ring={"step": 10})
    printed = zygote.train(project, tmp_path)
    assert "layout (1x1x1 to 1x1x2" in printed
    assert_identical(run_of(tmp_path), reference)


def test_another_blend_is_another_run(zygote, project, tmp_path):
    """A changed recipe never resumes the old recipe's checkpoint."""
    zygote.train(project, tmp_path, "--set=seed=7")
    zygote.train(project, tmp_path, "--set=seed=8")
    runs = [RunDirectory(path.parent) for path in tmp_path.glob("*/resolved.json")]
    assert len(runs) == 2
    assert all(run.attempts()[0].header.parent is None for run in runs)


def test_not_finite_stops_the_run(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--set=optimizer.peak_learning_rate=1e30", expect=5)
    assert "expected finite numbers; the ring is laid" in printed
    (attempt,) = run_of(tmp_path).attempts()
    last = list(attempt.rings())[-1]
    assert not last.applied
    assert last.grad_norm == float("inf") or last.loss != last.loss
    assert attempt.end.status == "failed"


def test_ranks_must_be_fed_the_same(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, "--set=parallel.pipeline=2", expect=3, feed_another={"rank": 1})
    assert "first and last stage must read the same batch" in printed
    assert [ring.step for ring in run_of(tmp_path).attempts()[0].rings()] == [1]


def test_no_ring_no_next_step(zygote, project, tmp_path):
    printed = zygote.train(project, tmp_path, expect=5, full_disk={"step": 6})
    assert "No space left on device" in printed
    run = run_of(tmp_path)
    assert [ring.step for ring in run.attempts()[0].rings()] == [1, 2, 3, 4, 5]
    assert run.state() == "failed"
    printed = zygote.train(project, tmp_path, expect=5, full_disk={"step": 6, "reason": False})
    assert "rank 0: OSError: [Errno 28] No space left on device" in printed
