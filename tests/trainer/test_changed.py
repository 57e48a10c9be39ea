"""What a start does where code or layout changed since the last attempt, or where the user starts over."""

import shutil

import pytest
import torch
from trained import assert_identical, run_of

from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing import checkpoint
from treering_trainer.checkpointing.weights import read_weights

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


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
    assert run_of(tmp_path).path == run.path, "the run's id does not depend on the code"
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
