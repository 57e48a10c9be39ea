"""The first step with other data, with its corpus and document, on real corpora and true batch digests."""

import shutil

import audited_project
import pytest
from corpus_writer import write_corpus

import treering
from treering.config.canonical import digest_file
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.project import Project
from treering.reproduce.data import compare_reads
from treering.reproduce.difference import compare_runs
from treering.reproduce.sentence import difference_sentence
from treering.runlog.recorded_directory import RecordedRunDirectory

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


@pytest.mark.parametrize("ranks", [1, 2])
def test_another_order_of_a_recorded_loop_is_named_by_its_first_documents(project, ranks):
    """They are those of two runs of Treering's trainer with the same orders, and of one of each."""
    own = trained(project), trained(project, "blend.seed=4")
    loops = [looped(project, name, run, ranks) for name, run in zip("ab", own, strict=True)]
    place = compare_reads(*own, project).place
    found = compare_runs(*loops, project=project)
    assert (found.first_step, found.data.place, found.data.doubts) == (1, place, ())
    assert place.first.document.startswith(place.first.corpus)
    assert f"document {place.second.document}, tokens" in difference_sentence(found)
    if ranks == 1:
        assert compare_reads(own[0], loops[1], project).place == place


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_document_is_named_of_a_loop_that_does_not_follow_its_order(project, ranks):
    """What the order gives was not read there."""
    run = trained(project)
    one, two = looped(project, "a", run, ranks), looped(project, "b", run, ranks, fault_at=2)
    found = compare_reads(one, two, project)
    assert found.first_step == 2
    assert (found.place.first, found.place.second) == (None, None)
    assert found.place.text.startswith("the second run was not fed what its data order gives: the ring of step 2")
    other = looped(project, "c", trained(project, "blend.seed=4"), ranks, fault_at=1)
    assert compare_reads(one, other, project).place.text.startswith("the second run was not fed what its data order")


def test_without_an_order_or_a_corpus_the_documents_of_a_recorded_loop_are_a_doubt(project):
    one, two = (looped(project, name, trained(project, f"blend.seed={seed}"), 1) for name, seed in (("a", 3), ("b", 4)))
    plain = treering.start("plain", folder=project.root / "plain")
    plain.step(loss=1.0, tokens=[[1, 2, 3]])
    plain.finish()
    found = compare_reads(one, RecordedRunDirectory(next((project.root / "plain").iterdir())), project)
    (doubt,) = found.doubts
    assert (found.first_step, found.place, doubt.level) == (1, None, "missing")
    assert "reports its samples and no data order; read them through treering.BlendDataset" in doubt.remedy
    shutil.rmtree(project.corpus("green"))
    found = compare_reads(one, two, project)
    (doubt,) = found.doubts
    assert (found.place, doubt.text) == (None, "the documents of step 1")
    assert "green" in doubt.remedy


def looped(project, name, like, ranks, *, fault_at=0):
    """A recorded loop of three steps of four samples that reads in the order of another run's blend."""
    like.resolved.blend.write(project.blend)
    loaders = [
        treering.BlendDataset(project.root, num_samples=40, rank=rank, world_size=ranks) for rank in range(ranks)
    ]
    folder = project.root / name
    runs = [
        treering.start("loop", folder=folder, data=data, rank=rank, world_size=ranks)
        for rank, data in enumerate(loaders)
    ]
    size = audited_project.CONFIG["schedule"]["rampup"]["start"] // ranks
    for step in range(3):
        at = step + (step + 1 == fault_at)
        for run, data in zip(runs, loaders, strict=True):
            run.step(loss=1.0, tokens=[data[index] for index in range(at * size, (at + 1) * size)])
    for run in reversed(runs):
        run.finish()
    return RecordedRunDirectory(next(folder.iterdir()))
