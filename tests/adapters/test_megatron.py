"""A `get_batch` of the form of Megatron-LM's `pretrain_gpt.py` over megatron-core records what its ranks read."""

import argparse
import json
import os
from pathlib import Path

import megatron_run
import numpy as np
import pytest
from attempts import attempt, die, finished, killed_and_resumed, recorded, rings
from ports import free_port
from typer.testing import CliRunner

from treering.audit.recorded.difference import compare_recorded
from treering.audit.recorded.report import audit_recorded
from treering.audit.report import Level
from treering.cli import app
from treering.data.order.batch import sample_digests

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from megatron.core import parallel_state  # noqa: E402
from megatron.core.num_microbatches_calculator import (  # noqa: E402
    init_num_microbatches_calculator,
    update_num_microbatches,
)

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


LAUNCH = {
    "data_path": megatron_run.BLEND,
    "split": "100,0,0",
    "train_iters": 6,
    "train_samples": 40,
    "rampup_batch_size": ["4", "4", "8"],
}
SKIPPED_STEP = 3


def train_on_blend(die_at=0, resume=False, from_sample_0=False):
    """As Megatron-LM trains on megatron-core's datasets: a blend, a batch size that grows, a step that is skipped."""
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    rank, world = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    args = megatron_run.arguments(**LAUNCH, iterations_to_skip=[SKIPPED_STEP - 1])
    args.iteration = json.loads(Path("iteration.json").read_text()) if resume else 0
    dataset = megatron_run.datasets(args)[0]
    steps = list(megatron_run.batches(args, args.train_iters))[args.iteration :]
    init_num_microbatches_calculator(0, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size, world)
    recording = record_batches(lambda data: (next(data), None, None), lambda: args, "blend")
    behind = steps[0].start if from_sample_0 else 0
    for done, samples in enumerate(steps, args.iteration):
        update_num_microbatches(samples.start)
        torch.distributed.barrier()
        if done + 1 == SKIPPED_STEP:
            continue
        args.curr_iteration = done
        for first in range(samples.start - behind, samples.stop - behind, world):
            recording(iter([dataset[first + rank]["tokens"][None]]))
        if rank == 0 and done + 1 in (4, args.train_iters):
            Path("iteration.json").write_text(json.dumps(done + 1))
            megatron_run.save(Path("ckpt"), args, done + 1, consumed=samples.stop)
        if done + 1 == die_at:
            die()


@pytest.fixture
def blend_folder(tmp_path, monkeypatch):
    megatron_run.write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def on_two_ranks(folder, **settings):
    port = free_port()
    ranks = [attempt(folder, train_on_blend, rank=rank, world_size=2, port=port, **settings) for rank in range(2)]
    for process in ranks:
        process.join()


def audit_by_order(folder):
    result = CliRunner().invoke(app, ["audit", recorded(folder).id, "--megatron-run", "ckpt", "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_megatrons_order_makes_the_record_content_bound(blend_folder):
    on_two_ranks(blend_folder, die_at=5)
    on_two_ranks(blend_folder, resume=True)
    code, found = audit_by_order(blend_folder)
    assert (code, found["level"], found["findings"]) == (0, "content-bound", [])
    assert (found["steps"], found["steps_content_bound"], found["samples"]) == (5, 5, 4 + 4 + 8 + 8 + 8)
    assert found["order"].startswith("Megatron's order of lineage megatron-core")
    assert "ckpt" in found["order"]

    token_file = blend_folder / "data/books.bin"
    tokens = np.fromfile(token_file, np.uint16)
    tokens[130] += 1
    tokens.tofile(token_file)
    code, found = audit_by_order(blend_folder)
    assert (code, found["level"], found["steps_content_bound"]) == (3, "declared", 4)
    assert "was fed other samples than" in found["findings"][0]["text"]


def test_megatrons_order_names_the_step_of_a_loader_that_starts_again(blend_folder):
    on_two_ranks(blend_folder, die_at=4)
    on_two_ranks(blend_folder, resume=True, from_sample_0=True)
    code, found = audit_by_order(blend_folder)
    assert code == 3
    assert [each["step"] for each in found["findings"]][:2] == [5, 6]
    assert found["steps_content_bound"] == 3
