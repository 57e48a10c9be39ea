"""Restarts of recorded runs: a loader that did not resume is named with its step, an honest restart is not accused."""

import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
import reporting_trainer

from treering.audit.recorded.content import Content
from treering.audit.recorded.difference import compare_recorded
from treering.audit.recorded.feed import Feeds
from treering.audit.recorded.report import audit_recorded
from treering.audit.report import Level
from treering.errors import EvidenceError
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory

FORK = multiprocessing.get_context("fork")


def attempt(folder, **settings):
    """Trains in a process of its own, which the settings may kill; returns it."""

    def run():
        os.chdir(folder)
        reporting_trainer.main({"steps": 24, "samples": 1000, **settings})

    process = FORK.Process(target=run)
    process.start()
    return process


def train(folder, **settings):
    """Trains until the trainer has finished: a second time if it was killed. Returns the run."""
    for _ in range(2):
        process = attempt(folder, **settings)
        process.join()
        if process.exitcode == 0:
            (path,) = (folder / "runs").iterdir()
            return RecordedRunDirectory(path)
        assert process.exitcode == -signal.SIGKILL
    raise AssertionError(process.exitcode)


def audit(folder, **settings):
    return audit_recorded(train(folder, **settings))


def test_an_unbroken_run_is_recorded_and_not_accused(tmp_path):
    found = audit(tmp_path, steps=30, samples=40)  # three epochs
    assert found.level is Level.RECORDED
    assert (found.holds, found.steps, found.samples, found.different_samples) == (True, 30, 120, 40)
    assert found.restarts == ()


def test_an_audit_reads_every_ring_once_however_often_it_is_needed(tmp_path, monkeypatch):
    run = train(tmp_path, die_at=17)
    opened = Counter()
    rings = RecordedAttempt.rings

    def counted(attempt, rank=0):
        opened[attempt.number, rank] += 1
        return rings(attempt, rank)

    monkeypatch.setattr(RecordedAttempt, "rings", counted)
    seen = []

    def content(segments, by_segment):
        seen.extend(
            (segment.last_step, [each.step for each in feeds])
            for segment, feeds in zip(segments, by_segment, strict=True)
        )
        return Content(24, (), "an order")

    found = audit_recorded(run, content=content)
    assert opened == {(1, 0): 1, (2, 0): 1}
    assert seen == [(10, list(range(1, 11))), (None, list(range(11, 25)))]
    assert found.restarts[0].compared_steps == 7, "of the steps behind the segment's end"


def test_a_ring_behind_the_end_of_the_path_is_read_only_where_it_counts(tmp_path):
    run = train(tmp_path, die_at=17)
    first, second = run.attempts()
    file = first.rings_file
    file.write_text(file.read_text().replace('"step":15,', '"step":16,', 1))
    feeds = Feeds()
    assert [feed.step for feed in feeds.of(first, 10)] == list(range(1, 11))
    with pytest.raises(EvidenceError, match="line 15: "):
        feeds.abandoned([first, second], second)


def test_a_restart_that_fed_the_same_samples_is_proven(tmp_path):
    found = audit(tmp_path, die_at=17)
    (restart,) = found.restarts
    assert (restart.state, restart.after_step, restart.compared_steps) == ("same samples", 10, 7)
    assert found.holds
    assert (found.steps, found.samples, found.different_samples) == (24, 96, 96)


def test_a_loader_that_started_over_is_named_with_its_step(tmp_path):
    found = audit(tmp_path, die_at=17, fault="restart")
    (restart,) = found.restarts
    assert (restart.state, restart.first_difference, restart.repeats_step) == ("other samples", 11, 1)
    assert (restart.repeated_samples, restart.skipped_samples) == (28, 28)
    (finding,) = found.findings
    assert (finding.kind, finding.step) == ("batch", 11)
    assert "step 11 was fed other samples than in the attempt before; it was fed the samples of step 1 again" in (
        finding.text
    )
    assert not found.holds
    assert found.level is Level.DECLARED


def test_a_loader_that_started_over_is_named_without_abandoned_steps(tmp_path):
    found = audit(tmp_path, die_at=10, fault="restart")
    (restart,) = found.restarts
    assert (restart.state, restart.fault, restart.repeats_step) == ("samples repeated", True, 1)
    assert restart.repeated_samples == 4
    assert found.findings[0].step == 11


def test_a_loader_that_skipped_a_batch_is_named(tmp_path):
    (restart,) = audit(tmp_path, die_at=17, fault="skip").restarts
    assert (restart.state, restart.first_difference, restart.fault) == ("other samples", 11, True)
    assert (restart.repeated_samples, restart.skipped_samples) == (0, 4)


@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_are_no_fault_of_a_restart(tmp_path, shuffle):
    # Two epochs of 10 steps, and a restart in the third one without abandoned steps.
    honest = audit(tmp_path, steps=32, samples=40, every=12, die_at=24, shuffle=shuffle)
    assert [(each.state, each.fault) for each in honest.restarts] == [("samples repeated", False)]
    assert honest.holds
    (tmp_path / "faulty").mkdir()
    faulty = audit(tmp_path / "faulty", steps=32, samples=40, every=12, die_at=24, shuffle=shuffle, fault="restart")
    assert [(each.state, each.fault) for each in faulty.restarts] == [("samples repeated", True)]


def test_the_first_epochs_end_is_known_by_the_metric_epoch(tmp_path):
    assert audit(tmp_path, samples=40, die_at=10, epoch=True).holds
    (tmp_path / "unknown").mkdir()
    found = audit(tmp_path / "unknown", samples=40, die_at=10)
    assert "The metric `epoch` tells these apart" in found.findings[0].text


def test_ranks_that_were_killed_at_different_steps_are_compared_where_both_reported(tmp_path):
    for deaths in ((17, 14), (0, 0)):
        shared = {"world_size": 2, "together": FORK.Barrier(2)}
        ranks = [attempt(tmp_path, rank=rank, die_at=die_at, **shared) for rank, die_at in enumerate(deaths)]
        for process in ranks:
            process.join()
        assert [process.exitcode for process in ranks] == [-9 if deaths[0] else 0] * 2
    (path,) = (tmp_path / "runs").iterdir()
    found = audit_recorded(RecordedRunDirectory(path))
    assert [(each.state, each.compared_steps) for each in found.restarts] == [("same samples", 4)]
    assert found.holds
    assert found.samples == 24 * 8


def test_what_the_journal_knows_cannot_be_cut_off(tmp_path):
    run = train(tmp_path)
    file = run.attempts()[0].rings_file
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))
    found = audit_recorded(run)
    assert "found 22 rings, expected 24 by the journal" in found.findings[0].text


def test_a_checkpoint_is_audited_at_its_step_and_its_files_are_checked(tmp_path):
    run = train(tmp_path)
    checkpoint = run.checkpoints()[0]
    found = audit_recorded(run, checkpoint)
    assert (found.step, found.steps, found.holds) == (10, 10, True)
    weights = Path(checkpoint.path) / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert "weights.bin: digest sha256:" in audit_recorded(run, checkpoint).findings[0].text
    weights.write_bytes(b"short")
    assert "weights.bin: 5 bytes, expected 64" in audit_recorded(run, checkpoint).findings[0].text
    weights.unlink()
    assert "missing" in audit_recorded(run, checkpoint).findings[0].text


def test_a_run_without_tokens_is_declared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from treering.record.start import start

    with start("plain") as run:
        run.step(loss=1.0)
    found = audit_recorded(RecordedRunDirectory(run.path))
    assert (found.level, found.holds, found.steps_without_samples) == (Level.DECLARED, True, 1)


def test_the_first_step_with_other_samples_is_named(tmp_path):
    (tmp_path / "other").mkdir()
    one = train(tmp_path, die_at=17, fault="restart")
    other = train(tmp_path / "other")
    found = compare_recorded(one, other)
    assert (found.compared_steps, found.first_difference, found.different_steps) == (24, 11, 14)
    assert found.config == {}
    same = compare_recorded(other, other)
    assert (same.first_difference, same.text) == (
        None,
        "Both runs were fed the same samples in all 24 steps that both report. "
        "The samples are those of 1 rank in both.",
    )  # fmt: skip


def ranked(folder, monkeypatch, reporting):
    """A run of two ranks; as many of them report their samples."""
    from treering.record.start import start

    folder.mkdir()
    monkeypatch.chdir(folder)
    ranks = [start("ranks", rank=rank, world_size=2) for rank in range(reporting)]
    for step in range(3):
        for rank, run in enumerate(ranks):
            run.step(tokens=[[step, rank]])
    for run in ranks[::-1]:
        run.finish()
    return RecordedRunDirectory(ranks[0].path)


def test_audit_and_difference_say_whose_samples_they_have(tmp_path, monkeypatch):
    whole, part = ranked(tmp_path / "whole", monkeypatch, 2), ranked(tmp_path / "part", monkeypatch, 1)
    assert (audit_recorded(whole).ranks, audit_recorded(whole).samples) == ("all 2 ranks", 6)
    assert (audit_recorded(part).ranks, audit_recorded(part).samples) == ("1 of 2 ranks", 3)
    found = compare_recorded(whole, part)
    assert (found.ranks, found.other_ranks) == ("all 2 ranks", "1 of 2 ranks")
    assert found.text == (
        "Step 1 is the first that was fed different samples, of 3 that both runs report; 3 differ. The samples are "
        "those of all 2 ranks, against 1 of 2 ranks. The samples of missing ranks were not compared; "
        "`treering audit RUN` names these ranks."
    )
