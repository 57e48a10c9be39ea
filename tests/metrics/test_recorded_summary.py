"""The tokens of a recorded run: along its path, by columns or ring by ring."""

from pathlib import Path

import numpy as np
import pytest

from treering.metrics.lines import recorded_path
from treering.metrics.lines.read import run_line
from treering.record.start import start
from treering.runlog.recorded_directory import RecordedRunDirectory

TOKENS = np.arange(12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("limit", [0, 1 << 60], ids=["columns", "rings"])
def test_tokens_are_those_of_the_path(monkeypatch, limit):
    monkeypatch.setattr(recorded_path, "LONG_BYTES", limit)
    run = start("plain")
    for step in range(1, 6):
        run.step(loss=1.0, tokens=TOKENS[:step])
        if step == 3:
            folder = Path("ckpt")
            folder.mkdir()
            (folder / "weights.bin").write_bytes(b"w")
            run.checkpoint(folder)
    run.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    recorded = RecordedRunDirectory(run.path)
    assert run_line(recorded).consumed_tokens == 4 * (1 + 2 + 3 + 3 + 3)
    again = start("plain")
    again.step(loss=1.0, tokens=TOKENS[:1])
    assert run_line(recorded).consumed_tokens == 4 * (1 + 2 + 3 + 1)
    again.finish()
    assert (recorded.attempts()[0].path / "columns").exists() == (limit == 0)


@pytest.mark.parametrize("limit", [0, 1 << 60], ids=["columns", "rings"])
def test_a_run_without_tokens_has_none(monkeypatch, limit):
    monkeypatch.setattr(recorded_path, "LONG_BYTES", limit)
    run = start("plain")
    run.step(loss=1.0)
    run.finish()
    assert run_line(RecordedRunDirectory(run.path)).consumed_tokens is None


@pytest.mark.parametrize("limit", [0, 1 << 60], ids=["columns", "rings"])
def test_a_ring_that_was_changed_is_named_in_the_line(monkeypatch, limit):
    monkeypatch.setattr(recorded_path, "LONG_BYTES", limit)
    run = start("plain")
    for _ in range(3):
        run.step(loss=1.0, tokens=TOKENS)
    run.finish()
    recorded = RecordedRunDirectory(run.path)
    file = recorded.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":1.0', '"loss":2.0', 1))
    line = run_line(recorded)
    assert line.state == "damaged"
    assert "rings.jsonl line 1: ring of step 1: digest" in line.problem
