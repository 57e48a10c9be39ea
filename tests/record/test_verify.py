"""`treering verify` on the records of another trainer's run: what holds, and every kind of change to its files."""

import json
import shutil

import pytest

from treering.audit.inventory import verify_paths
from treering.project import Project
from treering.record.start import start


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A project with a run of two attempts and two ranks; the first attempt was left after step 4."""
    root = tmp_path_factory.mktemp("recorded")
    for steps, resumed in (((1, 2, 3, 4), None), ((3, 4, 5), 2)):
        options = {"folder": root / "runs", "world_size": 2, "resume_step": resumed}
        ranks = [start("plain", config={"rate": 0.1}, rank=rank, **options) for rank in (0, 1)]
        for step in steps:
            for rank, run in enumerate(ranks):
                run.step(step=step, loss=1 / step, tokens=[[step, rank, 3]])
            if step == 2:
                (root / "weights").mkdir()
                (root / "weights" / "model.bin").write_bytes(b"weights")
                ranks[0].checkpoint(root / "weights")
        for run in reversed(ranks):
            run.interrupt("the node is needed") if resumed is None else run.finish()
    return root


@pytest.fixture
def root(recorded, tmp_path):
    shutil.copytree(recorded, tmp_path / "copy")
    return tmp_path / "copy"


def check(root):
    return verify_paths(Project(root))


def test_a_run_holds(root):
    found = check(root)
    assert [each.kind for each in found.checked] == ["run log"]
    assert found.findings == ()


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("recorded.json", '"plain"', '"other"', "recorded.json"),
        ("attempts/0001/header.json", '"world_size": 2', '"world_size": 3', "0001/header.json"),
        ("attempts/0001/rings.jsonl", '"loss":0.25', '"loss":0.26', "0001/rings.jsonl"),
        ("attempts/0002/ranks/rank-00001.jsonl", '"tokens":3', '"tokens":4', "rank-00001.jsonl"),
        ("attempts/0002/end.json", '"step": 5', '"step": 6', "0002/end.json"),
        ("journal.jsonl", '"rings":4', '"rings":3', "journal.jsonl"),
        ("checkpoints/step-00000002-attempt-0001.json", '"size": 7', '"size": 8', "step-00000002-attempt-0001.json"),
    ],
)
def test_an_edit_is_named_with_its_file(root, file, old, new, named):
    (run,) = (root / "runs").iterdir()
    edit(run / file, old, new)
    found = check(root)
    assert not found.holds
    assert named in found.findings[0].text


def test_rings_that_are_gone_are_missed(root):
    (run,) = (root / "runs").iterdir()
    rings = run / "attempts" / "0001" / "rings.jsonl"
    rings.write_text("".join(rings.read_text().splitlines(keepends=True)[:-1]))
    texts = [each.text for each in check(root).findings]
    assert any("found 3 rings, expected 4 by the journal" in text for text in texts)


def test_a_journal_that_is_gone_leaves_a_note(root):
    (run,) = (root / "runs").iterdir()
    (run / "journal.jsonl").unlink()
    found = check(root)
    assert found.findings == ()
    assert any("attempt 1: no entry of the journal counts its rings" in note for note in found.notes)


def test_an_attempt_in_another_folder_is_named(root):
    (run,) = (root / "runs").iterdir()
    shutil.copytree(run / "attempts" / "0001", run / "attempts" / "0003")
    assert "attempt is 1, expected 3" in check(root).findings[0].text


def test_a_checkpoint_record_names_a_ring_that_is_there(root):
    from treering.runlog.recorded_records import RecordedCheckpoint

    (run,) = (root / "runs").iterdir()
    file = run / "checkpoints" / "step-00000002-attempt-0001.json"
    record, _ = RecordedCheckpoint.read(file)
    record.model_copy(update={"ring": "sha256:" + "0" * 64}).write(file)
    (finding,) = check(root).findings
    assert (finding.kind, finding.step) == ("checkpoint", 2)
    assert "which attempt 1 does not have" in finding.text


def test_files_of_checkpoints_are_checked_where_they_are(root, recorded):
    assert json.loads(next(root.glob("runs/*/checkpoints/*.json")).read_text())["path"] == str(recorded / "weights")
    (recorded / "weights" / "model.bin").write_bytes(b"changed")
    assert "model.bin" in check(root).findings[0].text
    shutil.rmtree(recorded / "weights")
    found = check(root)
    assert (found.findings, len(found.notes)) == ((), 1)
    assert "is not there, so its files were not checked" in found.notes[0]
