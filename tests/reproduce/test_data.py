"""The first step with other data, with its corpus and document, on real corpora and true batch digests."""

import shutil

import audited_project
import pytest

from treering.config.canonical import digest_file
from treering.data.corpus.tokenize import load_tokenizer, write_corpus
from treering.project import Project
from treering.reproduce.data import compare_reads
from treering.reproduce.difference import compare_runs
from treering.reproduce.sentence import difference_sentence

STEPS = range(1, 6)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A project with corpora and without runs, and the texts of the corpora."""
    project = Project(tmp_path_factory.mktemp("corpora"))
    return project, audited_project.write_corpora(project)


@pytest.fixture
def project(corpora, tmp_path):
    """A copy of it."""
    return Project(shutil.copytree(corpora[0].root, tmp_path / "project"))


def trained(project, *overrides, **changed):
    run = audited_project.start_run(project, *overrides)
    audited_project.lay_attempt(project, run, 1, STEPS, **changed)
    return run


def test_another_seed_of_the_order_is_named_by_its_first_documents(project):
    one, two = trained(project), trained(project, "blend.seed=4")
    found = compare_runs(one, two, project=project)
    assert (found.state, found.first_step, found.data.kind) == ("data", 1, "tokens")
    place = found.data.place
    assert place.first.document.startswith(place.first.corpus)
    assert place.first != place.second
    assert found.doubts == ()
    sentence = difference_sentence(found)
    assert f"document {place.first.document}, tokens" in sentence
    assert "blend.seed 3 → 4" in sentence


def test_another_batch_schedule_differs_in_samples_where_the_ramp_parts(project):
    one = trained(project)
    two = trained(project, "schedule.rampup.samples=64")
    found = compare_reads(one, two, project)
    assert found.kind == "samples"
    assert found.equal_steps == found.first_step - 1 > 0
    assert None in {found.place.first, found.place.second}
    assert "nothing more" in found.place.text


def test_one_changed_document_gives_its_corpus_another_order(project, corpora, tmp_path):
    one = trained(project)
    copy = Project(shutil.copytree(project.root, tmp_path / "copy"))
    shutil.rmtree(copy.runs)
    shutil.move(copy.corpus("green"), copy.corpus("green-before"))
    write_green(
        copy, [text.replace("tree", "bark") if at == 7 else text for at, text in enumerate(corpora[1]["green"])]
    )
    found = compare_runs(one, trained(copy), project=copy)
    assert found.state == "data"
    place = found.data.place
    assert (place.first.corpus, place.second.corpus) == ("green", "green")
    assert place.first.document != place.second.document
    assert "blend.components.green.digest" in difference_sentence(found)
    assert found.doubts == ()


def write_green(project, texts):
    """Writes corpus `green` as `write_corpora` does."""
    tokenizer = load_tokenizer(project.tokenizer)
    end = tokenizer.token_to_id("<|endoftext|>")
    rows = [
        {"id": f"green-{at}", "text": text, "source": "green.jsonl", "offset": at, "licence": "MIT"}
        for at, text in enumerate(texts)
    ]
    made_by = {"digest": digest_file(project.tokenizer), "end_of_document": end}
    about = {"split": "train", "licence": "MIT", "source": ["jsonl"], "tokenizer": made_by, "curation": []}
    write_corpus(project.corpus("green"), rows, tokenizer, end, {"name": "green", **about})


def test_a_run_that_was_fed_something_else_than_its_order_gives_is_named(project, tmp_path):
    one = trained(project)
    other = Project(shutil.copytree(project.root, tmp_path / "other"))
    shutil.rmtree(other.runs)
    two = trained(other, step_3={"batch_digest": "sha256:" + "0" * 64})
    found = compare_reads(one, two, project)
    assert (found.first_step, found.kind) == (3, "tokens")
    assert found.place.text.startswith("the second run was not fed what its data order gives: the ring of step 3")


def test_without_the_corpora_the_samples_are_named_with_a_doubt(project):
    one, two = trained(project), trained(project, "blend.seed=4")
    shutil.rmtree(project.corpora / "train")
    found = compare_reads(one, two, project)
    assert found.place.first.document == ""
    assert found.doubts
    assert all(doubt.level == "limited" for doubt in found.doubts)


def test_without_a_project_no_document_is_looked_for(project):
    found = compare_reads(trained(project), trained(project, "blend.seed=4"))
    assert (found.first_step, found.place, found.doubts) == (1, None, ())
