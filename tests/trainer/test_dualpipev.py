"""DeepSpeed's DualPipeV: another schedule, the same batches and losses."""

import pytest
from trained import assert_same_weights, numbers, options, resolved, rings, run_of

from treering.errors import ConfigError
from treering_trainer.checkpointing.weights import read_weights

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

COMMON = options(
    ("model.num_layers=8", "parallel.micro_batch_size=1", "schedule.rampup=null", "schedule.train_tokens=2048")
)
FOLD = ("parallel.pipeline_schedule=dualpipev", "parallel.pipeline=2")
FOLDED = options(FOLD)


@pytest.fixture(scope="module")
def plain(zygote, project, tmp_path_factory):
    runs = tmp_path_factory.mktemp("plain")
    zygote.train(project, runs, *COMMON, "--set=parallel.data=1", "--no-publish")
    return run_of(runs)


@pytest.mark.parametrize(
    ("sizes", "more"),
    [
        (("parallel.data=1",), ()),
        (
            ("parallel.tensor=2", "parallel.data=2"),
            ("parallel.activation_recompute=full", "parallel.recompute_interval=2"),
        ),
    ],
)
def test_losses_are_those_of_one_process(  # noqa: PLR0917 - two of them are the case
    sizes, more, plain, zygote, project, tmp_path
):
    zygote.train(project, tmp_path, *COMMON, *FOLDED, *options(sizes + more), "--no-publish")
    run = run_of(tmp_path)
    assert run.attempts()[0].header.layout.pipeline_schedule == "dualpipev"
    ours, theirs = rings(run), rings(plain)
    assert [ring.batch_digest for ring in ours] == [ring.batch_digest for ring in theirs]
    assert len(ours) == 8
    for one, other in zip(ours, theirs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=5e-6)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-5)
        if other.validation:
            assert one.validation["loss"] == pytest.approx(other.validation["loss"], abs=5e-6)
    left, right = (read_weights(each.checkpoints()[-1].path) for each in (run, plain))
    assert left.keys() == right.keys()


def test_resumes_bit_identically(zygote, project, tmp_path):
    """Through a batch ramp, in bf16 and with dropout; validation between needs other numbers of micro-batches."""
    settings = options(
        (
            "model.num_layers=4",
            "parallel.data=1",
            "parallel.micro_batch_size=1",
            "precision=bf16",
            "model.dropout=0.1",
        )
    )
    for name in ("whole", "cut"):
        if name == "cut":
            kill = {"kill_after_ring": {"step": 6}}
            zygote.train(project, tmp_path / name, *settings, *FOLDED, "--no-publish", expect=-9, **kill)
        printed = zygote.train(project, tmp_path / name, *settings, *FOLDED, "--no-publish")
    assert "goes on from the checkpoint of step 4" in printed
    whole, cut = run_of(tmp_path / "whole"), run_of(tmp_path / "cut")
    assert [ring.global_batch_size for ring in rings(cut)][:5] == [4, 4, 4, 4, 8]
    assert numbers(rings(cut)) == numbers(rings(whole))
    assert_same_weights(cut, whole)


def test_the_schedule_is_part_of_the_layout(zygote, project, tmp_path):
    """Its stages have other layers: a checkpoint of one schedule must be converted for the other."""
    settings = options(("model.num_layers=4", "parallel.data=1", "parallel.micro_batch_size=1"))
    zygote.train(
        project,
        tmp_path,
        *settings,
        "--set=parallel.pipeline=2",
        "--no-publish",
        expect=-9,
        kill_after_ring={"step": 6},
    )
    printed = zygote.train(project, tmp_path, *settings, *FOLDED, "--no-publish")
    assert "starts from nothing again" in printed


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("parallel.pipeline_schedule=dualpipev",), "dualpipev with pipeline 1"),
        ((*FOLD, "model.num_layers=6"), r"6, expected a number divisible by 2 x parallel.pipeline \(dualpipev\) = 4"),
        ((*FOLD, "model.num_layers=4"), "a stage with global batch 4 from step 1 on, .* at least 4 micro-batches"),
        (
            (*FOLD, "model.num_layers=4", "parallel.activation_recompute=full", "parallel.recompute_interval=2"),
            "at most 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused(settings, text, project):
    with pytest.raises(ConfigError, match=text):
        resolved(project, *settings)
