"""An error about evidence carries its place, what was found, what was expected and what helps, as fields."""

import pickle
from pathlib import Path

import pytest
import run_records

from treering.audit.report import Finding, Gap, Level
from treering.errors import EvidenceError
from treering.runlog.document import read_document, write_document
from treering.runlog.journal import CheckpointRemoved, Journal
from treering.runlog.ring import Ring
from treering.runlog.ring_log import RingLog
from treering.runlog.writer import RingWriter

RECIPE = "sha256:" + "0" * 64
FILE = Path("runs/a/header.json")


def test_the_fields_are_kept_where_an_error_crosses_processes():
    error = EvidenceError("the ring was changed", file=FILE, line=3, step=7, found=1, expected=2, remedy="dvc checkout")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - bytes of this test
    fields = ("file", "line", "step", "found", "expected", "remedy")
    assert [getattr(again, name) for name in fields] == [FILE, 3, 7, 1, 2, "dvc checkout"]
    assert str(again) == "the ring was changed"


def test_a_changed_document_names_its_file_and_both_digests(tmp_path):
    path = tmp_path / "end.json"
    digest = write_document(path, {"step": 5})
    path.write_text(path.read_text().replace('"step": 5', '"step": 6'))
    with pytest.raises(EvidenceError, match="the file was changed") as caught:
        read_document(path)
    assert (caught.value.file, caught.value.found) == (path, digest)
    assert caught.value.expected.startswith("sha256:")
    assert Finding.from_error(caught.value, "record") == Finding("record", str(caught.value), file=str(path))


def test_a_changed_ring_names_line_and_step(tmp_path):
    with RingWriter(tmp_path / "rings.jsonl", Ring, RECIPE) as writer:
        for step in (1, 2, 3):
            writer.append(**run_records.ring_values(step, ((step - 1) * 4, step * 4), 32))
    path = tmp_path / "rings.jsonl"
    path.write_text(path.read_text().replace('"step":3,', '"step":9,', 1))
    with pytest.raises(EvidenceError, match="line 3: ring of step 9") as caught:
        list(RingLog(path, Ring).rings(RECIPE))
    error = caught.value
    assert (error.file, error.line, error.step) == (path, 3, 3)
    assert Finding.from_error(error, "ring") == Finding("ring", str(error), file=str(path), line=3, step=3)


def test_a_changed_entry_names_its_line_and_what_helps(tmp_path):
    journal = Journal.of(tmp_path, RECIPE)
    for step in (1, 2):
        journal.append(CheckpointRemoved(at=1.0, step=step, checkpoint=None, reason="no rule keeps it"))
    journal.path.write_text(journal.path.read_text().replace('"step":2', '"step":4'))
    for read in (journal.lines, journal.head):
        with pytest.raises(EvidenceError, match="line 2: digest") as caught:
            read()
        assert (caught.value.file, caught.value.line) == (journal.path, 2)
        assert caught.value.remedy.startswith("restore the journal")
    finding = Finding.from_error(caught.value, "record")
    assert (finding.file, finding.line) == (str(journal.path), None)  # the text names the line


def test_a_gap_says_what_helps_after_the_error():
    error = EvidenceError("a.json: missing", file=FILE)
    found = Gap.from_error(error, "the rest", Level.RECORDED, Path("b"), helps="bring it back")
    assert found == Gap("a.json: missing; bring it back", "the rest", Level.RECORDED, "b", None)
    assert Gap.from_error(error, "the rest", Level.DECLARED, corpus="code").file is None
