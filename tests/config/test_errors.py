"""What a command's work may end with, as people and schedulers see it."""

import errno

import pytest

from treering.ending import run_command
from treering.errors import EvidenceError, TrainingError, UserError


def ending_with(error):
    def work():
        raise error

    trouble = "the export cannot write: {}; nothing was left behind"
    return run_command(work, trouble=trouble, trouble_code=5, interrupted="; go on")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("--seed: found -1"), 2, "treering: --seed: found -1\n"),
        (EvidenceError("a digest differs"), 3, "treering: a digest differs\n"),
        (TrainingError("loss is NaN"), 5, "treering: loss is NaN\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            5,
            "treering: the export cannot write: No space left on device; free space on that disk, or write to "
            "another one; nothing was left behind\n",
        ),
        (KeyboardInterrupt(), 130, "treering: interrupted; go on\n"),
    ],
)
def test_an_error_is_one_text_and_its_exit_code(error, code, said, capsys):
    assert ending_with(error) == code
    assert capsys.readouterr() == ("", said)


def test_work_that_is_done(capsys):
    assert run_command(lambda: None, trouble="", interrupted="") == 0
    assert run_command(lambda: 75) == 75
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_our_own_keeps_its_traceback(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".treering").mkdir()
    assert ending_with(ZeroDivisionError("division by zero")) == 1
    said = capsys.readouterr().err
    (kept,) = (tmp_path / ".treering").iterdir()
    assert said.startswith("treering: a fault in Treering: ZeroDivisionError: division by zero (test_errors.py, line ")
    assert f"its traceback is in {kept}; please report it" in said
    assert "raise error" in kept.read_text()


def test_debugging_prints_the_traceback(capsys, monkeypatch):
    monkeypatch.setenv("TREERING_DEBUG", "1")
    assert ending_with(UserError("no")) == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err
