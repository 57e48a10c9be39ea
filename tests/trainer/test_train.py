"""A recipe twice, with and without what must not matter, from launchers of all kinds: the same batches and losses."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from trained import assert_same_weights, numbers, rings, run_of

from treering.data.corpus.corpus import Corpus
from treering.data.order.batch import batch_digest, read_samples, sample_digests
from treering.data.order.treering1 import DataOrder
from treering.runlog import lock
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing import checkpoint

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


def test_trains_and_validates(reference):
    found = rings(reference)
    assert found[-1].loss < found[0].loss - 0.5
    steps = {ring.step: ring.validation for ring in found if ring.validation}
    assert set(steps) == {1, 5, 10, 15}
    last = steps[15]
    assert last["loss"] == pytest.approx(0.7 * last["by_corpus"]["letters"] + 0.3 * last["by_corpus"]["numbers"])
    assert last["loss"] < steps[1]["loss"] - 0.5


def test_learning_rate_and_batch_follow_the_schedule(reference):
    schedule = reference.resolved.schedule
    for ring in rings(reference):
        assert (ring.sample_start, ring.sample_end) == schedule.sample_range(ring.step)
        assert ring.global_batch_size == ring.sample_end - ring.sample_start
        assert ring.learning_rate == schedule.step_learning_rate(ring.step)
        assert ring.applied


def test_batch_digests_are_those_of_the_corpora(project, reference):
    blend = reference.resolved.blend
    corpora = [Corpus.open(project.corpus(component.corpus)) for component in blend.components]
    order = DataOrder(blend)
    for ring in rings(reference):
        tokens = read_samples(order, corpora, ring.sample_start, ring.sample_end)
        assert batch_digest(sample_digests(tokens)) == ring.batch_digest


def test_twice_is_bit_identical(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path)
    again = run_of(tmp_path)
    assert numbers(rings(again)) == numbers(rings(reference))
    assert_same_weights(again, reference)


def test_validation_leaves_no_trace(zygote, project, reference, tmp_path):
    zygote.train(project, tmp_path, "--set=validation=null")
    without = run_of(tmp_path)
    assert [ring.loss for ring in rings(without)] == [ring.loss for ring in rings(reference)]
    assert_same_weights(without, reference)


def test_dropout_needs_no_saved_state(zygote, project, tmp_path):
    """Masks come from the step's number: a resumed run draws the same."""
    zygote.train(project, tmp_path / "whole", "--set=model.dropout=0.1")
    zygote.train(project, tmp_path / "cut", "--set=model.dropout=0.1", expect=-9, kill_after_ring={"step": 6})
    zygote.train(project, tmp_path / "cut", "--set=model.dropout=0.1")
    whole, cut = run_of(tmp_path / "whole"), run_of(tmp_path / "cut")
    assert numbers(rings(cut)) == numbers(rings(whole))
    assert_same_weights(cut, whole)


def test_bf16_and_recompute(zygote, project, tmp_path):
    zygote.train(project, tmp_path, "--set=precision=bf16", "--set=parallel.activation_recompute=full")
    found = rings(run_of(tmp_path))
    assert found[-1].loss < found[0].loss - 0.5


def test_untied_embeddings_in_a_pipeline(zygote, project, tmp_path):
    for name, layout in (("one", "parallel.data=1"), ("two", "parallel.pipeline=2")):
        zygote.train(project, tmp_path / name, "--set=model.tied_embeddings=false", f"--set={layout}")
    one, two = (rings(run_of(tmp_path / name)) for name in ("one", "two"))
    assert [ring.loss for ring in one] == pytest.approx([ring.loss for ring in two], abs=5e-6)


def test_finished_run_says_so_and_publishes(zygote, project, reference):
    before = len(reference.attempts())
    shutil.rmtree(project.published, ignore_errors=True)
    printed = zygote.train(project, reference.path.parent)
    assert "finished at step 15; nothing to train" in printed
    assert len(RunDirectory(reference.path).attempts()) == before
    published = RunDirectory(project.published)
    (final,) = published.checkpoints()
    assert final.digest == reference.checkpoints()[-1].digest
    assert published.resolved.recipe == reference.resolved.recipe
    found = list(published.path_rings(final))
    assert [ring.step for ring in found] == list(range(1, 16))
    metrics = json.loads((project.metrics / "train.json").read_text())
    assert metrics["loss"]["last"] == found[-1].loss
    assert metrics["tokens"] == found[-1].consumed_tokens
    table = (project.plots / "train.csv").read_text().splitlines()
    assert table[0].split(",")[:3] == ["step", "tokens", "loss"]
    assert len(table) == 16
    assert "published" not in zygote.train(project, reference.path.parent)
    # The published files may be damaged, or another run's.
    next(final.path.rglob("layer_00*")).write_bytes(b"")
    (project.metrics / "train.json").write_text('{"run": "another"}')
    (project.plots / "train.csv").write_text("step\n")
    assert "published step-00000015" in zygote.train(project, reference.path.parent)
    checkpoint.verify(published.checkpoints()[0])
    assert json.loads((project.metrics / "train.json").read_text()) == metrics
    assert (project.plots / "train.csv").read_text().splitlines() == table


def test_outside_the_pipeline(zygote, project, reference, tmp_path):
    """A second blend trains beside the project's and leaves its published checkpoint alone."""
    zygote.train(project, reference.path.parent)
    before = {path: path.read_bytes() for path in project.published.rglob("*") if path.is_file()}
    other = [f'--set=blend.components.{number}.weight="0.5"' for number in (0, 1)]
    refused = zygote.train(project, tmp_path, *other, expect=2)
    assert "blend.components" in refused
    zygote.train(project, tmp_path, *other, "--no-publish")
    run = run_of(tmp_path)
    assert run.resolved.blend.digest != reference.resolved.blend.digest
    assert rings(run)[0].batch_digest != rings(reference)[0].batch_digest
    assert before == {path: path.read_bytes() for path in project.published.rglob("*") if path.is_file()}


def test_header_records_what_ran(reference):
    header = reference.attempts()[0].header
    used = {kernel.operation: kernel.used for kernel in header.kernels}
    assert used["optimizer"] == "torch_fused"
    assert used["attention"] == "sdpa_flash"
    assert "not seen" not in used.values()
    assert header.code["digest"].startswith("sha256:")
    assert header.environment["threads_per_rank"] >= 1
    assert set(header.corpora) == {"letters", "numbers"}
    assert reference.attempts()[0].end.status == "finished"
    assert set(reference.attempts()[0].telemetry.read().readings.ranks.tolist()) == {-1, 0, 1}


def test_kernels_are_found_out_not_assumed(zygote, project, tmp_path):
    zygote.train(project, tmp_path, "--set=kernels.attention=sdpa_math", "--set=kernels.optimizer=torch")
    used = {kernel.operation: kernel.used for kernel in run_of(tmp_path).attempts()[0].header.kernels}
    assert used["attention"] == "sdpa_math"
    assert used["softmax"] == "torch"
    assert used["optimizer"] in ("torch", "torch_foreach")


def test_locked_run_is_refused(zygote, project, reference):
    descriptor = lock.acquire(reference.lock)
    try:
        printed = zygote.train(project, reference.path.parent, expect=75)
    finally:
        os.close(descriptor)
    assert "another process group trains this run" in printed


def test_an_interpreter_a_rank(project, reference, tmp_path):
    """How ranks start where there are GPUs: nothing is forked; it does the same without them."""
    start = (
        "import sys; from pathlib import Path; from treering_trainer.launch import start; "
        "from treering.runlog.directory import RunDirectory; "
        f"run = RunDirectory(Path({str(tmp_path / reference.path.name)!r})); "
        "sys.exit(start._watch_interpreters(2, sys.argv[1:], run, 600.0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, "tiny.yaml", f"--runs={tmp_path}", "--no-publish"],
        cwd=project.root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "step 15/15" in done.stderr
    assert numbers(rings(run_of(tmp_path))) == numbers(rings(reference))
    header = run_of(tmp_path).attempts()[0].header
    assert (header.launch, len(header.nodes)) == (None, 1)


def test_outer_launcher_is_honoured(project, reference, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, "-m", "treering_trainer.launch", "tiny.yaml", f"--runs={tmp_path}"],
        cwd=project.root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    run = run_of(tmp_path)
    assert numbers(rings(run)) == numbers(rings(reference))
    assert run.state() == "finished"
    assert run.attempts()[0].header.launch == {"launcher": "torchrun"}
    assert f"run {run.id}: finished; checkpoints are in" in done.stderr
