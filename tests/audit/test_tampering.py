"""Whatever is changed is found and named: file, corpus, document, ring, step."""

import json
import os
import re

import numpy as np
import pytest

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import Level
from treering.config.canonical import digest_json
from treering.data.corpus.corpus import Corpus
from treering.errors import EvidenceError


def verify(built, checkpoint=None):
    return audit_checkpoint(checkpoint or built.last, built.project, verify=True)


def flip_byte(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def exposed_steps(built, component, document):
    """By brute force: the steps whose batch holds a part of a document."""
    steps = set()
    for g in range(built.schedule.num_samples):
        sample = built.order.sample(g)
        if sample.component == component and document in {span.document for span in sample.spans}:
            steps.add(built.schedule.step_of_sample(g))
    return sorted(steps)


@pytest.mark.parametrize(("name", "document"), [("red", 0), ("red", 13), ("green", 29), ("blue", 120)])
def test_one_byte_of_a_corpus(built, name, document):
    corpus = built.corpora[name]
    position = int(corpus.document_offsets[document]) * 2
    flip_byte(corpus.directory / "corpus.bin", position)
    report = verify(built)
    steps = exposed_steps(built, built.order.index_of(name), document)
    [finding, *others] = report.findings
    assert (finding.kind, finding.corpus, finding.document) == ("corpus", name, f"{name}-{document}")
    assert finding.file == str(corpus.directory / "corpus.bin")
    assert finding.step == (steps[0] if steps else None)
    expected = f"first read by step {steps[0]}" if steps else "unread by this checkpoint"
    assert f"corpus {name}, document {name}-{document} (number {document}): {expected}" in finding.text
    assert all(other.kind == "batch" for other in others)
    assert bool(others) is (report.steps_content_bound < report.step)
    assert {other.step for other in others} <= set(steps)
    assert not report.holds
    assert report.level is Level.RECORDED
    assert report.verdict.startswith("FAILED with ")
    assert any("That the tokens fed were those" in text for text in report.not_proven) is bool(others)


def test_both_read_and_unread_documents_were_tried(built):
    read = [exposed_steps(built, built.order.index_of(name), number) for name, number in (("red", 0), ("blue", 120))]
    assert [bool(steps) for steps in read] == [True, False]


def test_a_read_byte_is_seen_in_the_batch_as_well(built):
    corpus = built.corpora["red"]
    flip_byte(corpus.directory / "corpus.bin", int(corpus.document_offsets[5]) * 2)
    report = verify(built)
    assert report.steps_content_bound < report.step
    batch = next(finding for finding in report.findings if finding.kind == "batch")
    assert batch.step in exposed_steps(built, 0, 5)
    assert f"ring of step {batch.step} was fed" in batch.text
    assert f"line {batch.line}" in batch.text


def test_without_verify_nobody_reads_the_bytes(built):
    flip_byte(built.corpora["red"].directory / "corpus.bin", 0)
    report = audit_checkpoint(built.last, built.project)
    assert (report.holds, report.level) == (True, Level.RECORDED)


def test_a_corpus_cut_short(built):
    path = built.corpora["green"].directory / "corpus.bin"
    os.truncate(path, path.stat().st_size - 40)
    report = verify(built)
    assert {finding.corpus for finding in report.findings if finding.kind == "corpus"} == {"green"}
    assert "green-29" in {finding.document for finding in report.findings}
    assert not report.holds


@pytest.mark.parametrize(("file", "position"), [("corpus.idx", 40), ("corpus.idx", 5), ("documents.parquet", 60)])
def test_the_other_files_of_a_corpus(built, file, position):
    path = built.corpora["green"].directory / file
    flip_byte(path, position)
    report = verify(built)
    finding = report.findings[0]
    assert (finding.kind, finding.corpus, finding.file) == ("corpus", "green", str(path))
    # The tokens themselves are whole, so every batch is still bound to them.
    assert report.steps_content_bound == report.step
    assert not report.holds


@pytest.mark.parametrize("text", [b"licence", b"offset"])
def test_a_name_in_a_document_table_that_is_no_utf_8(built, text):
    path = built.corpora["green"].directory / "documents.parquet"
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[data.index(text, footer)] ^= 0x80
    path.write_bytes(data)
    with pytest.raises(EvidenceError, match=r"documents\.parquet: unreadable"):
        Corpus.open(path.parent).document(0)
    assert {finding.file for finding in verify(built).findings} == {str(path)}


def test_a_corpus_manifest(built):
    path = built.corpora["green"].directory / "manifest.json"
    path.write_text(path.read_text().replace('"MIT"', '"GPL"'))
    report = verify(built)
    assert [finding.corpus for finding in report.findings] == ["green"]
    assert "changed after it was written" in report.findings[0].text


def rings_file(built, attempt):
    return built.run.path / "attempts" / f"{attempt:04d}" / "rings.jsonl"


@pytest.mark.parametrize("field", ["loss", "step", "sample_start", "grad_norm", "consumed_tokens", "learning_rate"])
def test_one_number_of_a_ring(built, field):
    path = rings_file(built, 1)
    lines = path.read_text().splitlines(keepends=True)
    ring = json.loads(lines[3])
    ring[field] += 1
    lines[3] = json.dumps(ring, sort_keys=True, separators=(",", ":")) + "\n"
    path.write_text("".join(lines))
    report = audit_checkpoint(built.last, built.project)
    [finding] = [finding for finding in report.findings if finding.kind == "ring"]
    assert (finding.file, finding.line, finding.step) == (str(path), 4, 4)
    assert f"{path} line 4: ring of step {ring['step']}" in finding.text
    assert "the ring was changed after it was appended" in finding.text
    assert (report.level, report.steps_recorded) == (Level.REDERIVED, 3)
    assert not report.holds


def test_a_ring_resealed_after_a_change(built):
    path = rings_file(built, 2)
    lines = path.read_text().splitlines(keepends=True)
    ring = json.loads(lines[1])
    del ring["digest"]
    ring["loss"] = 0.5
    lines[1] = json.dumps({**ring, "digest": digest_json(ring)}) + "\n"
    path.write_text("".join(lines))
    [finding] = audit_checkpoint(built.last, built.project).findings
    assert (finding.file, finding.line, finding.step) == (str(path), 3, 9)
    assert "a ring was removed, put in or changed" in finding.text


def test_a_rewritten_tail_no_longer_ends_in_the_checkpoint(built):
    """Everything from one ring on resealed: the chain holds in itself, but the manifest names another last ring."""
    path = rings_file(built, 2)
    prev, lines = None, []
    for line in path.read_text().splitlines():
        ring = json.loads(line)
        del ring["digest"]
        ring["loss"] = 0.5
        ring["prev"] = prev or ring["prev"]
        prev = digest_json(ring)
        lines.append(json.dumps({**ring, "digest": prev}) + "\n")
    path.write_text("".join(lines))
    report = audit_checkpoint(built.last, built.project)
    assert "was cut at ring" in report.findings[0].text
    assert report.level is Level.REDERIVED


@pytest.mark.parametrize(("attempt", "index", "line", "step"), [(1, 2, 3, 3), (2, 0, 1, 7), (2, -1, 9, 15)])
def test_a_ring_removed(built, attempt, index, line, step):
    path = rings_file(built, attempt)
    lines = path.read_text().splitlines(keepends=True)
    del lines[index]
    path.write_text("".join(lines))
    [finding] = [each for each in audit_checkpoint(built.last, built.project).findings if each.kind == "ring"]
    assert (finding.file, finding.line, finding.step) == (str(path), line, step)
    assert ("was removed" if index >= 0 else "the rings end at step 14") in finding.text


def reseal(path, **changes):
    """Edits a record and gives it a digest that fits, as a careful forger would."""
    document = json.loads(path.read_text())
    del document["digest"]
    document.update(changes)
    path.write_text(json.dumps({**document, "digest": digest_json(document)}))


@pytest.mark.parametrize("name", ["header", "manifest"])
def test_an_edited_record(built, name):
    attempt = built.run.path / "attempts" / "0002" / "header.json"
    path = attempt if name == "header" else built.last.path / "manifest.json"
    path.write_text(path.read_text().replace('"backend": "gloo"', '"backend": "nccl"'))
    report = audit_checkpoint(built.last, built.project)
    assert f"{path}: digest " in report.findings[0].text
    assert "the file was changed" in report.findings[0].text
    assert (report.findings[0].file, report.holds, report.level) == (str(path), False, Level.REDERIVED)


def test_a_resealed_header_no_longer_fits_its_first_ring(built):
    reseal(built.run.path / "attempts" / "0001" / "header.json", host="elsewhere")
    report = audit_checkpoint(built.last, built.project)
    assert (report.findings[0].line, report.findings[0].step) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"consumed_samples": 1}, "consumed_samples is 1, expected 168 by the ring of step 15"),
        ({"consumed_tokens": 1}, "consumed_tokens is 1, expected 2688 by the ring of step 15"),
        ({"applied_steps": 1}, "applied_steps is 1, expected"),
        ({"validation_loss": 1.5}, "validation_loss is 1.5, expected None by the rings on the path"),
        ({"code": "sha256:" + "0" * 64}, "code is 000000000000…"),
        ({"environment": "sha256:" + "0" * 64}, "environment is 000000000000…"),
        ({"run": "sha256:" + "0" * 64}, "run is 000000000000…"),
        ({"blend": "sha256:" + "0" * 64}, "blend is 000000000000…"),
        ({"tokenizer": None}, "tokenizer is None"),
        ({"ring": "sha256:" + "0" * 64}, "was cut at ring sha256:00000"),
    ],
)
def test_a_resealed_manifest_contradicts_the_rest(built, changes, text):
    reseal(built.last.path / "manifest.json", **changes)
    report = audit_checkpoint(built.last, built.project)
    assert len(report.findings) == 1
    assert text in report.findings[0].text
    assert report.findings[0].file == str(built.last.path / "manifest.json")


def test_a_checkpoint_under_another_step(built):
    target = built.last.path.with_name("step-00000999")
    built.last.path.rename(target)
    report = audit_checkpoint(type(built.last)(target), built.project)
    assert "step is 15, expected 999 by its folder" in report.findings[0].text


def test_a_resolved_config_whose_blend_was_swapped(built):
    path = built.run.path / "resolved.json"
    document = json.loads(path.read_text())
    blend = document["blend"]
    blend["seed"] += 1
    content = {
        "algorithm": blend["algorithm"],
        "components": [{"digest": each["digest"], "weight": each["weight"]} for each in blend["components"]],
        "seed": blend["seed"],
        "sequence_length": blend["sequence_length"],
    }
    document["digests"]["blend"] = digest_json(content)
    path.write_text(json.dumps(document))
    report = verify(built)
    assert re.search(r"blend is \w+…, expected \w+… by recipe\.blend in the same file", report.findings[0].text)
    assert report.level is Level.DECLARED
    assert report.steps_content_bound < report.step


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sample_start": 0, "sample_end": 4}, "sample_start 0, expected 8"),
        ({"global_batch_size": 5}, "global_batch_size 5, expected 4"),
        ({"consumed_samples": 100}, "consumed_samples 100, expected 12"),
        ({"consumed_tokens": 100}, "consumed_tokens 100, expected 192"),
    ],
)
def test_a_trainer_that_left_the_schedule(built, fields, said):
    run = built.start_run("seed=8")
    rings = built.lay_attempt(run, 1, range(1, 7), step_3=fields)
    built.cut_checkpoint(run, 1, rings[-1])
    report = verify(built, run.checkpoints()[0])
    [finding] = report.findings
    assert (finding.kind, finding.line, finding.step) == ("ring", 3, 3)
    assert said in finding.text
    assert (report.level, report.steps_recorded) == (Level.REDERIVED, 5)


def test_a_trainer_that_fed_something_else(built):
    run = built.start_run("seed=9")
    other = "sha256:" + "5" * 64
    rings = built.lay_attempt(run, 1, range(1, 7), step_4={"batch_digest": other})
    built.cut_checkpoint(run, 1, rings[-1])
    assert audit_checkpoint(run.checkpoints()[0], built.project).holds
    report = verify(built, run.checkpoints()[0])
    [finding] = report.findings
    assert (finding.kind, finding.step, finding.line) == ("batch", 4, 4)
    assert f"was fed {other}" in finding.text
    assert report.verdict == "FAILED with 1 finding; content-bound: 5 of 6 steps"


@pytest.mark.parametrize("field", ["run", "blend"])
def test_a_header_of_another_run(built, field):
    path = built.run.path / "attempts" / "0002" / "header.json"
    reseal(path, **{field: "sha256:" + "1" * 64})
    records = [each for each in audit_checkpoint(built.last, built.project).findings if each.kind == "record"]
    assert [each.file for each in records] == [str(path)]
    assert f"{field} is 111111111111…, expected" in records[0].text


def test_an_attempt_that_opened_another_corpus(built):
    path = built.run.path / "attempts" / "0002" / "header.json"
    reseal(path, corpora={"red": "sha256:" + "1" * 64})
    report = audit_checkpoint(built.last, built.project)
    assert {finding.corpus for finding in report.findings if finding.kind == "record"} == {"red", "green", "blue"}


@pytest.mark.parametrize("how", ["changed", "longer", "missing"])
def test_a_file_of_the_checkpoint(built, how):
    path = built.last.path / "weights.bin"
    if how == "changed":
        flip_byte(path, 17)
    elif how == "longer":
        path.write_bytes(path.read_bytes() + b"x")
    else:
        path.unlink()
    assert audit_checkpoint(built.last, built.project).holds
    [finding] = verify(built).findings
    assert (finding.kind, finding.file) == ("checkpoint", str(path))
    assert {"changed": "digest sha256:", "longer": "1001 bytes, expected 1000", "missing": "missing"}[
        how
    ] in finding.text


def test_many_damaged_documents_are_counted(built):
    path = built.corpora["red"].directory / "corpus.bin"
    tokens = np.fromfile(path, "<u2")
    (tokens ^ 1).tofile(path)
    report = verify(built)
    named = [finding for finding in report.findings if finding.document]
    assert len(named) == 8
    assert any("12 more documents of corpus red are damaged" in finding.text for finding in report.findings)
    assert any("more steps differ" in finding.text for finding in report.findings)
