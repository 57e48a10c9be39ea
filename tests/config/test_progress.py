"""Bars of slow work: on a terminal alone, one for each part, and each part's name is shown as harmless text."""

import pytest

from treering.progress import progress_bars


@pytest.mark.parametrize(("in_bytes", "amount"), [(False, "2000000/4000000"), (True, "2.0/4.0 MB")])
def test_a_terminal_shows_how_much_of_a_part_is_done(monkeypatch, capsys, in_bytes, amount):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with progress_bars(in_bytes=in_bytes) as progress:
        progress("verify [b]", 0, 4_000_000)
        progress("verify [b]", 2_000_000, 4_000_000)
        progress("write\x1b[2J", 1, 1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "verify [b]" in shown.err
    assert amount in shown.err.replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert "write\\x1b[2J" in shown.err


def test_a_pipe_shows_nothing(monkeypatch, capsys):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with progress_bars() as progress:
        progress("verify", 1, 2)
    assert capsys.readouterr() == ("", "")
