"""`treering record -- COMMAND`: what the command prints becomes an attempt, whatever ends the command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from treering.errors import UserError
from treering.record.command import record_command
from treering.record.printed_metrics import Printed, read_megatron, reader_of
from treering.runlog.find import find_recorded_runs

MEGATRON = (
    " [2024-05-01 12:00:00] iteration       {step}/     100 | consumed samples:         {samples} | elapsed time per"
    " iteration (ms): 123.4 | learning rate: 1.500000E-04 | global batch size:     8 | lm loss: {loss:E} | loss scale:"
    " 1.0 | grad norm: 1.250 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
SCRIPT = f"""
import os, pathlib, signal, sys
state = pathlib.Path("last")
first = int(state.read_text()) if state.exists() else 0
for step in range(first + 1, 9):
    print({MEGATRON!r}.format(step=step, samples=8 * step, loss=10 / step), flush=True)
    if step % 3 == 0:
        state.write_text(str(step))
    if step == 5 and first == 0:
        os.kill(os.getpid(), signal.SIGKILL)
print(" validation loss at iteration 8 on test set | lm loss value: 1.25E+00 | lm loss PPL: 3.49E+00 |", flush=True)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pretrain_gpt.py").write_text(SCRIPT)


def test_a_line_of_megatron_is_read():
    found = read_megatron("[default7]:" + MEGATRON.format(step=10, samples=80, loss=10.8))
    assert (found.step, found.evaluated) == (10, False)
    assert found.metrics["loss"] == found.metrics["lm_loss"] == 10.8
    assert found.metrics["consumed_samples"] == 80
    assert found.metrics["elapsed_time_per_iteration_ms"] == 123.4
    assert (found.metrics["learning_rate"], found.metrics["grad_norm"]) == (1.5e-4, 1.25)
    assert read_megatron("building GPT model ...") is None
    assert read_megatron("iteration 1/ 2 | version: 1.2.3 | lm loss: 1. |") == Printed(1, {"lm_loss": 1.0, "loss": 1.0})


def test_lines_of_another_form_are_read():
    read = reader_of(r"step (?P<step>\d+) loss (?P<loss>\S+)( lr (?P<lr>\S+))?")
    assert read("rank 0: step 7 loss 2.5") == Printed(7, {"loss": 2.5})
    assert read("step 8 loss 2.5 lr 1e-3") == Printed(8, {"loss": 2.5, "lr": 1e-3})
    assert read("step 8 loss none") is None
    assert reader_of(r"(step (?P<step>\d+) )?loss (?P<loss>\S+)")("loss 2.5") is None
    for pattern in ("(", r"loss (?P<loss>\S+)", r"step (?P<step>\d+)"):
        with pytest.raises(UserError, match="--metrics: found"):
            reader_of(pattern)


def test_a_command_that_was_killed_and_started_again_is_one_run(treering):
    command = ("record", "--", sys.executable, "pretrain_gpt.py")
    code, out, _ = treering(*command)
    assert code == 128 + signal.SIGKILL
    assert "iteration       5/" in out
    assert treering(*command)[0] == 0
    (run,) = find_recorded_runs(Path("runs"))
    first, second = run.attempts()
    assert run.record.experiment == "pretrain_gpt"
    assert (first.end.status, first.end.reason) == ("interrupted", "the command was ended by SIGKILL")
    assert (second.end.status, second.header.parent.step) == ("finished", 3)
    assert [(segment.attempt.number, segment.last_step) for segment in run.path_to_end()] == [(1, 3), (2, None)]
    assert [ring.metrics["loss"] for ring in second.rings()] == [float(f"{10 / step:E}") for step in range(4, 9)]
    assert second.header.command == (sys.executable, "pretrain_gpt.py")
    assert second.header.code["script"] == "pretrain_gpt.py"
    log = (second.path / "logs" / "output.log").read_text()
    assert log.count(" iteration  ") == 5
    assert "step 8, validation: lm_loss_PPL 3.49  lm_loss_value 1.25" in treering("show", run.id)[1]


DIVERGES = """
import pathlib
print("iteration 0/ 2 | lm loss: 9.0 |", flush=True)
print("iteration 1/ 2 | lm loss: nan |", flush=True)
print("validation loss at iteration 1 | lm loss value: nan | lm loss PPL: 1.0 |", flush=True)
print("validation loss at iteration 1 | lm loss value: nan |", flush=True)
pathlib.Path("ended").touch()
"""


def test_no_printed_number_ends_a_training(treering, caplog):
    Path("diverges.py").write_text(DIVERGES)
    assert treering("record", "--", sys.executable, "diverges.py")[0] == 0
    assert Path("ended").exists()
    (run,) = find_recorded_runs(Path("runs"))
    (ring,) = run.attempts()[0].rings()
    assert (ring.step, np.isnan(ring.metrics["loss"])) == (1, True)
    scores = [line.entry.metrics for line in run.journal.lines() if line.entry.kind == "scored"]
    assert scores == [{"lm_loss_PPL": 1.0}]
    (warning,) = caplog.messages
    assert warning == "step 0 is not recorded, since steps count from 1: iteration 0/ 2 | lm loss: 9.0 |"


def test_a_command_whose_record_cannot_be_kept_is_ended():
    script = "import time; print('iteration 1/ 2 | lm loss: 1.0 |', flush=True); time.sleep(600)"
    Path("runs").write_text("no folder")
    others = psutil.Process().children()  # of tests before
    begun = time.monotonic()
    with pytest.raises(OSError, match="runs"):
        record_command([sys.executable, "-c", script], "plain")
    assert time.monotonic() - begun < 300
    deadline = time.monotonic() + 300
    while [each for each in psutil.Process().children() if each not in others and each.status() != "zombie"]:
        assert time.monotonic() < deadline, "the command goes on"
        time.sleep(0.05)


def test_a_command_without_steps_is_an_attempt_too(treering):
    words = ("record", "--experiment", "empty", "--", sys.executable, "-c", "print('x'); raise SystemExit(7)")
    code, _, err = treering(*words)
    assert (code, err) == (7, "")
    (run,) = find_recorded_runs(Path("runs"))
    (attempt,) = run.attempts()
    assert (attempt.end.status, attempt.end.reason) == ("failed", "the command ended with exit code 7")
    assert (attempt.path / "logs" / "output.log").read_text() == "x\n"


def test_a_command_that_cannot_be_started_leaves_no_run(treering):
    code, _, err = treering("record", "--", "./missing")
    assert (code, "record: ./missing cannot be started (No such file or directory)" in err) == (2, True)
    assert not Path("runs").exists()


def test_a_signal_reaches_the_command():
    Path("wait.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('step 1 loss 2', flush=True)\n"
        "time.sleep(600)\n"
    )
    words = ["record", "--metrics", r"step (?P<step>\d+) loss (?P<loss>\S+)", "--", sys.executable, "wait.py"]
    process = subprocess.Popen([sys.executable, "-m", "treering", *words])
    try:
        while not any(Path("runs").glob("*/attempts/0001/rings.jsonl")):
            assert process.poll() is None
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 3
    finally:
        process.kill()
    (run,) = find_recorded_runs(Path("runs"))
    assert run.attempts()[0].end.reason == "the command ended with exit code 3"


LARGE = """
import pathlib, time
held = bytearray(200_000_000)
print("step 1 loss 2.5", flush=True)
while not list(pathlib.Path("runs").glob("*/attempts/0001/telemetry/live/*")):
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_the_telemetry_is_that_of_the_command(treering):
    Path("large.py").write_text(LARGE)
    pattern = r"step (?P<step>\d+) loss (?P<loss>\S+)"
    assert treering("record", "--metrics", pattern, "--", sys.executable, "large.py")[0] == 0
    (run,) = find_recorded_runs(Path("runs"))
    readings = run.attempts()[0].telemetry.read().readings
    assert set(readings.ranks) == {-1, 0}
    assert np.nanmax(readings.column("process/rss")) > 200e6
