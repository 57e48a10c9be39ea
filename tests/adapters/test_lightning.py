"""A real `Trainer` of Lightning records, is killed and resumed from its own checkpoint."""

import logging
import warnings

import numpy as np
import pytest
from attempts import attempt, die, finished, killed_and_resumed, recorded, rings

from treering.audit.recorded.difference import compare_recorded
from treering.audit.recorded.report import audit_recorded
from treering.audit.report import Level
from treering.data.order.batch import sample_digests
from treering.runlog.journal import Scored

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed: `make setup` installs it")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

from treering_adapters.lightning import TreeringCallback  # noqa: E402

pytestmark = pytest.mark.slow

SAMPLES = np.random.default_rng(1).integers(0, 64, (40, 9))


class Model(lightning.LightningModule):
    def __init__(self, learning_rate=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64))

    def loss(self, batch):
        ids = batch["input_ids"]
        return torch.nn.functional.cross_entropy(self.layers(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("double_loss", 2 * loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("validation_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.learning_rate)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Loader:
    """Batches of two samples; like torchdata's `StatefulDataLoader`, it says how far it is, and goes on from there."""

    def __init__(self):
        self.read = 0

    def __len__(self):
        return len(SAMPLES) // 2

    def __iter__(self):
        self.read %= len(self)
        while self.read < len(self):
            self.read += 1
            yield {"input_ids": torch.tensor(SAMPLES[2 * self.read - 2 : 2 * self.read])}


class StatefulLoader(Loader):
    def state_dict(self):
        return {"read": self.read}

    def load_state_dict(self, state):
        self.read = state["read"]


class EndAt(lightning.Callback):
    """Kills the process when the next step begins, asks the trainer to stop, or fails."""

    def __init__(self, die_at, stop_at, fail_at):
        self.die_at, self.stop_at, self.fail_at = die_at, stop_at, fail_at

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        step = trainer.global_step
        if step and step == self.die_at:
            die()
        if step == self.fail_at:
            raise RuntimeError("out of memory")
        trainer.should_stop = step == self.stop_at


def main(die_at=0, stop_at=-1, fail_at=-1, resume=False, loader=StatefulLoader, **settings):
    """Two epochs of 10 steps; a step accumulates two batches of two samples."""
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(1, verbose=False)
    checkpoints = ModelCheckpoint("ckpt", filename="{step}", every_n_train_steps=4, save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(
        callbacks=[TreeringCallback("tiny"), EndAt(die_at, stop_at, fail_at), checkpoints],
        **{"accumulate_grad_batches": 2, "max_epochs": 2, "accelerator": "cpu", "logger": False, **settings},
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    validation = torch.utils.data.DataLoader([{"input_ids": torch.tensor(SAMPLES[0])}])
    trainer.fit(Model(), loader(), validation, ckpt_path="ckpt/last.ckpt" if resume else None, weights_only=False)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("unbroken"), main)


def test_a_training_is_on_record_with_its_samples_metrics_and_checkpoints(unbroken):
    found = rings(unbroken)
    assert [ring.step for ring in found] == [*range(1, 21)]
    expected = [digest.removeprefix("sha256:")[:16] for digest in sample_digests(SAMPLES)]
    assert [sample for ring in found for sample in ring.sample_fingerprints] == expected * 2
    assert [ring.metrics["epoch"] for ring in found] == pytest.approx(np.arange(1, 21) / 10)
    assert [ring.metrics["learning_rate"] for ring in found[:3]] == [0.1, 0.05, 0.025]
    assert all(set(ring.metrics) == {"loss", "learning_rate", "epoch", "double_loss"} for ring in found)
    assert found[0].metrics["loss"] == pytest.approx(found[0].metrics["double_loss"] / 2, rel=0.1)
    assert [(each.step, each.path.rpartition("/")[2]) for each in unbroken.checkpoints()] == [
        (step, f"step={step}.ckpt") for step in (4, 8, 12, 16, 20)
    ]
    audit = audit_recorded(unbroken, unbroken.checkpoints()[-1])
    assert (audit.level, audit.holds, audit.steps, audit.state) == (Level.RECORDED, True, 20, "finished")


def test_validations_are_scores_of_their_step(unbroken):
    scored = [line.entry for line in unbroken.journal.lines() if isinstance(line.entry, Scored)]
    assert [(each.step, each.task, set(each.metrics)) for each in scored] == [
        (10, "validation", {"validation_loss"}),
        (20, "validation", {"validation_loss"}),
    ]


def test_an_honest_resume_is_proven_and_equals_the_unbroken_run(tmp_path, unbroken):
    run = killed_and_resumed(tmp_path, main, die_at=7)
    audit = audit_recorded(run)
    (restart,) = audit.restarts
    assert (restart.state, restart.after_step, restart.compared_steps) == ("same samples", 4, 3)
    assert (audit.holds, audit.steps) == (True, 20)
    assert compare_recorded(run, unbroken).first_difference is None


def test_a_loader_that_starts_at_sample_0_is_named_with_its_step(tmp_path, unbroken):
    attempt(tmp_path, main, die_at=7, loader=Loader).join()
    run = finished(tmp_path, main, resume=True, loader=Loader)
    audit = audit_recorded(run)
    (restart,) = audit.restarts
    assert (restart.state, restart.first_difference, restart.repeats_step) == ("other samples", 5, 1)
    assert [(finding.kind, finding.step) for finding in audit.findings] == [("batch", 5)]
    assert compare_recorded(run, unbroken).first_difference == 5


@pytest.mark.parametrize(("how", "end"), [("stop_at", "interrupted"), ("fail_at", "failed")])
def test_a_training_that_ended_early_can_go_on(tmp_path, how, end):
    attempt(tmp_path, main, **{how: 6}).join()
    assert recorded(tmp_path).state() == end
    audit = audit_recorded(finished(tmp_path, main, resume=True))
    assert (audit.holds, audit.steps, audit.state) == (True, 20, "finished")
