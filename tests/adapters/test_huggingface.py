"""A real `Trainer` of Hugging Face records, is killed and resumed from its own checkpoint."""

import numpy as np
import pytest
from attempts import attempt, die, finished, killed_and_resumed, recorded, rings
from ports import free_port

from treering.audit.recorded.difference import compare_recorded
from treering.audit.recorded.report import audit_recorded
from treering.audit.report import Level
from treering.data.order.batch import sample_digests
from treering.errors import UserError
from treering.runlog.journal import Scored

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from treering_adapters.huggingface import TreeringCallback  # noqa: E402
from treering_adapters.samples import batch_tokens  # noqa: E402

pytestmark = pytest.mark.slow

SAMPLES = [np.random.default_rng(number).integers(1, 64, 5 + number % 4) for number in range(40)]


def collate(samples):
    """Pads to the longest sample of the batch, as collators of transformers do."""
    longest = max(map(len, samples))
    ids = torch.tensor([[*sample, *[0] * (longest - len(sample))] for sample in samples])
    mask = torch.tensor([[1] * len(sample) + [0] * (longest - len(sample)) for sample in samples])
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


class EndAt(TrainerCallback):
    """Kills the process when the next step begins, or asks the trainer to stop."""

    def __init__(self, die_at, stop_at):
        self.die_at = die_at
        self.stop_at = stop_at

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step and state.global_step == self.die_at:
            die()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.stop_at:
            control.should_training_stop = True


def main(die_at=0, stop_at=0, resume=False, evaluate=False, **arguments):
    """Two epochs of 10 steps; a step has two micro-batches of two samples."""
    transformers.set_seed(1)
    settings = {
        "output_dir": "ckpt",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 2,
        "save_steps": 4,
        "logging_steps": 2,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        **arguments,
    }
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**settings),
        train_dataset=SAMPLES,
        eval_dataset=SAMPLES[:4],
        data_collator=collate,
    )
    trainer.add_callback(TreeringCallback(trainer, "tiny"))
    trainer.add_callback(EndAt(die_at, stop_at))
    trainer.train(resume_from_checkpoint=resume)
    if evaluate:
        trainer.evaluate()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("unbroken"), main, evaluate=True, eval_strategy="steps", eval_steps=10)


def test_a_training_is_on_record_with_its_samples_metrics_and_checkpoints(unbroken):
    found = rings(unbroken)
    assert [ring.step for ring in found] == [*range(1, 21)]
    assert {ring.samples for ring in found} == {4}
    fed = [sample for ring in found for sample in ring.sample_fingerprints]
    known = {sample_digests(sample[None])[0].removeprefix("sha256:")[:16] for sample in SAMPLES}
    assert set(fed[:40]) == set(fed[40:]) == known  # an epoch has each sample once; padding does not count
    assert [ring.metrics["epoch"] for ring in found] == pytest.approx(np.arange(1, 21) / 10)
    assert {"loss", "grad_norm", "learning_rate", "epoch"} == set(found[1].metrics)
    assert set(found[2].metrics) == {"epoch"}  # of `logging_steps`
    assert [each.step for each in unbroken.checkpoints()] == [4, 8, 12, 16, 20]
    assert unbroken.state() == "finished"
    audit = audit_recorded(unbroken, unbroken.checkpoints()[-1])
    assert (audit.level, audit.holds, audit.steps, audit.different_samples) == (Level.RECORDED, True, 20, 40)


def test_evaluations_are_scores_of_their_step(unbroken):
    scored = [line.entry for line in unbroken.journal.lines() if isinstance(line.entry, Scored)]
    assert [(each.step, each.task) for each in scored] == [(10, "eval"), (20, "eval"), (20, "eval")]
    assert "loss" in scored[0].metrics


def test_an_honest_resume_is_proven_and_equals_the_unbroken_run(tmp_path, unbroken):
    run = killed_and_resumed(tmp_path, main, die_at=7)
    audit = audit_recorded(run)
    (restart,) = audit.restarts
    assert (restart.state, restart.after_step, restart.compared_steps) == ("same samples", 4, 3)
    assert (audit.holds, audit.steps) == (True, 20)
    difference = compare_recorded(run, unbroken)
    assert (difference.first_difference, difference.compared_steps, difference.other_order) == (None, 20, 0)


def test_the_checkpoint_that_the_trainer_loaded_counts_and_not_the_newest(tmp_path):
    attempt(tmp_path, main, die_at=9).join()
    audit = audit_recorded(finished(tmp_path, main, resume="ckpt/checkpoint-4"))
    (restart,) = audit.restarts
    assert (restart.state, restart.after_step, restart.compared_steps) == ("same samples", 4, 5)
    assert (audit.holds, audit.steps) == (True, 20)


def test_a_resume_that_does_not_skip_the_data_is_named_with_its_step(tmp_path, unbroken):
    run = killed_and_resumed(tmp_path, main, die_at=7, ignore_data_skip=True)
    audit = audit_recorded(run)
    (restart,) = audit.restarts
    assert (restart.state, restart.first_difference, restart.repeats_step) == ("other samples", 5, 1)
    assert [(finding.kind, finding.step) for finding in audit.findings] == [("batch", 5)]
    assert compare_recorded(run, unbroken).first_difference == 5


@pytest.mark.parametrize(("die_at", "ignore_data_skip"), [(8, True), (8, False), (12, True), (12, False)])
def test_a_resume_without_abandoned_steps_is_judged_by_what_was_fed_before(tmp_path, die_at, ignore_data_skip):
    audit = audit_recorded(killed_and_resumed(tmp_path, main, die_at=die_at, ignore_data_skip=ignore_data_skip))
    assert [restart.fault for restart in audit.restarts] == [ignore_data_skip]
    assert [finding.step for finding in audit.findings] == [die_at + 1] * ignore_data_skip


def test_a_resume_at_the_end_of_the_first_epoch_is_no_fault(tmp_path):
    audit = audit_recorded(killed_and_resumed(tmp_path, main, die_at=10, save_steps=5))
    assert audit.holds
    assert [restart.fault for restart in audit.restarts] == [False]


def test_two_ranks_record_what_each_was_given(tmp_path):
    for die_at, code in ((6, -9), (0, 0)):
        settings = {"die_at": die_at, "resume": not die_at, "world_size": 2, "port": free_port()}
        ranks = [attempt(tmp_path, main, rank=rank, **settings) for rank in range(2)]
        for process in ranks:
            process.join()
        assert [process.exitcode for process in ranks] == [code, code]
    run = recorded(tmp_path)
    audit = audit_recorded(run, run.checkpoints()[-1])
    assert [restart.state for restart in audit.restarts] == ["same samples"]
    assert (audit.holds, audit.steps, audit.samples, audit.different_samples) == (True, 10, 80, 40)


def test_a_training_that_stopped_early_can_go_on(tmp_path):
    run = finished(tmp_path, main, stop_at=4)
    end = run.attempts()[0].end
    assert (end.status, end.reason) == ("interrupted", "the trainer stopped at step 4 of 20")
    audit = audit_recorded(finished(tmp_path, main, resume=True))
    assert (audit.holds, audit.steps, audit.state) == (True, 20, "finished")


def test_inputs_without_the_named_tokens_are_refused():
    batch = collate(SAMPLES[:2])
    with pytest.raises(UserError, match=r"found \['attention_mask', 'input_ids', 'labels'\], expected a tensor 'text'"):
        batch_tokens(batch, "text")
    with pytest.raises(UserError, match="found list, expected a tensor 'text'"):
        batch_tokens([1, 2], "text")
    assert batch_tokens(batch, None) == []
    assert [row.tolist() for row in batch_tokens(batch, "input_ids")] == [list(each) for each in SAMPLES[:2]]
    assert batch_tokens(batch["input_ids"], "any")[0].tolist() == batch["input_ids"][0].tolist()
