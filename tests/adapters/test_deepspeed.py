"""A real engine of DeepSpeed records, is killed and resumed from its own checkpoint."""

import csv
import os

import numpy as np
import pytest
from attempts import attempt, die, finished, killed_and_resumed, recorded, rings
from ports import free_port

from treering.audit.recorded.difference import compare_recorded
from treering.audit.recorded.report import audit_recorded
from treering.audit.report import Level
from treering.data.order.batch import sample_digests
from treering.errors import UserError

os.environ["DS_ACCELERATOR"] = "cpu"
torch = pytest.importorskip("torch")
deepspeed = pytest.importorskip("deepspeed")

# `initialize` imports it: once, before the forks.
from deepspeed.runtime.zero.muon import muon_optimizer  # noqa: E402, F401

from treering_adapters.deepspeed import TreeringMonitor  # noqa: E402

pytestmark = pytest.mark.slow

SAMPLES = np.random.default_rng(1).integers(0, 64, (80, 9))
STEPS, MICRO, ACCUMULATION = 8, 2, 2


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(64, 16)
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 64))

    def forward(self, input_ids):
        logits = self.layers(self.embed(input_ids[:, :-1]))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten())


def alone():
    return {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": str(free_port())}


def main(die_at=0, resume=False, from_sample_0=False, pipeline=False):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", **({} if "RANK" in os.environ else alone())}
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(1)
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": MICRO,
        "gradient_accumulation_steps": ACCUMULATION,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 1},
        "csv_monitor": {"enabled": True, "output_path": "csv", "job_name": "tiny"},
    }
    if pipeline:
        model = deepspeed.pipe.PipelineModule([torch.nn.Linear(2, 2)], num_stages=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if pipeline:
        with pytest.raises(UserError, match="found a PipelineEngine"):
            TreeringMonitor(engine, "tiny")
        return
    if resume:
        engine.load_checkpoint("ckpt")
    monitor = TreeringMonitor(engine, "tiny")
    rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    position = 0 if from_sample_0 else engine.global_steps * ACCUMULATION
    while engine.global_steps < STEPS:
        for _ in range(ACCUMULATION):
            first = (position * world + rank) * MICRO
            loss = engine(torch.tensor(SAMPLES[first : first + MICRO]))
            engine.backward(loss)
            engine.monitor.write_events([("position", position, 0)])
            engine.step()
            position += 1
        if engine.global_steps % 3 == 0:
            engine.eval()
            engine(torch.tensor(SAMPLES[:MICRO]))  # an evaluation is no training
            engine.train()
            engine.save_checkpoint("ckpt")
        if engine.global_steps == die_at:
            die()
    monitor.run.finish()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("unbroken"), main)


def test_a_training_is_on_record_with_its_samples_metrics_and_checkpoints(unbroken):
    found = rings(unbroken)
    assert [ring.step for ring in found] == [*range(1, 9)]
    expected = [digest.removeprefix("sha256:")[:16] for digest in sample_digests(SAMPLES[:32])]
    assert [sample for ring in found for sample in ring.sample_fingerprints] == expected
    assert set(found[0].metrics) == {"loss", "grad_norm", "learning_rate", "position"}
    assert (found[0].metrics["learning_rate"], found[3].metrics["position"]) == (0.01, 7)
    assert 3.5 < found[0].metrics["loss"] < 5
    assert [each.step for each in unbroken.checkpoints()] == [3, 6]
    audit = audit_recorded(unbroken, unbroken.checkpoints()[-1])
    assert (audit.level, audit.holds, audit.steps, audit.state) == (Level.RECORDED, True, 6, "finished")


def test_the_engines_own_monitor_still_gets_its_events(unbroken):
    (file,) = unbroken.path.parents[1].glob("csv/tiny/*lr.csv")
    assert len(list(csv.reader(file.open()))) == 1 + 8


def test_an_honest_resume_is_proven_and_equals_the_unbroken_run(tmp_path, unbroken):
    run = killed_and_resumed(tmp_path, main, die_at=5)
    audit = audit_recorded(run)
    (restart,) = audit.restarts
    assert (restart.state, restart.after_step, restart.compared_steps) == ("same samples", 3, 2)
    assert (audit.holds, audit.steps) == (True, 8)
    assert compare_recorded(run, unbroken).first_difference is None
    assert rings(run, 2)[-1].metrics["loss"] == pytest.approx(rings(unbroken)[-1].metrics["loss"])


def test_a_loader_that_starts_at_sample_0_is_named_with_its_step(tmp_path, unbroken):
    run = killed_and_resumed(tmp_path, main, die_at=5, from_sample_0=True)
    audit = audit_recorded(run)
    (restart,) = audit.restarts
    assert (restart.state, restart.first_difference, restart.repeats_step) == ("other samples", 4, 1)
    assert [(finding.kind, finding.step) for finding in audit.findings] == [("batch", 4)]
    assert compare_recorded(run, unbroken).first_difference == 4


def test_two_ranks_record_what_each_was_given(tmp_path):
    port = free_port()
    ranks = [attempt(tmp_path, main, rank=rank, world_size=2, port=port) for rank in range(2)]
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0, 0]
    audit = audit_recorded(recorded(tmp_path))
    assert (audit.level, audit.steps, audit.samples, audit.different_samples) == (Level.RECORDED, 8, 64, 64)


def test_a_pipeline_is_refused(tmp_path):
    process = attempt(tmp_path, main, pipeline=True)
    process.join()
    assert process.exitcode == 0
