import pytest

from treering.errors import EvidenceError
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.incidents import Incident, append_incident


@pytest.fixture
def attempt(tmp_path):
    (tmp_path / "0001").mkdir()
    return AttemptDirectory(tmp_path / "0001")


def incident(step):
    return Incident(step=step, kind="checkpoint_failed", text="rank 1: No space left on device", at=12.5)


def test_incidents_are_lines_of_canonical_json(attempt):
    assert attempt.incidents() == []
    append_incident(attempt.path, incident(4))
    append_incident(attempt.path, incident(8))
    first, _second = (attempt.path / "incidents.jsonl").read_text().splitlines()
    assert first == (
        '{"at":12.5,"host":null,"kind":"checkpoint_failed","rank":null,"step":4,'
        '"text":"rank 1: No space left on device"}'
    )
    assert attempt.incidents() == [incident(4), incident(8)]


def test_incidents_from_before_they_named_a_rank_are_read(attempt):
    text = '{"at":12.5,"kind":"checkpoint_failed","step":4,"text":"rank 1: No space left on device"}\n'
    (attempt.path / "incidents.jsonl").write_text(text)
    assert attempt.incidents() == [incident(4)]


def test_a_torn_last_line_is_left_out_and_any_other_is_an_error(attempt):
    append_incident(attempt.path, incident(4))
    with (attempt.path / "incidents.jsonl").open("a") as file:
        file.write('{"at":1')
    assert attempt.incidents() == [incident(4)]
    with (attempt.path / "incidents.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(EvidenceError, match="line 2: not an incident"):
        attempt.incidents()
