"""What is put on record when not all ranks reach the end."""

import os
import signal

import pytest
import run_records
from trained import resolved

from treering.runlog.attempt import AttemptDirectory
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter
from treering_trainer.launch.ending import reason_file, record_failure
from treering_trainer.monitor.heartbeat import Heartbeat, Part
from treering_trainer.monitor.processes import EXIT_CONTACT_LOST, RankEnd, RankFailedError, Ranks, RankStuckError
from treering_trainer.monitor.watchdog import Stuck

pytestmark = pytest.mark.trainer


@pytest.fixture
def attempt(project, tmp_path):
    """An attempt with five rings."""
    path = tmp_path / "0001"
    (path / "logs").mkdir(parents=True)
    with RingWriter(
        path / "rings.jsonl", Ring, run_records.header(resolved(project), 1).write(path / "header.json")
    ) as rings:
        for step in range(1, 6):
            rings.append(**run_records.ring_values(step, (4 * step - 4, 4 * step), 16))
    return AttemptDirectory(path)


def ended(*codes, **values):
    return Ranks(ended=[RankEnd(rank, 100 + rank, code, rank, **values) for rank, code in enumerate(codes)])


def test_a_good_end_is_recorded_by_others(attempt):
    assert record_failure(ended(0, 0), attempt.path) is None
    assert attempt.end is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_who_insists_is_no_incident(attempt, number, code):
    ranks = ended(-9, EXIT_CONTACT_LOST)
    ranks.stop_signal = number
    assert record_failure(ranks, attempt.path) == code
    assert (attempt.end.status, attempt.end.reason, attempt.end.step) == ("interrupted", "ended by a second signal", 5)
    assert attempt.incidents() == []


def test_a_killed_rank_comes_before_those_that_lost_it(attempt):
    ranks = ended(EXIT_CONTACT_LOST, -9, doing="saving the checkpoint of step 5", out_of_memory=True)
    with pytest.raises(RankFailedError, match=r"rank 1 \(process 101\) was killed by SIGKILL while saving") as error:
        record_failure(ranks, attempt.path)
    assert error.value.exit_code == 75
    assert (attempt.end.status, attempt.end.reason) == ("interrupted", str(error.value))
    (incident,) = attempt.incidents()
    assert (incident.kind, incident.rank, incident.step, incident.host) == ("rank_killed", 1, 5, os.uname().nodename)
    assert "perhaps out of memory" in incident.text


def test_a_rank_with_an_error_comes_before_those_that_lost_it_and_is_no_incident(attempt):
    reason_file(attempt.path, 1).write_text("MemoryError: no more")
    with pytest.raises(RankFailedError, match=r"rank 1 .* failed with exit code 1; all ranks .*: MemoryError: no more"):
        record_failure(ended(EXIT_CONTACT_LOST, 1), attempt.path)
    assert attempt.end.status == "failed"
    assert attempt.incidents() == []


def test_contact_that_all_lost_has_an_unknown_cause(attempt):
    reason_file(attempt.path, 0).write_text("rank 0 lost contact while training step 6: Connection reset by peer")
    with pytest.raises(RankFailedError, match="lost contact while training step 6") as error:
        record_failure(ended(EXIT_CONTACT_LOST, EXIT_CONTACT_LOST), attempt.path)
    assert error.value.exit_code == 75
    assert attempt.end.status == "interrupted"
    (incident,) = attempt.incidents()
    assert (incident.kind, incident.rank) == ("contact_lost", 0)
    assert incident.text == "rank 0 lost contact while training step 6: Connection reset by peer"


@pytest.mark.parametrize(("silent", "rank"), [((3,), 3), ((0, 1, 2, 3), None)])
def test_a_stuck_rank_is_named_if_it_is_one(attempt, silent, rank):
    ranks = Ranks(stuck=Stuck(silent, 600.0, Heartbeat(70, Part.TRAIN, 6), ""))
    with pytest.raises(RankStuckError, match="given no sign for 600 s while training step 6") as error:
        record_failure(ranks, attempt.path)
    assert error.value.exit_code == 75
    assert attempt.end.status == "interrupted"
    (incident,) = attempt.incidents()
    assert (incident.kind, incident.rank) == ("rank_stuck", rank)


def test_what_came_before_an_attempt_is_only_said(tmp_path):
    with pytest.raises(RankFailedError, match=r"rank 0 .* was killed by SIGKILL; all ranks were ended$"):
        record_failure(ended(-9), tmp_path / "attempts" / "0000")
    assert list(tmp_path.iterdir()) == []
