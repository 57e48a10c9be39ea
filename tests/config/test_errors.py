"""What a command's work may end with, as people and schedulers see it."""

import errno

import pytest

from treering.errors import EvidenceError, TrainingError, UserError, run_command


def ending_with(error):
    def work():
        raise error

    return run_command(work, trouble="the export cannot write: {}; nothing was left behind", interrupted="; go on")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("--seed: found -1"), 2, "treering: --seed: found -1\n"),
        (EvidenceError("a digest differs"), 3, "treering: a digest differs\n"),
        (TrainingError("loss is NaN"), 5, "treering: loss is NaN\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            5,
            "treering: the export cannot write: [Errno 28] No space left on device; nothing was left behind\n",
        ),
        (KeyboardInterrupt(), 130, "treering: interrupted; go on\n"),
    ],
)
def test_an_error_is_one_text_and_its_exit_code(error, code, said, capsys):
    assert ending_with(error) == code
    assert capsys.readouterr() == ("", said)


def test_work_that_is_done(capsys):
    assert run_command(lambda: None, trouble="", interrupted="") == 0
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_our_own_is_no_clear_text():
    with pytest.raises(ZeroDivisionError):
        ending_with(ZeroDivisionError())
