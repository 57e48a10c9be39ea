"""`treering.start`: what a trainer reports is in the run's folder, whole, whatever ends the process."""

import argparse
import dataclasses
import enum
import json
import multiprocessing
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from treering.config.canonical import digest_file
from treering.data.order.batch import batch_digest, sample_digests
from treering.errors import EvidenceError, NotFoundError, RunLockedError, UserError
from treering.record.samples import StepSamples
from treering.record.settings import json_settings
from treering.record.start import start
from treering.runlog.find import find_recorded
from treering.runlog.journal import AttemptEnded, Noted, Scored, Tagged
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory

TOKENS = np.arange(12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def directory(run):
    return RecordedRunDirectory(run.path)


def rings(run, rank=0):
    return list(RecordedAttempt(directory(run).attempt_folder(run.attempt)).rings(rank))


def checkpointed(run, name="ckpt"):
    Path(name).mkdir()
    Path(name, "weights.bin").write_bytes(b"weights")
    run.checkpoint(name)


def test_a_step_is_on_record_with_its_metrics_and_the_digests_of_its_samples():
    with start("plain", config={"lr": 0.1}) as run:
        run.step(loss=np.float32(2.5), learning_rate=1e-3, skipped=None, tokens=TOKENS)
        run.step({"train/loss": float("nan")})
    first, second = rings(run)
    digests = sample_digests(TOKENS)
    assert (first.step, first.metrics) == (1, {"loss": 2.5, "learning_rate": 1e-3})
    assert (first.samples, first.tokens, first.batch_digest) == (3, 12, batch_digest(digests))
    assert first.sample_fingerprints == [digest.removeprefix("sha256:")[:16] for digest in digests]
    assert second.prev == first.digest
    assert np.isnan(second.metrics["train/loss"])
    assert (second.samples, second.batch_digest) == (None, None)
    end = directory(run).attempts()[0].end
    assert (end.status, end.step) == ("finished", 2)
    assert directory(run).state() == "finished"


@pytest.mark.parametrize(
    "form",
    [
        TOKENS.tolist(),
        [TOKENS[0], TOKENS[1:]],
        [row.tolist() for row in TOKENS],
        TOKENS.astype("int32"),
        TOKENS.reshape(3, 1, 4),
    ],
)
def test_the_digests_do_not_depend_on_the_container(form):
    assert StepSamples.of(form) == StepSamples.of(TOKENS)


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    assert StepSamples.of(torch.tensor(TOKENS)) == StepSamples.of(TOKENS)
    assert StepSamples.of([torch.tensor(TOKENS[:1]), torch.tensor(TOKENS[1:])]) == StepSamples.of(TOKENS)
    assert StepSamples.of(torch.tensor(TOKENS[0])) == StepSamples.of(TOKENS[:1])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"input_ids": TOKENS}, r"found a mapping with input_ids.*batch\['input_ids'\]"),
        ("text", "found text"),
        (TOKENS * 1.5, "tokens are float64"),
        (TOKENS - 100, "tokens from -100 to"),
        (object(), "found object"),
        (np.int64(3), "found a single number"),
    ],
)
def test_what_is_not_tokens_is_refused(tokens, message):
    run = start("plain")
    with pytest.raises(UserError, match=message):
        run.step(loss=1.0, tokens=tokens)
    run.step(loss=2.0)
    run.finish()
    assert [ring.metrics for ring in rings(run)] == [{"loss": 2.0}]


def test_a_loss_that_requires_gradients_is_a_number():
    torch = pytest.importorskip("torch")
    with start("plain") as run:
        run.step(loss=torch.tensor(2.5, requires_grad=True))
    assert rings(run)[0].metrics == {"loss": 2.5}


def test_a_metric_must_be_a_number_and_steps_go_up():
    run = start("plain")
    with pytest.raises(UserError, match="loss: found 'high', expected a number"):
        run.step(loss="high")
    run.step(step=10, loss=1.0)
    with pytest.raises(UserError, match=r"step: found 10, expected more than 10.*resume_step"):
        run.step(step=10, loss=1.0)
    run.step(loss=1.0)
    run.finish()
    assert [ring.step for ring in rings(run)] == [10, 11]
    with pytest.raises(UserError, match="the run has ended"):
        run.step(loss=1.0)


def test_an_unfinished_run_goes_on_from_its_newest_checkpoint():
    run = start("plain", config={"lr": 0.1})
    for _ in range(4):
        run.step(loss=1.0)
    checkpointed(run)
    run.step(loss=1.0)
    run.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    again = start("plain", config={"lr": 0.1})
    assert (again.id, again.attempt, again.resumed_step) == (run.id, 2, 4)
    assert again.last_checkpoint == Path("ckpt").absolute()
    again.step(loss=0.5)
    again.finish()
    assert [ring.step for ring in rings(again)] == [5]
    path = directory(again).path_to_end()
    assert [(segment.attempt.number, segment.last_step) for segment in path] == [(1, 4), (2, None)]
    parent = path[1].attempt.header.parent
    assert parent.ring == rings(run)[3].digest


def test_resume_step_names_the_checkpoint_that_was_loaded():
    run = start("plain")
    for _ in range(4):
        run.step(loss=1.0)
    run.__exit__(ValueError, ValueError("broken"), None)
    assert directory(run).attempts()[0].end.reason == "ValueError: broken"
    with pytest.raises(UserError, match=r"resume_step: found 9, .*its last step is 4"):
        start("plain", resume_step=9)
    again = start("plain", resume_step=2)
    assert again.resumed_step == 2
    again.finish()


def test_a_finished_run_is_followed_by_a_new_one():
    first = start("plain", config={"a": 1})
    first.finish()
    second = start("plain", config={"a": 1})
    assert second.id != first.id
    assert directory(second).record.repetition == 1
    second.__exit__(ValueError, ValueError(), None)
    third = start("plain", config={"a": 1}, resume="never")
    assert directory(third).record.repetition == 2
    third.finish()
    assert start("plain", config={"a": 1}, resume="must").id == second.id


def test_an_interrupted_run_goes_on_and_takes_scores_after_its_end():
    run = start("plain")
    run.step(loss=1.0)
    run.interrupt("stopped by the time limit")
    run.score(1, "eval", {"loss": 0.5})
    end = directory(run).attempts()[0].end
    assert (end.status, end.reason, end.step) == ("interrupted", "stopped by the time limit", 1)
    scored = [line.entry for line in directory(run).journal.lines() if isinstance(line.entry, Scored)]
    assert [(each.step, each.metrics) for each in scored] == [(1, {"loss": 0.5})]
    run.interrupt("again")
    assert directory(run).attempts()[0].end == end
    assert start("plain").id == run.id


def test_must_resume_fails_where_there_is_nothing_to_go_on_with():
    with pytest.raises(NotFoundError, match="no unfinished run of experiment 'plain'"):
        start("plain", resume="must")
    assert not Path("runs").exists()


def test_two_trainers_cannot_hold_one_run():
    run = start("plain")
    with pytest.raises(RunLockedError, match="another process group trains this run"):
        start("plain")
    run.step(loss=1.0)
    run.finish()
    assert len(rings(run)) == 1


def test_a_checkpoint_is_on_record_and_points_to_its_run():
    run = start("plain")
    with pytest.raises(UserError, match=r"expected run\.step"):
        run.checkpoint(".")
    run.step(loss=1.0)
    with pytest.raises(UserError, match=r"found no .*missing"):
        run.checkpoint("missing")
    checkpointed(run)
    Path("model.pt").write_bytes(b"abc")
    run.step(loss=1.0)
    run.checkpoint("model.pt", digest=False)
    run.finish()
    first, second = directory(run).checkpoints()
    assert (first.step, first.ring) == (1, rings(run)[0].digest)
    assert [(file.path, file.size) for file in first.files] == [("weights.bin", 7)]
    assert first.files[0].digest is not None
    assert [(file.path, file.size, file.digest) for file in second.files] == [("model.pt", 3, None)]
    pointer = json.loads(Path("ckpt/treering.json").read_text())
    assert Path("ckpt", pointer["folder"]).resolve() == run.path.resolve()
    assert json.loads(Path("model.pt.treering.json").read_text())["step"] == 2


def test_a_step_may_have_several_checkpoints():
    run = start("plain")
    run.step(loss=1.0)
    for name in ("best", "last", "best"):
        Path(name).mkdir(exist_ok=True)
        Path(name, "weights.bin").write_bytes(name.encode())
        run.checkpoint(name)
    assert sorted(Path(each.path).name for each in directory(run).checkpoints()) == ["best", "last"]
    for name in ("best", "last"):
        found, checkpoint = find_recorded(Path("runs"), name)
        assert (found.id, checkpoint.path) == (run.id, str(Path(name).absolute()))
    run.interrupt("a test")
    assert start("plain").last_checkpoint == Path("best").absolute(), "the newest one"


def test_scores_notes_and_tags_are_in_the_journal():
    run = start("plain", tags=["baseline"], notes="first try")
    run.step(loss=1.0)
    run.score(1, "hellaswag", {"acc": 0.81, "acc_stderr": 0.004})
    run.finish()
    entries = [line.entry for line in directory(run).journal.lines()]
    assert [type(entry) for entry in entries] == [Tagged, Noted, Scored, AttemptEnded]
    assert entries[0].added == ("baseline",)
    assert entries[1].text == "first try"
    assert (entries[2].step, entries[2].metrics) == (1, {"acc": 0.81, "acc_stderr": 0.004})
    assert (entries[3].rings, entries[3].last_ring) == (1, rings(run)[0].digest)


@pytest.mark.parametrize(
    ("step", "value", "message"),
    [
        (1, float("nan"), r"eval\.acc: found nan, expected a finite number; leave out"),
        (1, "high", r"eval\.acc: found 'high', expected a number"),
        (0, 0.5, "score: found step 0, expected the step after which"),
    ],
)
def test_a_score_that_is_none_is_named(step, value, message):
    run = start("plain")
    run.step(loss=1.0)
    with pytest.raises(UserError, match=message):
        run.score(step, "eval", {"acc": value})
    run.finish()
    assert not any(isinstance(line.entry, Scored) for line in directory(run).journal.lines())


@dataclasses.dataclass
class Settings:
    lr: float
    path: Path


class Mode(enum.Enum):
    FAST = "fast"


def test_settings_of_any_kind_become_json():
    assert json_settings(Settings(0.1, Path("a/b"))) == {"lr": 0.1, "path": "a/b"}
    assert json_settings(argparse.Namespace(mode=Mode.FAST, sizes={3, 1})) == {"mode": "fast", "sizes": [1, 3]}
    assert json_settings({"hf_token": "abcdef", "n": np.int64(3), "x": float("inf")}) == {
        "hf_token": "***",
        "n": 3,
        "x": "inf",
    }
    with pytest.raises(UserError, match=r"config\.model\[1\]: found function, which has no form in JSON"):
        json_settings({"model": [1, json_settings]})


def test_a_forked_worker_cannot_report():
    run = start("plain")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def report():
        try:
            run.step(loss=1.0)
        except UserError as error:
            queue.put(str(error))

    process = context.Process(target=report)
    process.start()
    assert "call treering.start in the process that trains" in queue.get(timeout=300)
    process.join()
    run.step(loss=1.0)
    run.finish()
    assert len(rings(run)) == 1


def _report(rank, world_size, together):
    run = start("ranks", rank=rank, world_size=world_size)
    together.wait(120)  # as the first collective of a training does
    for step in range(3):
        run.step(loss=1.0, tokens=TOKENS + 100 * rank + step)
    run.finish()


def test_every_rank_reports_its_own_samples_to_the_attempt_of_rank_0():
    context = multiprocessing.get_context("fork")
    together = context.Barrier(3)
    processes = [context.Process(target=_report, args=(rank, 3, together)) for rank in (2, 1, 0)]
    for process in processes:
        process.start()
        time.sleep(0.1)
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    (path,) = Path("runs").iterdir()
    (attempt,) = RecordedRunDirectory(path).attempts()
    assert attempt.ranks() == [0, 1, 2]
    for rank in range(3):
        found = list(attempt.rings(rank))
        assert found[0].prev == attempt.header_digest
        assert [ring.fingerprints for ring in found] == [
            StepSamples.of(TOKENS + 100 * rank + step).fingerprints for step in range(3)
        ]


def test_a_rank_is_one_of_the_world(monkeypatch):
    with pytest.raises(UserError, match="found rank 3 of world_size 3"):
        start("plain", rank=3, world_size=3)
    with pytest.raises(UserError, match="expected both or neither"):
        start("plain", rank=0)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    run = start("plain")
    with pytest.raises(UserError, match="counts 2 ranks, rank 0 counts 1"):
        start("plain", rank=1, world_size=2)
    run.finish()


def test_a_changed_ring_is_found():
    run = start("plain")
    run.step(loss=1.0)
    run.step(loss=2.0)
    run.finish()
    file = directory(run).attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":2.0', '"loss":1.0'))
    with pytest.raises(EvidenceError, match="line 2: ring of step 2: digest"):
        rings(run)


def test_the_environment_and_the_code_of_the_trainer_are_on_record():
    Path("train.py").write_text("from treering.record.start import start\nstart('plain').finish()\n")
    subprocess.run(["git", "init", "-q"], check=True)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]
    subprocess.run(["git", "add", "train.py"], check=True)
    subprocess.run(commit, check=True)
    with Path("train.py").open("a") as file:
        file.write("# changed\n")
    subprocess.run([sys.executable, "train.py"], check=True)
    (path,) = Path("runs").iterdir()
    header = RecordedRunDirectory(path).attempts()[0].header
    assert header.code["script"] == "train.py"
    assert header.code["script_digest"] == digest_file(Path("train.py"))
    assert (len(header.code["commit"]), header.code["dirty"]) == (40, True)
    assert "+# changed" in header.code["diff"]
    assert header.environment["packages"]["numpy"] == np.__version__
    assert header.command[-1] == "train.py"


def test_the_loop_of_the_documentation_runs():
    page = (Path(__file__).parents[2] / "docs" / "record.md").read_text()
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    subprocess.run([sys.executable, "-c", block], check=True)
    (path,) = Path("runs").iterdir()
    run = RecordedRunDirectory(path)
    assert run.state() == "finished"
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [100, 200]
    (attempt,) = run.attempts()
    assert [ring.samples for ring in attempt.rings()] == [8] * 200
