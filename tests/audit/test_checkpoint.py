"""What an audit of an undamaged run says, held against brute force."""

import shutil
from collections import defaultdict
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.corpora.catalog import find_corpora
from treering.audit.corpora.usage import curation_of, path_documents, path_usage
from treering.audit.evidence.segments import recorded_segments_to
from treering.audit.report import CurationStep, HeldOut, Level
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.manifest import write_manifest
from treering.runlog.find import find_checkpoint


def touched_by_brute_force(built, num_samples):
    documents, samples = defaultdict(set), defaultdict(int)
    for g in range(num_samples):
        sample = built.order.sample(g)
        name = built.order.components[sample.component].corpus
        samples[name] += 1
        documents[name] |= {span.document for span in sample.spans}
    return documents, samples


def test_without_verify_it_is_recorded(built):
    report = audit_checkpoint(built.last, built.project)
    assert report.holds
    assert report.level is Level.RECORDED
    assert report.verdict == f"recorded: {report.step} of {report.step} steps"
    assert report.steps_content_bound is None
    assert any("batch digests were not recomputed" in text for text in report.not_proven)


def test_path_leads_through_both_attempts(built):
    report = audit_checkpoint(built.last, built.project)
    assert [(each.attempt, each.first_step, each.last_step) for each in report.path] == [
        (1, 1, 6),
        (2, 7, built.schedule.num_steps),
    ]
    assert (report.step, report.consumed_samples) == (built.schedule.num_steps, built.schedule.num_samples)
    assert report.consumed_tokens == built.schedule.num_samples * 16
    assert report.applied_steps == report.step - 1
    assert report.run == built.run.id
    assert report.digests["recipe"] == built.run.resolved.recipe.digest
    assert report.digests["ring"] == built.last.manifest.ring
    assert report.digests["code"] != report.digests["environment"]


@pytest.mark.parametrize("which", ["first", "last"])
def test_usage_equals_brute_force(built, which):
    report = audit_checkpoint(getattr(built, which), built.project)
    documents, samples = touched_by_brute_force(built, report.consumed_samples)
    weights = {"red": 0.5, "green": 0.3, "blue": 0.2}
    for usage in report.corpora:
        epoch = (built.corpora[usage.corpus].num_tokens - 1) // 16
        assert usage.samples == samples[usage.corpus]
        assert usage.tokens == usage.samples * 16
        assert usage.realised_epochs == pytest.approx(usage.samples / epoch)
        assert usage.planned_epochs == pytest.approx(weights[usage.corpus] * report.consumed_samples / epoch)
        assert usage.documents_touched == len(documents[usage.corpus])
        assert usage.num_documents == len(built.texts[usage.corpus])
    assert [usage.licence for usage in report.corpora] == ["CC0-1.0", "MIT", "Apache-2.0"]
    assert report.corpora[2].documents_touched < 200


def test_usage_without_documents_is_the_same_but_for_them(built):
    path = recorded_segments_to(built.last)
    whole = path_documents(path, find_corpora(built.project, [stretch.blend for stretch in path])).corpora
    none = {"documents_touched": None, "licences": None, "licence": None, "path": None, "curation": ()}
    assert path_usage(path) == tuple(replace(each, **none) for each in whole)


@pytest.mark.parametrize("which", ["first", "last"])
def test_licences_count_the_tokens_of_documents(built, which):
    """Token by token; a token that two samples share is counted where it is read to be predicted from."""
    report = audit_checkpoint(getattr(built, which), built.project)
    licences = {"red": "CC0-1.0", "green": "MIT", "blue": "Apache-2.0"}
    tokens = defaultdict(int)
    for sample in map(built.order.sample, range(report.consumed_samples)):
        name = built.order.components[sample.component].corpus
        held = sum(span.end - span.start for span in sample.spans)
        tokens[licences[name]] += held - 1
    assert report.licences == dict(sorted(tokens.items(), key=lambda item: -item[1]))
    assert sum(report.licences.values()) == report.consumed_tokens
    assert report.corpora[0].licences == {"CC0-1.0": tokens["CC0-1.0"]}


def test_licences_are_those_of_documents_not_of_corpora(built):
    path = built.corpora["green"].directory / "documents.parquet"
    table = pq.read_table(path)
    mixed = [("MIT", "BSD-3-Clause")[number % 2] for number in range(table.num_rows)]
    pq.write_table(table.set_column(3, table.schema.field("licence"), pa.array(mixed)), path)
    expected = defaultdict(int)
    for sample in map(built.order.sample, range(built.last.manifest.consumed_samples)):
        if sample.component == 1:
            left = built.order.sequence_length
            for span in sample.spans:
                expected[mixed[span.document]] += min(span.end - span.start, left)
                left -= min(span.end - span.start, left)
    assert audit_checkpoint(built.last, built.project).corpora[1].licences == expected


def test_a_held_out_document_that_was_read_is_found(built):
    held_out = built.project.corpus("green", "heldout")
    shutil.copytree(built.corpora["green"].directory, held_out)
    report = audit_checkpoint(built.last, built.project)
    read = report.corpora[1].documents_touched
    assert report.held_out == HeldOut(documents=30, overlapping=read)
    (finding,) = report.findings
    assert (finding.kind, finding.corpus) == ("corpus", "green")
    assert f"{read} documents that were read are held out too" in finding.text
    assert not report.holds
    shutil.rmtree(held_out)
    assert audit_checkpoint(built.last, built.project).held_out is None


def test_curation_is_summed_from_the_manifests(built):
    corpus = built.corpora["red"]
    steps = [{"step": "extract", "input": "x", "kept": 30, "dropped": 2}, {"step": "dedup", "kept": 20, "dropped": 10}]
    manifest = {key: value for key, value in corpus.manifest.items() if key != "digest"} | {"curation": steps}
    write_manifest(corpus.directory / "manifest.json", manifest)
    assert curation_of(Corpus.open(corpus.directory)) == (
        CurationStep("extract", 30, 2),
        CurationStep("dedup", 20, 10),
    )


@pytest.mark.parametrize("which", ["first", "last"])
def test_verify_binds_every_step_to_content(built, which):
    seen = []
    report = audit_checkpoint(
        getattr(built, which), built.project, verify=True, progress=lambda *state: seen.append(state)
    )
    assert report.findings == ()
    assert report.level is Level.CONTENT_BOUND
    assert report.verdict == f"content-bound: {report.step} of {report.step} steps"
    assert ("batches", report.step, report.step) in seen
    assert any("not signed" in text for text in report.not_proven)
    assert not any("tokens fed" in text for text in report.not_proven)


def test_rings_off_the_path_do_not_count(built):
    # Attempt 1 laid rings to step 9; the checkpoint of step 6 and what follows in attempt 2 do not rest on them.
    rings = built.run.path / "attempts" / "0001" / "rings.jsonl"
    lines = rings.read_text().splitlines(keepends=True)
    rings.write_text("".join(lines[:6]) + lines[6].replace('"loss":', '"loss":1'))
    assert audit_checkpoint(built.last, built.project, verify=True).holds


def test_a_published_checkpoint_is_audited_alone(built):
    published = built.project.published
    (published / "checkpoints").mkdir(parents=True)
    shutil.copy(built.run.path / "resolved.json", published)
    shutil.copytree(built.last.path, published / "checkpoints" / built.last.path.name)
    shutil.copytree(built.run.path / "attempts", published / "attempts")
    before = audit_checkpoint(built.last, built.project, verify=True)
    shutil.rmtree(built.project.runs)
    after = audit_checkpoint(find_checkpoint(published), built.project, verify=True)
    assert after.holds
    assert (after.level, after.corpora, after.digests) == (before.level, before.corpora, before.digests)


def test_a_superseded_checkpoint_is_audited_where_it_lies(built):
    target = built.run.path / "superseded-0001" / built.first.path.name
    target.parent.mkdir()
    shutil.move(built.first.path, target)
    assert audit_checkpoint(find_checkpoint(target), built.project, verify=True).holds


def test_corpora_are_found_by_content_not_by_name(built):
    built.project.corpus("red").rename(built.project.corpora / "heldout-or-elsewhere")
    shutil.move(built.project.corpora / "heldout-or-elsewhere", built.project.corpus("crimson"))
    shutil.copytree(built.project.corpus("green"), built.project.corpus("red"))
    report = audit_checkpoint(built.last, built.project, verify=True)
    assert report.holds
    assert report.corpora[0].path == str(built.project.corpus("crimson"))


def test_content_that_is_not_at_hand(built):
    shutil.rmtree(built.project.corpus("red"))
    shutil.copytree(built.project.corpus("green"), built.project.corpus("red"))
    report = audit_checkpoint(built.last, built.project)
    assert report.holds
    assert report.level is Level.RECORDED
    assert (report.corpora[0].documents_touched, report.corpora[0].path) == (None, None)
    assert report.corpora[0].samples > 0
    assert any("corpus red" in text and "is not at hand" in text for text in report.not_proven)

    verified = audit_checkpoint(built.last, built.project, verify=True)
    assert not verified.holds
    assert (verified.level, verified.steps_content_bound) == (Level.RECORDED, 0)
    assert [finding.corpus for finding in verified.findings] == ["red"]
    assert built.corpora["green"].digest in verified.findings[0].text


def test_report_as_json(built):
    document = audit_checkpoint(built.last, built.project).to_json()
    assert document["level"] == "recorded"
    assert document["holds"] is True
    assert document["corpora"][1]["corpus"] == "green"
    assert document["path"][0]["attempt"] == 1
