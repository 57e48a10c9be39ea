"""A `get_batch` of the form of Megatron-LM's `pretrain_gpt.py` over megatron-core records what its ranks read."""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pytest
from attempts import attempt, die, finished, killed_and_resumed, recorded, rings

from treering.audit.recorded.difference import compare_recorded
from treering.audit.recorded.report import audit_recorded
from treering.audit.report import Level
from treering.data.order.batch import sample_digests
from treering_trainer.monitor.processes import free_port

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from megatron.core import parallel_state  # noqa: E402
from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator  # noqa: E402

from treering_adapters.megatron import record_batches  # noqa: E402

pytestmark = pytest.mark.slow

SAMPLES = np.random.default_rng(1).integers(0, 64, (64, 9))
STEPS, BATCH, MICRO = 8, 4, 2


def get_batch(data_iterator):
    """As in `pretrain_gpt.py`: the first stage has the tokens, the last one the labels, others nothing."""
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    if not first and not last:
        return None, None, None, None, None
    tokens = torch.tensor(next(data_iterator))
    batch = {
        "tokens": tokens[:, :-1] if first else None,
        "labels": tokens[:, 1:] if last else None,
        "loss_mask": None,
        "attention_mask": None,
        "position_ids": None,
    }
    return batch.values()


def main(die_at=0, resume=False, from_sample_0=False, tensor=1, pipeline=1):
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    os.environ |= {} if "RANK" in os.environ else alone
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor, pipeline)
    rank, world = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    init_num_microbatches_calculator(0, None, BATCH, MICRO, world)
    iteration = json.loads(Path("iteration.json").read_text()) if resume else 0
    args = argparse.Namespace(iteration=iteration, train_iters=STEPS, global_batch_size=BATCH)
    recording = record_batches(get_batch, lambda: args, "gpt")
    read = iter(range(0 if from_sample_0 else iteration * BATCH, STEPS * BATCH, MICRO * world))
    data = (SAMPLES[first + rank * MICRO : first + (rank + 1) * MICRO] for first in read)
    for step in range(iteration + 1, STEPS + 1):
        for _ in range(BATCH // MICRO // world):
            batch = recording(data)
            assert len(batch) == 5
        torch.distributed.barrier()  # as the reduction of gradients
        with torch.no_grad():
            recording(iter([SAMPLES[:MICRO]]))  # an evaluation
        if step % 3 == 0:
            Path("iteration.json").write_text(json.dumps(step))
        if step == die_at:
            die()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("unbroken"), main)


def test_what_get_batch_returns_is_on_record(unbroken):
    found = rings(unbroken)
    assert [ring.step for ring in found] == [*range(1, 9)]
    expected = [digest.removeprefix("sha256:")[:16] for digest in sample_digests(SAMPLES[:32, :-1])]
    assert [sample for ring in found for sample in ring.sample_fingerprints] == expected
    audit = audit_recorded(unbroken)
    assert (audit.level, audit.holds, audit.steps, audit.state) == (Level.RECORDED, True, 8, "finished")


def test_an_honest_resume_is_proven_and_equals_the_unbroken_run(tmp_path, unbroken):
    run = killed_and_resumed(tmp_path, main, die_at=5)
    audit = audit_recorded(run)
    assert [(each.state, each.after_step, each.compared_steps) for each in audit.restarts] == [("same samples", 3, 2)]
    assert (audit.holds, audit.steps) == (True, 8)
    assert compare_recorded(run, unbroken).first_difference is None


def test_a_loader_that_starts_at_sample_0_is_named_with_its_step(tmp_path, unbroken):
    run = killed_and_resumed(tmp_path, main, die_at=5, from_sample_0=True)
    audit = audit_recorded(run)
    assert [(each.first_difference, each.repeats_step) for each in audit.restarts] == [(4, 1)]
    assert [(finding.kind, finding.step) for finding in audit.findings] == [("batch", 4)]
    assert compare_recorded(run, unbroken).first_difference == 4


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (1, 2)])
def test_one_of_the_ranks_with_the_same_samples_records(tmp_path, unbroken, tensor, pipeline):
    settings = {"world_size": 2, "port": free_port(), "tensor": tensor, "pipeline": pipeline}
    ranks = [attempt(tmp_path, main, rank=rank, **settings) for rank in range(2)]
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0, 0]
    run = recorded(tmp_path)
    assert run.attempts()[0].ranks() == ([0, 1] if tensor == pipeline == 1 else [0])
    difference = compare_recorded(run, unbroken)
    assert (difference.first_difference, difference.compared_steps) == (None, 8)
