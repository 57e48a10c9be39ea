"""A run that goes on from another run's checkpoint on a blend of its own: the audit follows into both."""

import json
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest
import run_records

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.difference import compare_checkpoints
from treering.audit.documents.exposure_index import corpora_of, find_exposures
from treering.audit.documents.readers import recover_ancestries
from treering.audit.report import Level, PassedOver
from treering.data.blend.joins import start_lines
from treering.data.order.treering1 import DataOrder
from treering.errors import ConfigError
from treering.runlog.directory import RunDirectory

SHIFTED = ("blend.components.0.weight='0.1'", "blend.components.2.weight='0.6'")


def start_from(built, schedule):
    return (
        f"start_from.run='{built.run.id}'",
        "start_from.step=6",
        f"start_from.schedule={schedule}",
    )


@pytest.fixture
def annealed(built):
    """Steps 1 to 6 in the first run, 7 to 12 in one whose blend favours another corpus; the schedule goes on."""
    run = built.start_run(*SHIFTED, *start_from(built, "continue"))
    rings = built.lay_attempt(run, 1, range(7, 13), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    return run


def test_both_blends_are_bound_to_content(built, annealed):
    report = audit_checkpoint(annealed.checkpoints()[0], built.project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert [(each.run, each.attempt, each.first_step, each.last_step) for each in report.path] == [
        (built.run.id, 1, 1, 6),
        (annealed.id, 1, 7, 12),
    ]


def test_usage_adds_up_over_both_blends(built, annealed):
    report = audit_checkpoint(annealed.checkpoints()[0], built.project)
    seam, end = built.schedule.samples_after(6), built.schedule.samples_after(12)
    offsets = {name: corpus.document_offsets for name, corpus in built.corpora.items()}
    after = DataOrder(annealed.resolved.blend, offsets)
    samples, documents = defaultdict(int), defaultdict(set)
    for order, numbers in ((built.order, range(seam)), (after, range(seam, end))):
        for g in numbers:
            sample = order.sample(g)
            name = order.components[sample.component].corpus
            samples[name] += 1
            documents[name] |= {span.document for span in sample.spans}
    shares = {"red": (0.5, 0.1), "green": (0.3, 0.3), "blue": (0.2, 0.6)}
    for usage in report.corpora:
        epoch = (built.corpora[usage.corpus].num_tokens - 1) // 16
        before, later = shares[usage.corpus]
        assert usage.samples == samples[usage.corpus]
        assert usage.documents_touched == len(documents[usage.corpus])
        assert usage.planned_epochs == pytest.approx((before * seam + later * (end - seam)) / epoch)
        assert usage.realised_epochs == pytest.approx(samples[usage.corpus] / epoch)
    assert sum(usage.samples for usage in report.corpora) == report.consumed_samples == end


def test_damage_is_dated_by_the_blend_that_read_it(built, annealed):
    """A document that only the second blend read; what that blend held before the seam was never read."""
    after = DataOrder(annealed.resolved.blend, {"blue": built.corpora["blue"].document_offsets})
    seam, end = built.schedule.samples_after(6), built.schedule.samples_after(12)
    early = {
        span.document for g in range(seam) if (sample := built.order.sample(g)).component == 2 for span in sample.spans
    }
    readers = defaultdict(list)
    for sample in (after.sample(g) for g in range(end)):
        for span in sample.spans:
            readers[span.document].append(sample.g)
    document, exposures = next(
        (document, exposures)
        for document, exposures in readers.items()
        if document not in early and exposures[0] < seam <= exposures[-1]
    )
    path = built.corpora["blue"].directory / "corpus.bin"
    data = bytearray(path.read_bytes())
    data[int(built.corpora["blue"].document_offsets[document]) * 2] ^= 1
    path.write_bytes(data)
    report = audit_checkpoint(annealed.checkpoints()[0], built.project, verify=True)
    finding = next(finding for finding in report.findings if finding.kind == "corpus")
    assert finding.document == f"blue-{document}"
    assert finding.step == built.schedule.step_of_sample(next(g for g in exposures if g >= seam))


def test_a_schedule_of_its_own_reads_its_blend_from_the_beginning(built):
    run = built.start_run(*SHIFTED, *start_from(built, "restart"), "schedule.rampup=null")
    schedule = run.resolved.schedule
    assert (schedule.sample_range(7), schedule.sample_range(8)) == ((0, 16), (16, 32))
    assert schedule.num_steps == 6 + 160 // 16
    rings = built.lay_attempt(run, 1, range(7, 11), run_records.parent(built.first))
    before = built.schedule.samples_after(6)
    assert [ring.consumed_samples - before for ring in rings] == [16, 32, 48, 64]
    built.cut_checkpoint(run, 1, rings[-1])
    report = audit_checkpoint(run.checkpoints()[0], built.project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert report.consumed_samples == sum(usage.samples for usage in report.corpora) == before + 64
    after = DataOrder(run.resolved.blend)
    for position, usage in enumerate(report.corpora):
        assert usage.samples == built.order.count(position, before) + after.count(position, 64)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _parent: None, "comes from nothing, expected step 6 of run"),
        (lambda parent: parent.model_copy(update={"step": 5}), "comes from step 5 of run"),
    ],
    ids=["from nothing", "other step"],
)
def test_a_path_that_does_not_start_where_its_recipe_says(change, said, built):
    run = built.start_run(*SHIFTED, *start_from(built, "continue"))
    rings = built.lay_attempt(run, 1, range(7, 9), change(run_records.parent(built.first)))
    built.cut_checkpoint(run, 1, rings[-1])
    report = audit_checkpoint(run.checkpoints()[0], built.project)
    assert said in report.findings[0].text
    assert report.level is Level.REDERIVED


def test_a_run_that_starts_from_nothing_has_no_ancestor(built):
    run = built.start_run(*SHIFTED)
    rings = built.lay_attempt(run, 1, range(7, 9), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    report = audit_checkpoint(run.checkpoints()[0], built.project)
    assert "expected nothing by start_from" in report.findings[0].text
    assert report.level is Level.REDERIVED


@pytest.fixture
def around(built):
    """Back from step 9 to step 6, on in a run that passes over the batches of three steps."""
    run = built.start_run(*start_from(built, "continue"), "start_from.skip_steps=3")
    rings = built.lay_attempt(run, 1, range(7, 11), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    return run


def test_samples_passed_over_are_neither_read_nor_applied(built, around):
    seam, end = built.schedule.samples_after(6), built.schedule.samples_after(9)
    assert around.resolved.schedule.samples_of(7, 10) == (end, end + built.schedule.samples_after(10) - seam)
    report = audit_checkpoint(around.checkpoints()[0], built.project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert report.passed_over == (PassedOver(around.id, 7, seam, end),)
    assert report.consumed_samples == sum(usage.samples for usage in report.corpora) == built.schedule.samples_after(10)
    found = compare_checkpoints(around.checkpoints()[0], built.last, built.project)
    assert found.first_step == 7
    ranges = (*around.resolved.schedule.sample_range(7), *built.schedule.sample_range(7))
    expected = "{:,} and 0 samples were passed over: samples {:,} to {:,} and {:,} to {:,}".format(end - seam, *ranges)
    assert found.reason == expected


def test_a_document_of_the_batches_passed_over_is_off_the_path(built, around):
    seam, end = built.schedule.samples_after(6), built.schedule.samples_after(9)
    read = [*range(seam), *range(end, end + built.schedule.samples_after(10) - seam)]
    held = [
        {
            (sample.component, span.document)
            for g in numbers
            for sample in [built.order.sample(g)]
            for span in sample.spans
        }
        for numbers in (read, range(seam, end))
    ]
    component, document = min(held[1] - held[0])
    catalog, _ = corpora_of(built.project, [built.run, around])
    corpus = list(built.corpora.values())[component]
    ancestries, _ = recover_ancestries([built.run, around], built.project)
    exposed = find_exposures([built.run, around], {corpus.digest: np.array([document])}, catalog, ancestries=ancestries)
    seen = {(each.run, each.step): each for each in exposed.checkpoints()}
    assert seen[around.id, 10].clean
    assert not seen[built.run.id, built.last.step].clean
    assert all(built.run.id == each.run for traced in exposed.traced() for each in traced.exposures)


def test_passing_over_twice_adds_up(built, around):
    """Another spike, another branch: from the branch's checkpoint, over the next two batches."""
    options = (f"start_from.run='{around.id}'", "start_from.step=10", "start_from.schedule=continue")
    run = built.start_run(*options, "start_from.skip_steps=2")
    rings = built.lay_attempt(run, 1, range(11, 13), run_records.parent(around.checkpoints()[0]))
    built.cut_checkpoint(run, 1, rings[-1])
    report = audit_checkpoint(run.checkpoints()[0], built.project, verify=True)
    assert report.findings == ()
    first = built.schedule.samples_after(9) - built.schedule.samples_after(6)
    second = built.schedule.samples_after(10) + first
    assert report.passed_over == (
        PassedOver(around.id, 7, built.schedule.samples_after(6), built.schedule.samples_after(9)),
        PassedOver(run.id, 11, second, second + 2 * 16),
    )
    assert run.resolved.schedule.sample_range(11) == (second + 2 * 16, second + 3 * 16)


def test_a_restarted_schedule_begins_after_the_samples_passed_over(built):
    options = (*SHIFTED, *start_from(built, "restart"), "schedule.rampup=null", "start_from.skip_steps=2")
    run = built.start_run(*options)
    assert run.resolved.schedule.sample_range(7) == (32, 48)
    rings = built.lay_attempt(run, 1, range(7, 9), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    report = audit_checkpoint(run.checkpoints()[0], built.project, verify=True)
    assert report.findings == ()
    assert report.passed_over == (PassedOver(run.id, 7, 0, 32),)


def test_a_start_without_skipping_keeps_its_id(built):
    """Runs from before there was such a field have the same digest."""
    run = built.start_run(*SHIFTED, *start_from(built, "continue"))
    assert "skipped_samples" not in run.resolved.recipe.model_dump(mode="json")["start_from"]


CONTINUED = (*SHIFTED, "start_from.data=continue")


@pytest.fixture
def continued(built):
    """Steps 7 to 12 on another blend whose corpora go on where the first run stopped."""
    run = built.start_run(*CONTINUED, *start_from(built, "continue"))
    rings = built.lay_attempt(run, 1, range(7, 13), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    return run


def test_corpora_that_go_on_where_they_stopped_are_bound_to_content(built, continued):
    report = audit_checkpoint(continued.checkpoints()[0], built.project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert all(join.even for join in report.joins)
    seam, end = built.schedule.samples_after(6), built.schedule.samples_after(12)
    order, read = DataOrder(continued.resolved.blend), defaultdict(list)
    for each, numbers in ((built.order, range(seam)), (order, range(seam, end))):
        for sample in map(each.sample, numbers):
            read[sample.component, sample.epoch].append(sample.index)
    assert all(len(set(indices)) == len(indices) for indices in read.values())
    stopped = built.order.counts(seam)
    assert [(join.stopped, join.begins) for join in report.joins] == list(zip(stopped, stopped, strict=True))
    assert continued.resolved.blend.continues.positions == stopped
    found = compare_checkpoints(continued.checkpoints()[0], built.last, built.project)
    assert found.joins == report.joins
    assert found.first_step == 7
    assert f"goes on from sample {seam:,}" in found.reason


def test_documents_of_a_continued_run_are_traced_to_its_steps(built, continued):
    seam, end = built.schedule.samples_after(6), built.schedule.samples_after(12)
    order = DataOrder(continued.resolved.blend, {"blue": built.corpora["blue"].document_offsets})
    sample = next(s for s in map(order.sample, range(seam, end)) if s.component == 2)
    document = sample.spans[0].document
    catalog, _ = corpora_of(built.project, [continued])
    ancestries, _ = recover_ancestries([continued], built.project)
    exposed = find_exposures(
        [continued], {built.corpora["blue"].digest: np.array([document])}, catalog, ancestries=ancestries
    )  # fmt: skip
    (traced,) = exposed.traced()
    mine = [each.sample for each in traced.exposures if each.run == continued.id]
    expected = [g for g in range(seam, end) if document in {s.document for s in order.sample(g).spans}]
    expected = [g for g in expected if order.sample(g).component == 2]
    assert mine == expected
    assert expected


def test_positions_that_the_runs_before_do_not_give_are_refused(built):
    run = built.start_run(*CONTINUED, *start_from(built, "continue"))
    resolved = run.resolved
    continues = resolved.blend.continues
    positions = (continues.positions[0] + 1, continues.positions[1] - 1, continues.positions[2])
    blend = resolved.blend.model_copy(update={"continues": continues.model_copy(update={"positions": positions})})
    recipe = resolved.recipe.model_copy(update={"blend": blend.digest})
    forged = resolved.model_copy(update={"blend": blend, "recipe": recipe})
    run = RunDirectory(built.project.run(forged.run_id))
    run.path.mkdir(parents=True)
    forged.write(run.path / "resolved.json")
    rings = built.lay_attempt(run, 1, range(7, 9), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    report = audit_checkpoint(run.checkpoints()[0], built.project)
    assert report.level is Level.REDERIVED
    assert (
        f"blend.continues lets the corpora go on at positions {list(positions)}, expected {list(continues.positions)}"
        in report.findings[0].text
    )


def test_samples_read_again_and_never_are_told(built, annealed):
    """Without `data: continue`: each corpus begins where the new weights would stand."""
    report = audit_checkpoint(annealed.checkpoints()[0], built.project)
    seam = built.schedule.samples_after(6)
    after = DataOrder(annealed.resolved.blend)
    stopped, begins = built.order.counts(seam), after.counts(seam)
    assert [(join.corpus, join.stopped, join.begins) for join in report.joins] == list(
        zip(("red", "green", "blue"), stopped, begins, strict=True)
    )
    end = after.counts(built.schedule.samples_after(12))
    for join, old, new, last in zip(report.joins, stopped, begins, end, strict=True):
        assert (join.read_again, join.never_read) == (max(min(old, last) - new, 0), max(new - old, 0))
    assert not report.joins[0].even


def test_another_seed_cannot_go_on(built):
    with pytest.raises(ConfigError, match=r"blend\.seed: found 99, expected 3 as run .*`--set blend\.seed="):
        built.start_run("blend.seed=99", *CONTINUED, *start_from(built, "continue"))


def test_a_restarted_schedule_can_go_on_in_the_data(built):
    run = built.start_run(*CONTINUED, *start_from(built, "restart"), "schedule.rampup=null")
    assert run.resolved.schedule.sample_range(7) == (0, 16)
    assert run.resolved.blend.continues.sample == 0
    rings = built.lay_attempt(run, 1, range(7, 9), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    report = audit_checkpoint(run.checkpoints()[0], built.project, verify=True)
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert all(join.even for join in report.joins)
    assert sum(usage.samples for usage in report.corpora) == built.schedule.samples_after(6) + 32


def test_before_training_it_is_said_or_that_nobody_can_tell(built, annealed):
    report = audit_checkpoint(annealed.checkpoints()[0], built.project)
    lines = start_lines(annealed.resolved, built.project.runs)
    assert [line for line in lines if "red: stopped at position" in line]
    assert lines[0] == f"run {annealed.id} does not go on where the runs before stopped reading (step 7):"
    assert len(lines) == 2 + sum(not join.even for join in report.joins)
    (built.run.path / "resolved.json").unlink()
    (line,) = start_lines(annealed.resolved, built.project.runs)
    assert line.startswith("it is unknown what the runs before have read")


@pytest.mark.slow
def test_the_plan_says_it_too(built, annealed):
    annealed.resolved.blend.write(built.project.blend)
    options = [f"--set={each}" for each in (*SHIFTED, *start_from(built, "continue"))]
    printed = {}
    for form in ((), ("--json",)):
        done = subprocess.run(
            [sys.executable, "-c", "from treering.cli import main; main()", "plan", "tiny.yaml", *options, *form],
            cwd=built.project.root,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        printed[form] = done.stdout
    assert f"run {annealed.id} does not go on where the runs before stopped reading (step 7):" in printed[()]
    joins = json.loads(printed["--json",])["plan"]["joins"]
    assert [each["corpus"] for each in joins] == ["red", "green", "blue"]
    assert joins[0]["stopped"] == built.order.count(0, built.schedule.samples_after(6))
