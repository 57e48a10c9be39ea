"""The documents of a step, read back as text."""

import shutil
from dataclasses import replace

import pytest

from treering.audit.documents.batch import step_batch
from treering.audit.report import Level
from treering.errors import EvidenceError, NotFoundError
from treering.runlog.directory import RunDirectory


def test_batch_is_the_text_of_its_documents(built):
    batch = step_batch(built.run, 5, built.project)
    lo, hi = built.schedule.sample_range(5)
    assert [sample.g for sample in batch.samples] == list(range(lo, hi))
    assert batch.content_bound
    assert batch.attempt == 1
    for sample in batch.samples:
        expected = built.order.sample(sample.g)
        assert (sample.epoch, sample.index) == (expected.epoch, expected.index)
        assert [(part.number, part.start, part.end) for part in sample.documents] == list(expected.spans)
        assert sum(part.end - part.start for part in sample.documents) == 17
        for part in sample.documents:
            whole = built.texts[part.corpus][part.number] + "<|endoftext|>"
            assert part.text in whole
            assert part.text
            assert (part.document, part.source) == (f"{part.corpus}-{part.number}", f"{part.corpus}.jsonl")
            assert part.licence == {"red": "CC0-1.0", "green": "MIT", "blue": "Apache-2.0"}[part.corpus]
            if (part.start, part.end) == (0, part.num_tokens):
                assert part.text == whole


def test_the_ranks_of_a_replica_share_its_samples(built):
    """The fixture's layout is 1x1x2 with micro-batches of two samples, dealt out in turn."""
    whole = step_batch(built.run, 9, built.project)
    lo = built.schedule.samples_before(9)
    assert [(each.replica, each.micro_batch) for each in whole.samples] == [
        ((each.g - lo) // 2 % 2, (each.g - lo) // 4) for each in whole.samples
    ]
    parts = [step_batch(built.run, 9, built.project, rank) for rank in (0, 1)]
    assert [part.rank for part in parts] == [0, 1]
    assert {sample.replica for sample in parts[1].samples} == {1}
    assert sorted(sample.g for part in parts for sample in part.samples) == [sample.g for sample in whole.samples]
    with pytest.raises(NotFoundError, match=r"no rank 2, layout 1x1x2"):
        step_batch(built.run, 9, built.project, 2)


def test_the_newest_attempt_that_did_the_step_is_named(built):
    assert step_batch(built.run, 8, built.project).attempt == 2


def test_a_damaged_corpus_shows_in_the_digest(built):
    sample = built.order.sample(built.schedule.samples_before(3))
    name = built.order.components[sample.component].corpus
    path = built.corpora[name].directory / "corpus.bin"
    data = bytearray(path.read_bytes())
    data[sample.index * 16 * 2] ^= 1
    path.write_bytes(data)
    batch = step_batch(built.run, 3, built.project)
    assert not batch.content_bound
    assert batch.recorded_digest != batch.recomputed_digest


def test_a_step_that_nobody_did(built):
    with pytest.raises(NotFoundError, match=r"no attempt did step 99; its rings go to step 15"):
        step_batch(built.run, 99, built.project)


def test_a_step_of_the_schedule_that_has_no_ring(built):
    run = built.start_run("seed=8")
    built.lay_attempt(run, 1, range(1, 7))
    batch = step_batch(run, 9, built.project)
    whole = step_batch(built.run, 9, built.project)
    assert (batch.attempt, batch.recorded_digest, batch.level) == (None, None, Level.REDERIVED)
    assert batch.recomputed_digest == whole.recomputed_digest
    assert [replace(each, replica=None, micro_batch=None) for each in whole.samples] == list(batch.samples)
    [gap] = batch.gaps
    assert "its rings go to step 6 (attempt 1: steps 1 to 6)" in gap.missing
    lo, hi = built.schedule.sample_range(9)
    assert gap.answered == f"what schedule and blend give step 9: samples {lo} to {hi}"


@pytest.mark.parametrize("instead", [None, "green"])
def test_without_a_corpus(built, instead):
    whole = step_batch(built.run, 3, built.project)
    shutil.rmtree(built.project.corpus("red"))
    if instead:
        shutil.copytree(built.project.corpus(instead), built.project.corpus("red"))
    batch = step_batch(built.run, 3, built.project)
    assert {each.corpus for each in whole.samples} > {"red"}
    assert [replace(each, documents=()) if each.corpus == "red" else each for each in whole.samples] == list(
        batch.samples
    )
    assert (batch.level, batch.recorded_digest) == (Level.RECORDED, whole.recorded_digest)
    assert (batch.recomputed_digest, batch.content_bound) == (None, False)
    [gap] = batch.gaps
    assert (gap.corpus, "is not at hand" in gap.missing) == ("red", True)
    assert instead is None or built.corpora[instead].digest in gap.missing


def test_without_a_corpus_and_without_the_ring(built):
    shutil.rmtree(built.project.corpus("red"))
    (built.run.path / "attempts" / "0002" / "rings.jsonl").write_text("")
    batch = step_batch(built.run, 12, built.project)
    assert (batch.level, [each.level for each in batch.gaps]) == (Level.REDERIVED, [Level.REDERIVED] * 2)
    assert [each.g for each in batch.samples] == list(range(*built.schedule.sample_range(12)))


@pytest.mark.parametrize("how", ["another", "gone"])
def test_with_another_tokenizer(built, how):
    whole = step_batch(built.run, 3, built.project)
    if how == "another":
        built.project.tokenizer.write_text("{}")
    else:
        built.project.tokenizer.unlink()
    batch = step_batch(built.run, 3, built.project)
    assert (batch.content_bound, batch.level) == (True, Level.CONTENT_BOUND)
    for each, other in zip(batch.samples, whole.samples, strict=True):
        assert [part.text for part in each.documents] == [None] * len(other.documents)
        assert [part.document for part in each.documents] == [part.document for part in other.documents]
    [gap] = batch.gaps
    assert "the run's corpora were cut by tokenizer sha256:" in gap.missing
    assert how == "another" or "found nothing" in gap.missing


@pytest.mark.parametrize("file", ["corpus.bin", "corpus.idx", "documents.parquet"])
def test_without_a_file_of_a_corpus(built, file):
    whole = step_batch(built.run, 3, built.project)
    (built.project.corpus("red") / file).unlink()
    batch = step_batch(built.run, 3, built.project)
    assert (batch.content_bound, batch.level) == (False, Level.RECORDED)
    assert f"{file} is missing" in batch.gaps[0].missing
    for each, other in zip(batch.samples, whole.samples, strict=True):
        assert [(part.number, part.start, part.end) for part in each.documents] == [
            (part.number, part.start, part.end) for part in other.documents
        ]
        if other.corpus != "red" or file == "corpus.idx":
            assert each == other
        elif file == "corpus.bin":
            assert [replace(part, text=None) for part in other.documents] == list(each.documents)
        else:
            assert [(part.document, part.source, part.licence) for part in each.documents] == [
                (f"#{part.number}", "unknown", "unknown") for part in other.documents
            ]
            assert [part.text for part in each.documents] == [part.text for part in other.documents]


def test_without_the_header_of_the_attempt(built):
    whole = step_batch(built.run, 9, built.project, 1)
    (built.run.path / "attempts" / "0002" / "header.json").unlink()
    batch = step_batch(built.run, 9, built.project, 1)
    assert (batch.samples, batch.attempt) == (whole.samples, 2)  # the checkpoint's manifest tells the layout
    assert (batch.content_bound, batch.level, len(batch.gaps)) == (True, Level.RECORDED, 1)
    shutil.rmtree(built.last.path)
    batch = step_batch(built.run, 9, built.project, 1)
    assert (batch.rank, len(batch.samples)) == (None, 2 * len(whole.samples))
    assert "the whole batch, not that of one rank" in batch.gaps[1].answered


def test_the_published_run_log_tells_of_a_run_without_config(built):
    whole = step_batch(built.run, 9, built.project)
    shutil.copytree(built.run.path, built.project.published)
    (built.run.path / "resolved.json").unlink()
    batch = step_batch(RunDirectory(built.run.path), 9, built.project)
    assert (batch.samples, batch.level) == (whole.samples, Level.RECORDED)
    shutil.rmtree(built.project.published)
    with pytest.raises(EvidenceError, match="without it no record says what a step reads"):
        step_batch(RunDirectory(built.run.path), 9, built.project)
