"""The documents of a step, read back as text."""

import shutil

import pytest

from treering.audit.batch import step_batch
from treering.errors import EvidenceError, NotFoundError


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


def test_without_the_corpora(built):
    shutil.rmtree(built.project.corpus("green"))
    with pytest.raises(EvidenceError, match=r"corpus green .* is not at hand"):
        step_batch(built.run, 3, built.project)


def test_with_another_tokenizer(built):
    built.project.tokenizer.write_text("{}")
    with pytest.raises(EvidenceError, match="the run's corpora were cut by tokenizer sha256:"):
        step_batch(built.run, 3, built.project)
    built.project.tokenizer.unlink()
    with pytest.raises(EvidenceError, match="nothing lies there"):
        step_batch(built.run, 3, built.project)
