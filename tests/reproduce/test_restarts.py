"""Restarts of written and of recorded runs: proven, consistent, changed, and what no record shows."""

import math
import multiprocessing
import os
from pathlib import Path

import pytest
import reporting_trainer
import run_writer

import treering as api
from treering.project import Project
from treering.reproduce.restarts.report import audit_restarts, restarts_json
from treering.runlog.recorded_directory import RecordedRunDirectory


@pytest.fixture
def writer(tmp_path):
    with run_writer.run_writers(Project(tmp_path)) as write:
        yield write()


def lay(writer, count, **overrides):
    """Rings as the schedule has them."""
    return writer.lay(count, **({"learning_rate": writer.resolved.schedule.step_learning_rate} | overrides))


def proofs(border):
    return {aspect.name: aspect.proof for aspect in border.aspects}


def checkpoint(writer, step):
    return next(each for each in writer.run.checkpoints() if each.step == step)


def test_a_run_of_one_attempt_has_no_restart(writer):
    found = audit_restarts(lay(writer.start(), 4).end().run)
    assert (found.verdict, found.holds, found.borders) == ("No restart: the run has one attempt.", True, ())


def test_a_clean_restart_without_dropout_is_consistent(writer):
    lay(writer.start(), 10).save().end("interrupted")
    lay(writer.start(checkpoint(writer, 10)), 5)
    (border,) = audit_restarts(writer.run).borders
    assert (border.proof, border.overlap, border.resumes) == ("consistent", None, True)
    random = next(each for each in border.aspects if each.name == "random states")
    assert random.text == "no step draws a random number: dropout is 0"


def test_one_bit_of_a_step_that_was_done_twice_is_found_against_the_newest_attempt_that_had_it(writer):
    lay(writer.start(), 10).save()
    lay(writer, 4)
    lay(writer.start(checkpoint(writer, 10)), 2)
    off = {14: math.nextafter(4.0 - 0.014, 5)}
    lay(writer.start(checkpoint(writer, 10)), 6, loss=lambda step: off.get(step, 4.0 - 0.001 * step))
    second, third = audit_restarts(writer.run).borders
    assert (second.proof, second.on_path, second.overlap) == ("proven", False, (11, 12))
    assert (third.proof, third.on_path, third.overlap) == ("changed", True, (11, 14))
    numbers = next(each for each in third.aspects if each.name == "numbers")
    assert numbers.text.startswith("step 14 differs from the same step of attempt 1: loss 3.986, then 3.98600")


@pytest.mark.parametrize("off", [None, 6, 11])
def test_each_step_is_compared_with_the_newest_earlier_attempt_that_had_it(writer, off):
    lay(writer.start(), 4).save()
    lay(writer, 4).save()
    lay(writer, 2)
    lay(writer.start(checkpoint(writer, 8)), 4)
    lay(writer.start(checkpoint(writer, 4)), 8, loss=lambda step: 3.0 if step == off else 4.0 - 0.001 * step)
    third = audit_restarts(writer.run).borders[1]
    numbers = next(each for each in third.aspects if each.name == "numbers")
    assert third.overlap == (5, 12)
    if off is None:
        assert (third.proof, numbers.text) == ("proven", "6 steps are equal to those of attempt 1 to the last bit")
    else:
        assert (third.proof, numbers.step) == ("changed", off)
        assert numbers.text.startswith(f"step {off} differs from the same step of attempt {1 if off == 6 else 2}: loss")


def test_an_attempt_that_began_at_the_same_border_proves_nothing(writer):
    lay(writer.start(), 10).save().end("interrupted")
    for _ in range(2):
        lay(writer.start(checkpoint(writer, 10)), 4)
    second, third = audit_restarts(writer.run).borders
    assert (second.proof, third.proof, third.overlap) == ("consistent", "consistent", (11, 14))
    assert proofs(third) | {"numbers": "not seen", "data": "consistent", "learning rate": "consistent"} == proofs(third)
    assert "consistent; attempt 2 began there too, and may have lost the same; data, order, random" in third.text
    lay(writer.start(checkpoint(writer, 10)), 4, loss=lambda _: 3.0)
    fourth = audit_restarts(writer.run).borders[2]
    assert "step 11 differs from the same step of attempt 3: loss" in fourth.text


def test_what_changed_beside_a_restart_without_an_overlap_leaves_the_numbers_unseen(writer):
    lay(writer.start(), 10).save().end("interrupted")
    kernels = writer.run.attempts()[0].header.kernels
    other = (kernels[0].model_copy(update={"used": "torch_fused"}), *kernels[1:])
    lay(writer.start(checkpoint(writer, 10), kernels=other), 5)
    found = audit_restarts(writer.run)
    assert (found.borders[0].proof, proofs(found.borders[0])["kernels"]) == ("not seen", "changed")
    assert "kernels changed (optimizer torch to torch_fused)" in found.borders[0].text
    assert found.remedies == (
        f"`treering reproduce {writer.run.id} --steps 10:11` trains over the border without a restart",
    )
    assert restarts_json(found)["borders"][0]["proof"] == "not seen"


def test_a_run_that_begins_again_is_compared_with_what_it_did_before(writer):
    lay(writer.start(), 6)
    lay(writer.start(), 4, loss=lambda _: 3.0)
    (border,) = audit_restarts(writer.run).borders
    assert (border.resumes, border.after_step, border.overlap) == (False, 0, (1, 4))
    assert border.text.startswith("attempt 2 begins again from nothing: changed; numbers: step 1 differs")


def test_a_first_rate_that_is_not_the_schedules_is_found_without_an_overlap(writer):
    lay(writer.start(), 10).save().end("interrupted")
    lay(writer.start(checkpoint(writer, 10)), 2, learning_rate=lambda _: 0.5)
    (border,) = audit_restarts(writer.run).borders
    assert (border.proof, proofs(border)["learning rate"]) == ("changed", "changed")


@pytest.mark.parametrize(
    ("loss_every", "proof", "said"),
    [
        (100, "not seen", "steps that were done twice report no number that the weights decide"),
        (4, "proven", "steps 5 to 9 were done twice: equal to attempt 1 to the last bit at 1 of 5 steps; the others"),
    ],
)
def test_only_numbers_that_the_weights_decide_prove_a_restart(tmp_path, monkeypatch, loss_every, proof, said):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run = api.start("sparse", config={})
        for step in range(run.last_step + 1, 10):
            run.step(learning_rate=1e-3, **({} if step % loss_every else {"loss": 1 / step}))
            if step == 4 and not run.resumed_step:
                Path("weights.bin").write_bytes(b"weights")
                run.checkpoint(Path("weights.bin"))
        run.interrupt("by hand")
    (border,) = audit_restarts(RecordedRunDirectory(run.path)).borders
    assert (border.proof, border.overlap) == (proof, (5, 9))
    assert said in border.text
    assert border.attempt == 2


@pytest.mark.parametrize(
    ("fault", "proof"), [(None, "proven"), ("restart", "changed"), ("skip", "changed")]
)  # fmt: skip
def test_recorded_restarts_show_data_and_order_and_say_that_random_states_are_not_seen(tmp_path, fault, proof):
    def train():
        os.chdir(tmp_path)
        reporting_trainer.main({"steps": 24, "samples": 1000, "die_at": 17, "fault": fault})

    for _ in range(2):
        process = multiprocessing.get_context("fork").Process(target=train)
        process.start()
        process.join()
    (path,) = (tmp_path / "runs").iterdir()
    (border,) = audit_restarts(RecordedRunDirectory(path)).borders
    found = proofs(border)
    assert (border.proof, border.after_step, border.overlap) == (proof, 10, (11, 17))
    assert (found["data"], found["random states"], found["numbers"]) == (proof, "not seen", "proven")
    assert found["order"] == ("proven" if fault is None else "not seen")
    assert (found["code"], found["environment"], found["layout"]) == ("consistent", "consistent", "consistent")
