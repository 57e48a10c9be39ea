"""Save folders with a history: which checkpoints are on the way to the one that was asked, by hand."""

import argparse
import os
import shutil
from pathlib import Path

import pytest
import yaml

from treering.audit.megatron.run import AuditedRun

DATA = Path(__file__).with_name("megatron_cases") / "args-file-edited" / "data"
OLD, NEW = {"data_path": ["data/wiki"]}, {"data_path": ["data/books"]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(DATA, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(folder, step, time, changes, *, consumed=None, interval=1):
    """A checkpoint after a step of 8 samples, written at a time in minutes; the tracker names the last one written."""
    import torch

    said = {
        "split": "1", "seed": 1234, "seq_length": 16, "micro_batch_size": 1, "global_batch_size": 8,
        "train_samples": 300, "consumed_train_samples": 8 * step if consumed is None else consumed, "load": "ckpt",
        "save": "ckpt", "mid_level_dataset_surplus": 0.005, "dataloader_type": "single", "save_interval": interval,
    }  # fmt: skip
    file = folder / "ckpt" / f"iter_{step:07d}" / "mp_rank_00" / "model_optim_rng.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"args": argparse.Namespace(**(said | changes)), "iteration": step}, file)
    os.utime(file, (60 * time, 60 * time))
    (folder / "ckpt" / "latest_checkpointed_iteration.txt").write_text(str(step))


def opened(path="ckpt", **description):
    if description:
        Path("run.yaml").write_text(yaml.safe_dump({"checkpoint": path, **description}))
        return AuditedRun.open(Path("run.yaml"))
    return AuditedRun.open(Path(path))


def way(run):
    """The stretches, and which data path each step read."""
    report = run.report()
    read = [{sample.corpus.removeprefix("data/") for sample in run.step(step)} for step in range(1, run.iteration + 1)]
    assert all(len(each) == 1 for each in read)
    return [(each.first_step, each.last_step) for each in report.launches], "".join(min(each)[0] for each in read)


def levels(run):
    return "".join(str(run.level(step))[0] for step in range(1, run.iteration + 1))


def abandoned(folder):
    """The run went to step 10, was set back to 6 with other data, and saved 7 and 8 again."""
    for step in range(1, 11):
        saved(folder, step, step, OLD)
    for step in (7, 8):
        saved(folder, step, step + 10, NEW)


def test_checkpoints_of_an_abandoned_branch_are_not_on_the_way(folder):
    abandoned(folder)
    run = opened()
    assert (way(run), levels(run), run.level()) == (([(1, 6), (7, 8)], "wwwwwwbb"), "r" * 8, "re-derived")
    first = opened("ckpt/iter_0000010")
    assert (way(first), levels(first), first.level()) == (([(1, 10)], "w" * 10), "r" * 10, "re-derived")
    (aside,) = [text for text in first.report().not_proven if "not on the way" in text]
    assert "iter_0000007, iter_0000008 are not on the way" in aside
    assert "written after iter_0000010" in aside


def test_a_branch_that_no_time_tells_from_the_way_lowers_the_level_of_its_steps(folder):
    abandoned(folder)
    for file in Path("ckpt").rglob("*.pt"):
        os.utime(file, (60, 60))  # a copy that kept no times
    run = opened("ckpt/iter_0000010")
    (unbound,) = run.unbound
    assert unbound.what == "Whether iter_0000007, iter_0000008 is on the way to iter_0000010"
    assert unbound.steps == (7, 8)
    assert (levels(run), run.level()) == ("rrrrrrddrr", "declared")
    assert (way(opened()), levels(opened())) == (([(1, 6), (7, 8)], "wwwwwwbb"), "r" * 8)


def test_times_that_contradict_the_tracker_lower_the_level(folder):
    abandoned(folder)
    for step, time in ((7, 30), (8, 25)):
        os.utime(f"ckpt/iter_{step:07d}/mp_rank_00/model_optim_rng.pt", (60 * time, 60 * time))
    run = opened("ckpt/iter_0000010")
    (unbound,) = run.unbound
    assert "the newest file is not the checkpoint that the tracker names" in unbound.why
    assert (unbound.steps, levels(run)) == ((1, 8), "d" * 8 + "rr")


def test_another_save_interval_leaves_two_checkpoints_from_which_the_run_may_have_gone_on(folder):
    for step in (2, 4, 6, 8, 10):
        saved(folder, step, step, OLD, interval=2)
    for step in (9, 12):
        saved(folder, step, step + 10, NEW, interval=3)
    run = opened()
    (unbound,) = run.unbound
    assert unbound.steps == (7, 8), "from step 5 on it would have written step 6 again"
    assert "it was resumed after step 6 or later, at most after step 8" in unbound.why
    assert (way(run), levels(run)) == (([(1, 8), (9, 12)], "w" * 8 + "b" * 4), "rrrrrrddrrrr")
    stated = opened(resumed_after=[6])
    assert (way(stated), levels(stated)) == (([(1, 6), (7, 12)], "w" * 6 + "b" * 6), "r" * 12)
    nothing = opened(resumed_after=[5])
    assert nothing.unbound != (), "no reading of the folder"


def test_missing_checkpoints_leave_open_where_the_data_changed(folder):
    saved(folder, 2, 2, OLD, interval=2)
    saved(folder, 10, 10, NEW, interval=2)
    run = opened()
    (unbound,) = run.unbound
    assert unbound.steps == (3, 8)
    assert unbound.what.startswith("The step after which the run took other arguments (data was data/wiki, is data/b")
    assert (way(run), levels(run)) == (([(1, 2), (3, 10)], "ww" + "b" * 8), "rrddddddrr")
    stated = opened(resumed_after=[6])
    assert (way(stated), levels(stated)) == (([(1, 6), (7, 10)], "w" * 6 + "b" * 4), "r" * 10)
    for interval, steps in ((8, "rrddddddrr"), (3, "rrdddddddr"), (10, "r" * 10)):  # removed: 8; 3, 6 and 9; none
        saved(folder, 2, 2, OLD, interval=interval)
        saved(folder, 10, 10, NEW, interval=2)
        assert levels(opened()) == steps


def test_samples_consumed_tell_after_which_step_the_batch_size_changed(folder):
    saved(folder, 2, 2, OLD, interval=2)
    saved(folder, 10, 10, {**OLD, "global_batch_size": 4}, consumed=6 * 8 + 4 * 4, interval=2)
    report = opened().report()
    assert [(each.last_step, each.num_samples) for each in report.launches] == [(6, 48), (10, 16)]
    assert (report.level, report.findings, report.unbound) == ("re-derived", (), ())
    saved(folder, 10, 10, {**OLD, "global_batch_size": 4}, consumed=5 * 8 + 5 * 4, interval=2)
    report = opened().report()
    assert (report.level, len(report.findings)) == ("declared", 1), "step 5 was not saved"
    assert "60 samples consumed" in report.findings[0].text


def test_a_checkpoint_whose_samples_do_not_lead_on_is_set_aside(folder):
    for step in (2, 4, 8):
        saved(folder, step, step, OLD)
    saved(folder, 6, 6, NEW, consumed=30)
    run = opened("ckpt/iter_0000008")
    assert (way(run), levels(run)) == (([(1, 8)], "w" * 8), "r" * 8)
    assert any("iter_0000006 is not on the way" in text for text in run.report().not_proven)


def test_a_run_that_was_set_back_and_changed_nothing_is_one_stretch(folder):
    for step in range(1, 11):
        saved(folder, step, step, OLD)
    for step in (5, 6):
        saved(folder, step, step + 10, OLD)
    run = opened()
    assert (way(run), run.level()) == (([(1, 6)], "w" * 6), "re-derived")


def test_a_description_may_ask_for_a_step_before_the_change(folder):
    abandoned(folder)
    assert way(opened(iteration=6)) == ([(1, 6)], "w" * 6)
    assert way(opened(iteration=7)) == ([(1, 6), (7, 7)], "w" * 6 + "b")
