"""The commands on runs that other trainers recorded."""

import json

import numpy as np
import pytest

from treering.record.start import start
from treering.runlog.journal import notes_and_tags
from treering.runlog.recorded_directory import RecordedRunDirectory


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run of four steps with a checkpoint, and a second one that was fed other samples from step 3 on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "weights.bin").write_bytes(b"weights")
    runs = []
    for learning_rate, shift in ((0.1, 0), (0.2, 7)):
        with start("plain", config={"lr": learning_rate}, tags=["baseline"]) as run:
            for step in range(1, 5):
                run.step(loss=1 / step, tokens=np.arange(8).reshape(2, 4) + 10 * step + (shift if step > 2 else 0))
                if step == 2 and not runs:
                    run.checkpoint("ckpt")
            run.score(4, "hellaswag", {"acc": 0.5})
        runs.append(run.id)
    return runs


def test_runs_lists_them(run, treering):
    code, out, _ = treering("runs", "--json")
    found = json.loads(out)
    assert code == 0
    assert [(each["id"], each["state"], each["step"], each["num_steps"], each["loss"]) for each in found] == [
        (run[0], "finished", 4, None, 0.25),
        (run[1], "finished", 4, None, 0.25),
    ]
    assert found[0]["checkpoints"] == 1
    assert run[0][:8] in treering("runs")[1]


def test_show_prints_state_scores_and_tags(run, treering):
    code, out, _ = treering("show", run[0][:6], "--full")
    assert code == 0
    for words in (
        "finished, step 4",
        "loss 0.25",
        "tags        baseline",
        "step 4, hellaswag: acc 0.5",
        "lr  ",
        "ckpt",
    ):
        assert words in out
    assert json.loads(treering("show", run[0], "--json")[1])["config"] == {"lr": 0.1}


@pytest.mark.parametrize("by", ["run", "checkpoint"])
def test_audit_takes_a_run_and_a_checkpoint(run, by, treering):
    code, out, _ = treering("audit", run[0] if by == "run" else "ckpt", "--json")
    found = json.loads(out)
    steps = 4 if by == "run" else 2
    assert (code, found["holds"], found["level"], found["steps"]) == (0, True, "recorded", steps)
    assert found["verdict"] == f"recorded: samples of {steps} of {steps} steps"


@pytest.mark.usefixtures("run")
def test_a_damaged_checkpoint_ends_the_audit_with_3(treering, tmp_path):
    (tmp_path / "ckpt" / "weights.bin").write_bytes(b"changed")
    code, out, _ = treering("audit", "ckpt")
    assert code == 3
    assert out.startswith("FAILED with 1 finding")
    text = " ".join(out.split())
    assert "weights.bin: digest sha256:" in text
    assert "by the record of step 2; restore the file from a copy" in text


def test_other_questions_are_refused_with_the_reason(run, treering):
    code, _, err = treering("audit", run[0], "--summary")
    assert (code, "was recorded by another trainer; its audit takes --verify, --json, and" in err) == (2, True)


def test_a_checkpoint_whose_run_has_moved_names_the_place(run, treering, tmp_path):
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    code, _, err = treering("audit", "ckpt")
    assert code == 2
    assert f"found no run {run[0]}" in err


def test_diff_names_the_first_step_with_other_samples(run, treering):
    code, out, _ = treering("diff", *run, "--json")
    found = json.loads(out)
    assert (code, found["first_difference"], found["compared_steps"], found["config"]) == (0, 3, 4, {"lr": [0.1, 0.2]})
    assert "Step 3 is the first that was fed different samples" in treering("diff", *run)[1]


def test_notes_and_tags_are_added(run, treering, tmp_path):
    assert treering("note", run[0], "spike at 3", "--tag", "keep", "--untag", "baseline")[0] == 0
    journal = RecordedRunDirectory(tmp_path / "runs" / run[0]).journal
    notes, tags = notes_and_tags(line.entry for line in journal.lines())
    assert ([each.text for each in notes], tags) == (["spike at 3"], ["keep"])
    assert "spike at 3" in treering("show", run[0])[1]
    code, _, err = treering("note", run[0])
    assert (code, "found neither text nor tags" in err) == (2, True)


def test_rewind_says_what_the_trainer_must_do(run, treering):
    code, out, _ = treering("rewind", run[0], "--to", 3, "--skip", 2)
    assert code == 2
    assert "its own trainer must go back. Nothing was changed." in out
    assert "ckpt, the checkpoint of step 2" in out
    assert "treering.start(…, resume_step=2) with the same arguments: a new run begins" in out
    assert "the batches of steps 3 to 4, 4 samples: take them from the data loader" in out
    answer = json.loads(treering("rewind", run[0], "--to", 3, "--skip", 9, "--json")[1])
    assert (answer["step"], answer["skipped"], answer["rewound"]) == (2, {"steps": 9, "samples": None}, False)
    code, _, err = treering("rewind", run[0], "--to", 1)
    assert (code, "no checkpoint at or before step 1" in err, "of the steps 2" in err) == (2, True, True)
