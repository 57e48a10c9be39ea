"""The benchmark of the audit's scale: its figures have their shape; what they say is for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from treering.data.corpus.indexed import TokenFile

BENCHMARKS = Path(__file__).parents[2] / "experiments/benchmarks"


@pytest.mark.slow
@pytest.mark.trainer
def test_every_question_is_answered_beside_megatrons_index(tmp_path):
    out, command = tmp_path / "out.json", [sys.executable, str(BENCHMARKS / "audit_scale.py"), "--scale=1e-4"]
    done = subprocess.run(
        [*command, "--megatron=0.5", "--repeats=1", f"--folder={tmp_path}", f"--json={out}"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found = json.loads(out.read_text())
    assert (found["corpora"], found["num_samples"]) == (15, 13_183)
    assert [each["num_samples"] for each in found["checkpoints"]] == [13_183, 1920, 10_000, 1_000_000]
    assert all(each["step_samples"] == 1920 for each in found["checkpoints"])
    assert found["distinct"]["num_samples"] == 6000
    assert 0 < found["distinct"]["distinct_documents"] <= found["num_documents"]
    assert 0 < found["megatron"]["distinct_documents"] <= found["megatron"]["num_documents"]
    assert found["megatron"]["build_disk_bytes"] > 8 * found["megatron"]["num_samples"]
    assert found["megatron"]["whole"]["build_s"] == pytest.approx(2 * found["megatron"]["build_s"])
    assert found["ready"]["ready_disk_bytes"] == 0
    for shown in (found["ready"]["ready_ms"], found["checkpoints"][0]["step_ms"]):
        assert f"{shown:.1f} ms" in done.stdout


def test_indices_of_made_up_documents_are_whole(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from synthetic_index import write_index

    write_index(tmp_path / "a.idx", 3000, 100_000, seed=1)
    (tmp_path / "a.bin").write_bytes(bytes(200_000))
    offsets = TokenFile.open(tmp_path / "a.bin", tmp_path / "a.idx").document_offsets
    assert len(offsets) == 3001
    assert offsets[-1] == 100_000
    assert np.diff(offsets).min() >= 1
