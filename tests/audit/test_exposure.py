"""Every answer about exposures against brute force: all samples of all steps of all attempts, one by one."""

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import run_records
from typer.testing import CliRunner

from treering.audit.documents.difference import compare_checkpoints
from treering.audit.documents.exposure_index import corpora_of, find_exposures, project_runs, steps_of
from treering.audit.documents.readers import recover_ancestries
from treering.audit.documents.selection import Selector, select
from treering.audit.documents.spike import spike_data
from treering.audit.documents.takedown import read_list, takedown
from treering.cli import app
from treering.data.curate.decisions import SCHEMA
from treering.data.order.treering1 import DataOrder
from treering.errors import NotFoundError, UserError


@pytest.fixture
def annealed(built):
    """A second run: from step 6 of the first one on a blend of its own, whose schedule begins there."""
    options = ("start_from.step=6", "schedule.rampup=null", "blend.seed=11")
    weights = ("blend.components.0.weight=0.1", "blend.components.2.weight=0.6")
    run = built.start_run(f"start_from.run='{built.run.id}'", *options, *weights)
    rings = built.lay_attempt(run, 1, range(7, 11), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    return run


def brute(built, *runs):
    """(corpus, document) -> its readings (run, attempt, step, sample, position, start, end)."""
    found = defaultdict(list)
    offsets = {name: corpus.document_offsets for name, corpus in built.corpora.items()}
    for run in runs:
        order, schedule = DataOrder(run.resolved.blend, offsets), run.resolved.schedule
        for attempt in run.attempts():
            for ring in attempt.rings():
                lo, hi = schedule.sample_range(ring.step)
                for g in range(lo, hi):
                    sample = order.sample(g)
                    name = order.components[sample.component].corpus
                    for span in sample.spans:
                        reading = (run.id, attempt.number, ring.step, g, g - lo, sample.epoch, span.start, span.end)
                        found[name, span.document].append(reading)
    return found


def on_path(checkpoint, reading):
    for segment in checkpoint.run.path_to(checkpoint):
        parent = segment.attempt.header.parent
        first = parent.step + 1 if parent else 1
        if (segment.run.id, segment.attempt.number) == reading[:2] and first <= reading[2] <= segment.last_step:
            return True
    return False


def exposed_of(built, *texts):
    runs = project_runs(built.project)
    catalog, unanswered = corpora_of(built.project, runs)
    assert not unanswered
    return find_exposures(
        runs,
        select([Selector.parse(text) for text in texts], catalog, []),
        catalog,
        ancestries=recover_ancestries(runs, built.project)[0],
    )


def test_every_document_of_every_run(built, annealed):
    truth = brute(built, built.run, annealed)
    exposed = exposed_of(built, "source=*")
    traced = list(exposed.traced())
    assert exposed.num_documents == len(traced) == sum(corpus.num_documents for corpus in built.corpora.values())
    for document in traced:
        found = [
            (each.run, each.attempt, each.step, each.sample, each.position, each.epoch, each.start, each.end)
            for each in document.exposures
        ]
        assert sorted(found) == sorted(truth[document.corpus, document.number]), document
        for each in document.exposures:  # two replicas, micro-batches of two samples, dealt out in turn
            assert (each.micro_batch * 2 + each.replica) * 2 + each.position % 2 == each.position
    assert any(len(document.exposures) > 3 for document in traced)
    assert any(not document.exposures for document in traced)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["red:red-3", "licence=MIT", "source=blue*", "source=*"])
def test_checkpoints_saw_what_their_paths_read(text, built, annealed):
    truth = brute(built, built.run, annealed)
    exposed = exposed_of(built, text)
    documents = {(each.corpus, each.number) for each in exposed.traced()}
    found = list(exposed.checkpoints())
    everything = [*built.run.checkpoints(), *annealed.checkpoints()]
    assert [(each.run, each.step) for each in found] == [(each.run.id, each.step) for each in everything]
    for each, checkpoint in zip(found, everything, strict=True):
        seen = {key: [reading for reading in truth[key] if on_path(checkpoint, reading)] for key in documents}
        steps = [reading[2] for readings in seen.values() for reading in readings]
        assert each.documents == sum(bool(readings) for readings in seen.values())
        assert each.exposures == len(steps)
        assert (each.first_step, each.last_step) == ((min(steps), max(steps)) if steps else (None, None))
        assert each.clean == (not steps)
        assert each.off_path == sum(
            run == checkpoint.run.id and step <= checkpoint.step and not on_path(checkpoint, (run, attempt, step))
            for key in documents
            for run, attempt, step, *_ in truth[key]
        )
    assert text != "source=*" or any(each.off_path for each in found)


def test_a_superseded_checkpoint_saw_what_it_saw(built):
    """Its weights still lie there: a takedown that left them out would be wrong."""
    (before, _) = takedown(built.project, [Selector.parse("source=*")]).checkpoints
    target = built.run.path / "superseded-0001" / built.first.path.name
    target.parent.mkdir()
    built.first.path.rename(target)
    (_, after) = takedown(built.project, [Selector.parse("source=*")]).checkpoints
    assert (before.superseded, after.superseded) == (False, True)
    assert after == replace(before, path=str(target))


def test_steps_of_samples(built):
    samples = np.arange(built.schedule.num_samples)
    assert steps_of(built.schedule, samples).tolist() == [built.schedule.step_of_sample(int(g)) for g in samples]


@pytest.mark.slow
def test_two_checkpoints_read_differently(built, annealed):
    a, b = built.last, annealed.checkpoints()[0]
    truth = brute(built, built.run, annealed)
    found = compare_checkpoints(a, b, built.project)
    samples = [defaultdict(set), defaultdict(set)]
    documents = [defaultdict(set), defaultdict(set)]
    for (name, number), readings in truth.items():
        for side, checkpoint in enumerate((a, b)):
            if any(on_path(checkpoint, reading) for reading in readings):
                documents[side][name].add(number)
    offsets = {name: corpus.document_offsets for name, corpus in built.corpora.items()}
    for side, checkpoint in enumerate((a, b)):
        for segment in checkpoint.run.path_to(checkpoint):
            order, schedule = DataOrder(segment.run.resolved.blend, offsets), segment.run.resolved.schedule
            for ring in segment.rings():
                for sample in map(order.sample, range(*schedule.sample_range(ring.step))):
                    samples[side][order.components[sample.component].corpus].add(sample.index)
    assert (found.first_step, found.same_data) == (7, False)
    assert found.reason.startswith("the blends differ: ")
    for each in found.corpora:
        mine, theirs = (side[each.corpus] for side in samples)
        assert (each.only_a, each.only_b, each.both) == (len(mine - theirs), len(theirs - mine), len(mine & theirs))
        mine, theirs = (side[each.corpus] for side in documents)
        assert (each.documents_only_a, each.documents_only_b) == (len(mine - theirs), len(theirs - mine))
    assert sum(each.reads_a for each in found.corpora) == a.manifest.consumed_samples
    assert sum(each.share_b for each in found.corpora) == pytest.approx(1)


def test_a_checkpoint_and_a_later_one_of_its_run(built):
    found = compare_checkpoints(built.first, built.last, built.project)
    assert found.first_step == 7
    assert found.reason == f"only run {built.run.id} went on to this step; until there the batches are the same"
    assert all(each.only_a == 0 for each in found.corpora)
    assert compare_checkpoints(built.last, built.last, built.project).same_data


def test_what_was_read_before_a_spike(built, annealed):
    truth = brute(built, built.run, annealed)
    data = spike_data(annealed, 9, built.project, before=4)
    assert [(each.step, each.attempt) for each in data.steps] == [(5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]
    offsets = {name: corpus.document_offsets for name, corpus in built.corpora.items()}
    readings = defaultdict(set)  # the same place in the same corpus, wherever it was read
    for run in (built.run, annealed):
        order, schedule = DataOrder(run.resolved.blend, offsets), run.resolved.schedule
        for attempt in run.attempts():
            for ring in attempt.rings():
                if run is built.run and (attempt.number > 1 or ring.step > 6):
                    continue  # no ancestor of the annealed run
                for sample in map(order.sample, range(*schedule.sample_range(ring.step))):
                    key = order.components[sample.component].corpus, sample.index
                    readings[key].add((run.id, attempt.number, ring.step))
    for step in data.steps:
        run = built.run if step.step <= 6 else annealed
        lo, hi = run.resolved.schedule.sample_range(step.step)
        assert [sample.sample for sample in step.samples] == list(range(lo, hi))
        for sample in step.samples:
            own = (run.id, 1, step.step)
            elsewhere = {(each.run, each.attempt, each.step) for each in sample.elsewhere}
            assert elsewhere == readings[sample.corpus, sample.index] - {own}
            for document in sample.documents:
                number = int(document.rpartition("-")[2])
                assert any(reading[:3] == own for reading in truth[sample.corpus, number])
    assert any(sample.elsewhere for step in data.steps for sample in step.samples)


def test_a_spike_that_no_attempt_reached(built):
    with pytest.raises(NotFoundError, match="no attempt did step 99"):
        spike_data(built.run, 99, built.project)


@pytest.fixture
def decisions(built):
    """red-3 and red-9 are near-duplicates that were both kept; x was dropped for green-4, y by a filter."""
    rows = [
        ("red", "red-3", None, None, None, "red:red-3"),
        ("red", "red-9", None, None, None, "red:red-3"),
        ("green", "x", "dedup", "near", "green:green-4", "green:x"),
        ("green", "y", "filter", "too short", None, None),
    ]
    folder = built.project.curated / "decisions"
    folder.mkdir(parents=True)
    for corpus in ("red", "green"):
        table = [
            {
                "corpus": name, "id": document, "source": "s", "offset": 0, "licence": "MIT", "characters": 9,
                "kept": step is None, "step": step, "rule": rule, "near_duplicate_of": original, "cluster": cluster,
                "split": "train" if step is None else None,
            }
            for name, document, step, rule, original, cluster in rows
            if name == corpus
        ]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), folder / f"{corpus}.parquet")


@pytest.mark.usefixtures("decisions")
def test_takedown_follows_near_duplicates(built):
    texts = ("red:red-3", "green:x", "green:y", "blue:blue-7", "blue:none")
    found = takedown(built.project, [Selector.parse(text) for text in texts])
    assert [(each.asked, each.documents, each.near_duplicates, each.fate, each.known) for each in found.entries] == [
        ("red:red-3", 1, 1, {"kept for train": 1}, True),
        ("green:x", 0, 1, {"dropped by dedup: near": 1}, True),
        ("green:y", 0, 0, {"dropped by filter: too short": 1}, True),
        ("blue:blue-7", 1, 0, {}, True),
        ("blue:none", 0, 0, {}, False),
    ]
    assert sorted((each.document.document, each.asked, each.near_duplicate) for each in found.documents) == [
        ("blue-7", "blue:blue-7", False),
        ("green-4", "green:x", True),
        ("red-3", "red:red-3", False),
        ("red-9", "red:red-3", True),
    ]
    truth = brute(built, built.run)
    keys = [("red", 3), ("red", 9), ("green", 4), ("blue", 7)]
    for each, checkpoint in zip(found.checkpoints, built.run.checkpoints(), strict=True):
        assert each.exposures == sum(on_path(checkpoint, reading) for key in keys for reading in truth[key])
    assert found.unanswered == ()


def test_takedown_without_decisions_says_so(built):
    found = takedown(built.project, [Selector.parse("red:red-3")])
    assert found.entries[0].documents == 1
    assert "near-duplicates cannot be told" in found.unanswered[0]


def test_lists_that_cannot_be_read(tmp_path):
    path = tmp_path / "list.txt"
    with pytest.raises(UserError, match="unreadable file"):
        read_list(path)
    path.write_text("# nothing\n\n")
    with pytest.raises(UserError, match="found no entry"):
        read_list(path)
    path.write_text("red:1 # a reason\nnonsense\n")
    with pytest.raises(UserError, match=r"list.txt line 2: documents: found 'nonsense'"):
        read_list(path)
    path.write_text("red:a:b\nsource=https://x/*  # all of it\n")
    assert [str(each) for each in read_list(path)] == ["red:a:b", "source=https://x/*"]


@pytest.fixture
def invoke(built):  # noqa: ARG001 - its working directory
    return lambda *arguments: CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.usefixtures("decisions")
def test_commands_give_the_same_as_json(built, annealed, invoke, tmp_path):
    def run(*arguments):
        result = invoke(*arguments, "--json")
        assert result.exit_code == 0
        return json.loads(result.stdout)

    traced = run("trace", "--document=red:red-3")
    assert [each["document"] for each in traced["documents"]] == ["red-3"]
    assert [each["clean"] for each in traced["checkpoints"]] == [
        not each["exposures"] for each in traced["checkpoints"]
    ]
    (tmp_path / "list.txt").write_text("red:red-3\n")
    assert run("takedown", str(tmp_path / "list.txt"))["num_documents"] == 2
    assert run("diff", str(built.last.path), annealed.id)["first_step"] == 7
    assert len(run("spikes", annealed.id, "9", "--before=1")["steps"]) == 2
    assert run("spikes", annealed.id) == []


def test_commands_for_people(built, annealed, invoke):
    text = invoke("trace", "--document=red:red-3").stdout
    assert text.startswith("red:red-3  ")
    assert "seen" in text
    assert "clean" in invoke("trace", "--document=blue:blue-199").stdout
    text = invoke("diff", str(built.first.path), annealed.id).stdout
    assert "first difference: step 7, only run" in text
    assert "no spikes" in invoke("spikes", annealed.id).stdout
    text = invoke("spikes", annealed.id, "8", "--before=1").stdout
    assert text.startswith("\nstep 7, attempt 1: loss")
    assert f"of {built.run.id[:8]}" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trace",), "found nothing to look for"),
        (("trace", "--document=red"), "expected CORPUS:ID"),
        (("trace", "--document=red:red-300"), "is meant by red:red-300"),
        (("spikes", "ffff"), "no run starts with"),
    ],
)
def test_commands_refuse(arguments, said, invoke):
    with pytest.raises(UserError, match=said):
        invoke(*arguments)
