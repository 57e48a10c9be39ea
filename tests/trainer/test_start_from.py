"""Runs that start from another run's checkpoint: a longer schedule, another blend, and the audit of both."""

import shutil
from collections import Counter

import pytest
import torch

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.batch import step_batch
from treering.audit.report import Level
from treering.data.order.treering1 import DataOrder
from treering.errors import NotFoundError, UserError
from treering.metrics.run_summary import run_page
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.setup.branch import plan_branch
from treering_dashboard.frames.rings import read_run
from treering_trainer.checkpointing.weights import read_weights

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

DECAY = "--set=schedule.decay_tokens=3200"  # where the reference's ends: the longer run goes on at the lowest rate
LONGER = (DECAY, "--set=schedule.train_tokens=4800")
OTHER_BLEND = ("--set=blend.components.0.weight=0.2", "--set=blend.components.1.weight=0.8")


def start_from(run, step, schedule):
    return (
        f"--set=start_from.run='{run.id}'",
        f"--set=start_from.step={step}",
        f"--set=start_from.schedule={schedule}",
    )


def child_of(runs, parent):
    (path,) = (path for path in runs.glob("*/resolved.json") if path.parent.name != parent.id)
    return RunDirectory(path.parent)


@pytest.fixture
def runs(reference, tmp_path):
    """A folder of runs that holds the reference."""
    shutil.copytree(reference.path, tmp_path / "runs" / reference.path.name)
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def longer(zygote, project, tmp_path_factory):
    """The longer recipe trained at once, from nothing."""
    runs = tmp_path_factory.mktemp("longer")
    zygote.train(project, runs, "--no-publish", *LONGER)
    (path,) = runs.glob("*/resolved.json")
    return RunDirectory(path.parent)


def test_a_finished_run_is_extended(  # noqa: PLR0917 - fixtures
    longer, zygote, project, reference, runs, tmp_path
):
    """As if it had been planned so long from the start: same samples, same losses, same weights."""
    root = tmp_path / "project"
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("published", "metrics", "plots"))
    copy = Project(root)
    printed = zygote.train(copy, runs, *LONGER, *start_from(reference, 15, "continue"))
    assert f"attempt 1 starts from the checkpoint of step 15 of run {reference.id}" in printed
    run = child_of(runs, reference)
    numbers = [
        [(ring.step, ring.sample_start, ring.consumed_samples, ring.batch_digest, ring.loss, ring.learning_rate)
         for ring in each.path_rings(each.checkpoints()[-1])]
        for each in (run, longer)
    ]  # fmt: skip
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) == longer.resolved.schedule.num_steps > 15
    left, right = (read_weights(each.checkpoints()[-1].path) for each in (run, longer))
    assert all(torch.equal(left[name], right[name]) for name in right)
    assert [(segment.run.id, segment.last_step) for segment in run.path_to(run.checkpoints()[-1])] == [
        (reference.id, 15),
        (run.id, len(numbers[0])),
    ]
    # The published folder carries both runs' rings and can be audited where nothing else is.
    shutil.rmtree(runs)
    (published,) = RunDirectory(copy.published).checkpoints()
    report = audit_checkpoint(published, copy, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert [each.run for each in report.path] == [reference.id, run.id]
    assert len((copy.plots / "train.csv").read_text().splitlines()) == 1 + len(numbers[0])


def test_annealing_on_another_blend(zygote, project, reference, runs):
    schedule = ("--set=schedule.train_tokens=512", "--set=schedule.rampup=null", "--set=schedule.warmup_tokens=0")
    options = ("--no-publish", *OTHER_BLEND, *schedule, *start_from(reference, 8, "restart"))
    zygote.train(project, runs, *options, expect=-9, kill_after_ring={"step": 9})
    printed = zygote.train(project, runs, *options)
    assert f"attempt 2 starts from the checkpoint of step 8 of run {reference.id} again" in printed
    run = child_of(runs, reference)
    before = reference.resolved.schedule.samples_after(8)
    own = list(run.attempts()[1].rings())
    assert [(ring.step, ring.sample_start, ring.sample_end, ring.consumed_samples) for ring in own] == [
        (9, 0, 8, before + 8),
        (10, 8, 16, before + 16),
    ]
    assert [ring.learning_rate for ring in own] == [
        run.resolved.schedule.learning_rate(8),
        run.resolved.schedule.learning_rate(16),
    ]
    assert own[0].loss == next(run.attempts()[0].rings()).loss  # twice from the same state
    for header in (attempt.header for attempt in run.attempts()):
        assert (header.origin, header.parent.run, header.parent.step) == ("start", reference.resolved.recipe.digest, 8)
    last = run.checkpoints()[-1]
    assert (last.step, last.manifest.consumed_samples, last.manifest.applied_steps) == (10, before + 16, 10)
    report = audit_checkpoint(last, project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert run_page(run)["path"] == [
        {"run": reference.id, "attempt": 1, "last_step": 8},
        {"run": run.id, "attempt": 2, "last_step": None},
    ]
    # The other run went on to step 15; those steps do not belong to this run, so they are neither replayed nor shown.
    assert [(each.step, each.attempt, each.replaced_steps) for each in read_run(run).restarts] == [(9, 2, 0)]
    with pytest.raises(NotFoundError, match=f"begins after step 8 of run {reference.id}"):
        step_batch(run, 8, project)
    assert "finished at step 10; nothing to train" in zygote.train(project, runs, *options)
    refused = "found start_from.schedule restart, expected continue: .* `treering train FILE .*start_from.skip_steps=N`"
    with pytest.raises(UserError, match=refused):
        plan_branch(run, 10, 1, project, like=project.root / "tiny.yaml")


def test_another_blend_goes_on_where_each_corpus_stopped(zygote, project, reference, runs, tmp_path):
    """Trained, said before training, audited: no sample of a corpus is read twice in an epoch or skipped."""
    options = ("--no-publish", *OTHER_BLEND, *LONGER, *start_from(reference, 8, "continue"))
    uneven = zygote.train(project, runs, *options, "--stop-after=9", expect=75)
    before = reference.resolved.schedule.samples_after(8)
    old, new = DataOrder(reference.resolved.blend), DataOrder(child_of(runs, reference).resolved.blend)
    assert "does not go on where the runs before stopped reading (step 9)" in uneven
    for component, part in enumerate(old.components):
        stopped, begins = old.count(component, before), new.count(component, before)
        assert f"{part.corpus}: stopped at position {stopped:,}, begins at position {begins:,}: " in uneven
    shutil.rmtree(child_of(runs, reference).path)
    printed = zygote.train(project, runs, *options, "--set=start_from.data=continue")
    assert "does not go on" not in printed
    run = child_of(runs, reference)
    order, read = DataOrder(run.resolved.blend), Counter()
    assert order.counts(before) == old.counts(before)
    for each, lo, hi in ((old, 0, before), (order, before, run.resolved.schedule.num_samples)):
        arrays = each.samples(lo, hi)
        read.update(zip(*(getattr(arrays, name).tolist() for name in ("component", "epoch", "index")), strict=True))
    assert set(read.values()) == {1}
    report = audit_checkpoint(run.checkpoints()[-1], project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert all(join.even for join in report.joins)
    # Back to step 12 of that run, over two batches: the branch reads what the run read two steps later.
    branch = plan_branch(run, 13, 2, project, like=project.root / "tiny.yaml")
    (tmp_path / "branch.yaml").write_text(branch.text)
    zygote.train(project, runs, "--no-publish", config=str(tmp_path / "branch.yaml"))
    theirs = {ring.step: ring for ring in run.attempts()[0].rings()}
    first, last = branch.steps
    assert branch.samples == (theirs[first].sample_start, theirs[last].sample_end)
    again = RunDirectory(runs / branch.resolved.run_id)
    mine = {ring.step: ring.batch_digest for ring in again.attempts()[0].rings()}
    both = [step for step in mine if step + 2 in theirs]
    assert [mine[step] for step in both] == [theirs[step + 2].batch_digest for step in both]
    assert min(both) == first == branch.checkpoint.step + 1
    report = audit_checkpoint(again.checkpoints()[-1], project, verify=True)
    assert (report.findings, report.level) == ((), Level.CONTENT_BOUND)
    assert [(each.sample_start, each.sample_end) for each in report.passed_over] == [branch.samples]
    lo, hi = branch.samples
    assert sum(join.never_read for join in report.joins) == hi - lo


def test_a_branch_around_a_spike(zygote, project, reference, runs):
    """Back to step 8 and over the next three batches: the branch reads what the reference read three steps later."""
    skip = "--set=start_from.skip_steps=3"
    printed = zygote.train(project, runs, "--no-publish", DECAY, *start_from(reference, 8, "continue"), skip)
    assert f"attempt 1 starts from the checkpoint of step 8 of run {reference.id}" in printed
    run = child_of(runs, reference)
    theirs = {ring.step: ring for ring in reference.path_rings(reference.checkpoints()[-1])}
    mine = list(run.attempts()[0].rings())
    assert [ring.step for ring in mine] == list(range(9, 16))
    for ring in mine[:4]:
        assert ring.batch_digest == theirs[ring.step + 3].batch_digest
        assert (ring.sample_start, ring.sample_end) == (
            theirs[ring.step + 3].sample_start,
            theirs[ring.step + 3].sample_end,
        )
    for ring in mine:
        assert (ring.consumed_samples, ring.learning_rate) == (
            theirs[ring.step].consumed_samples,
            theirs[ring.step].learning_rate,
        )
    report = audit_checkpoint(run.checkpoints()[-1], project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    gap = (theirs[9].sample_start, theirs[11].sample_end)
    assert [(each.step, each.sample_start, each.sample_end) for each in report.passed_over] == [(9, *gap)]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            ("--set=start_from.step=9",),
            2,
            "no checkpoint of step 9, where start_from starts; its steps are 4, 8, 12, 15",
        ),
        (("--set=start_from.step=16",), 2, "start_from.step: found 16, expected a step of run {run}: 1 to 15"),
        (("--set=start_from.run=abcd",), 2, "start_from.run: found 'abcd': no such run in"),
        (("--set=model.hidden_size=64",), 2, "as run {run} has it"),
        (("--set=schedule.rampup=null",), 2, "as run {run} had consumed"),
        (
            ("--set=schedule.train_tokens=1000",),
            2,
            "schedule.train_tokens: found 1000, which step 6 reaches, expected more than the 1536",
        ),
    ],
    ids=["no checkpoint", "no step", "no run", "another model", "other batches", "over already"],
)
def test_starts_that_do_not_fit(options, code, said, zygote, project, reference, runs):  # noqa: PLR0917 - the case
    start = start_from(reference, 8, "continue")
    printed = zygote.train(project, runs, "--no-publish", *LONGER, *start, *options, expect=code)
    assert said.format(run=reference.id) in printed
    assert "Traceback" not in printed


def test_a_damaged_checkpoint_is_no_start(zygote, project, reference, runs):
    path = runs / reference.path.name / "checkpoints" / "step-00000008"
    next(path.rglob("layer_00*")).write_bytes(b"")
    printed = zygote.train(project, runs, "--no-publish", *LONGER, *start_from(reference, 8, "continue"), expect=3)
    assert "step-00000008" in printed
    assert "0 bytes, expected" in printed
