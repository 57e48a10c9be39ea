"""Planted causes in the data: the verdict names the weight, the document or the run, and the first step."""

import argparse
import json
import shutil

import pytest
import stage_trainer
import text_project
import yaml

from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved_blend import ResolvedBlend
from treering.data.blend.corpora import resolve_blend
from treering.data.order.treering1 import DataOrder
from treering.data.tokenize.stage import tokenize
from treering.project import Project
from treering.reproduce.causes import find_causes
from treering.reproduce.data_causes import _fed_otherwise
from treering.reproduce.difference import compare_runs
from treering.reproduce.verdict import judge
from treering.runlog.directory import RunDirectory

EXPERIMENT = text_project.experiment(
    "tiny",
    seed=7,
    optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
    schedule={"train_tokens": 3072, "global_batch_size": 8, "warmup_tokens": 256},
    parallel={"micro_batch_size": 2},
    checkpoint={"every_steps": 6},
)
DOCUMENT = "letters-17"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return text_project.lay(tmp_path_factory.mktemp("project"), EXPERIMENT)


@pytest.fixture(scope="module")
def first(project):
    return train(project)


@pytest.fixture
def other(project, tmp_path):
    """A copy of the project with another experiment or document; the corpora as they were stay below data/corpora."""

    def changed(document=False, **sections):
        here = Project(shutil.copytree(project.root, tmp_path / "other", ignore=shutil.ignore_patterns("runs")))
        config = here.root / "tiny.yaml"
        config.write_text(yaml.safe_dump(EXPERIMENT | sections))
        if document:
            swap_words(here.curated / "train" / "letters.jsonl")
        loaded = load_experiment(config)
        if document:
            tokenize(loaded.corpora, loaded.tokenizer, loaded.curation, here, say=lambda _: None)
            shutil.copytree(project.corpora / "train", here.corpora / "earlier")
        resolve_blend(loaded, here).write(here.blend)
        return here

    return changed


def swap_words(path):
    """The words of one document in another order: as many tokens, and the same tokenizer."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    (row,) = (each for each in rows if each["id"] == DOCUMENT)
    begin, *rest = row["text"].split()
    row["text"] = " ".join([begin, *reversed(rest)])
    text_project.write_jsonl(path, rows)


def train(project):
    """True rings and headers without a model."""
    resolved = resolve(
        load_experiment(project.root / "tiny.yaml"), ResolvedBlend.read(project.blend), "tiny.yaml", runs=project.runs
    )
    run = RunDirectory(project.run(resolved.run_id))
    run.path.mkdir(parents=True)
    resolved.write(run.config_file)
    stage_trainer.train(project, run, None, argparse.Namespace(die_after=None, rewrite=None))
    return run


def verdict(first, second, project):
    difference = compare_runs(first, second, project=project)
    return judge(difference, find_causes(difference, first, second, project=project))


def weights(letters, numbers):
    parts = [{"corpus": "letters", "weight": letters}, {"corpus": "numbers", "weight": numbers}]
    return {**EXPERIMENT["blend"], "components": parts}


def first_other_step(one, two):
    """The first step in which two orders name other samples."""
    orders = [DataOrder(run.resolved.blend) for run in (one, two)]
    for step in range(1, 13):
        lo, hi = one.resolved.schedule.sample_range(step)
        names = [[(s.component, s.epoch, s.index) for s in map(order.sample, range(lo, hi))] for order in orders]
        if names[0] != names[1]:
            return step
    return None


def test_a_changed_weight_of_the_blend(first, other):
    here = other(blend=weights("0.69", "0.31"))
    second = train(here)
    found = verdict(first, second, here)
    step = first_other_step(first, second)
    assert step > 1  # so that not any step would do
    assert (found.state, found.first_step, found.search.trials) == ("data", step, 0)
    (candidate,) = found.search.candidates
    assert (candidate.kind, candidate.outcome) == ("data", "cause")
    assert candidate.text == "blend: weight of letters 0.7 to 0.69, numbers 0.3 to 0.31"
    assert f"The data differ from step {step}: the first run read corpus " in found.sentence
    assert found.sentence.endswith("(it alone gives the step other samples).")
    assert found.to_json()["causes"]["causes"][0]["text"] == candidate.text


def test_one_changed_document(first, other):
    here = other(document=True)
    second = train(here)
    found = verdict(first, second, here)
    assert (found.state, found.first_step) == ("data", first_other_step(first, second))
    (candidate,) = found.search.candidates
    assert candidate.outcome == "cause"
    assert candidate.text.endswith(f": document {DOCUMENT} changed")
    assert found.sentence.startswith("The data differ from step 1: the first run read corpus letters, document ")
    shutil.rmtree(here.corpora / "earlier")
    (candidate,) = verdict(first, second, here).search.candidates
    assert (candidate.outcome, DOCUMENT in candidate.text) == ("cause", False)
    assert "both versions of the corpus below data/corpora would name the documents" in candidate.evidence


def test_of_two_changes_the_one_that_reached_the_step_is_the_cause(first, other):
    here = other(document=True, blend=weights("0.69", "0.31"))
    found = verdict(first, train(here), here)
    assert found.first_step == 1
    assert [each.outcome for each in found.search.candidates] == ["not_cause", "cause"]
    assert "Cause: corpus letters: " in found.sentence


def test_two_changes_that_both_reached_the_step_are_named_together(first, other):
    here = other(document=True, blend=weights("0.3", "0.7"))
    found = verdict(first, train(here), here)
    assert [each.outcome for each in found.search.candidates] == ["part", "part"]
    assert (
        "Cause: blend: weight of letters 0.7 to 0.3, numbers 0.3 to 0.7 together with corpus letters: "
        in found.sentence
    )


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"blend": {**EXPERIMENT["blend"], "seed": 4}}, "blend: seed 3 to 4"),
        (
            {"schedule": {**EXPERIMENT["schedule"], "global_batch_size": 4}},
            "batch schedule: samples (0, 8) to samples (0, 4) in step 1",
        ),
    ],
)  # fmt: skip
def test_another_seed_and_another_schedule(first, other, sections, text):
    here = other(**sections)
    found = verdict(first, train(here), here)
    (candidate,) = found.search.candidates
    assert (found.first_step, candidate.text, candidate.outcome) == (1, text, "cause")


def test_a_run_that_was_not_fed_what_its_order_gives(project, first, tmp_path, monkeypatch):
    read = stage_trainer.read_samples

    def shifted(order, corpora, lo, hi):
        return read(order, corpora, lo + (lo >= 32), hi + (lo >= 32))

    monkeypatch.setattr(stage_trainer, "read_samples", shifted)
    here = Project(shutil.copytree(project.root, tmp_path / "fed", ignore=shutil.ignore_patterns("runs")))
    found = verdict(first, train(here), here)
    (candidate,) = found.search.candidates
    assert (found.first_step, candidate.outcome) == (5, "cause")
    assert candidate.evidence == "recomputed from the corpora, the batch of step 5 is not that of the second run"
    fed = _fed_otherwise(first, first, 5, here)
    assert (fed.outcome, fed.evidence) == (
        "not_cause", "recomputed from the corpora, the batch of step 5 is that of both runs",
    )  # fmt: skip
