"""`treering rewind`: back to a checkpoint before a planted spike, over exactly the planted documents, and on."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import text_project
import yaml

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.training import training_documents
from treering.config.load import load_experiment
from treering.data.blend.continuation import resolve_run
from treering.data.blend.corpora import resolve_blend
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.write import write_tokens
from treering.data.order.treering1 import DataOrder
from treering.metrics.rewind import Rewind, rewind_behind
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.journal import notes_and_tags
from treering.runlog.lock import acquire
from treering_dashboard.frames.rings import read_run
from treering_trainer.evaluate.__main__ import _experiment_file

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

LENGTH, DOCUMENTS = 32, 40
SPIKE = 21  # the step that reads the planted document, after the checkpoint of step 20
PLANTED = "letters-7"
SECTIONS = {
    "schedule": {"train_tokens": 30 * LENGTH, "global_batch_size": 1, "warmup_tokens": 0},
    "parallel": {"micro_batch_size": 1, "cpu_processes": 1},
    "checkpoint": {"every_steps": 5},
    "validation": None,
    "optimizer": {"peak_learning_rate": 0.01, "min_learning_rate": 0.001},
}


def write_letters(project, planted=PLANTED):
    """Corpus `letters`: one document a sample, each one token over and over; the planted one has random tokens."""
    rng = np.random.default_rng(1)
    about = Corpus.open(project.corpus("letters", "heldout")).manifest
    about = {name: about[name] for name in ("name", "licence", "source", "tokenizer", "curation")} | {"split": "train"}
    rows = (
        (
            {"id": f"letters-{number}", "source": "test", "offset": number, "licence": "CC0-1.0"},
            rng.integers(300, 400, LENGTH) if f"letters-{number}" == planted else np.full(LENGTH, 290 + number % 2),
        )
        for number in range(DOCUMENTS)
    )
    shutil.rmtree(project.corpus("letters"), ignore_errors=True)
    write_tokens(project.corpus("letters"), rows, about, width=2)


@pytest.fixture(scope="module")
def spiked(zygote, project, tmp_path_factory):
    """A run of one sample a step whose step 21 reads the planted document alone."""
    blend = {"seed": 3, "sequence_length": LENGTH, "components": [{"corpus": "letters", "weight": "1"}]}
    document = {**yaml.safe_load((project.root / "tiny.yaml").read_text()), **SECTIONS}
    document |= {"experiment": "spiked", "blend": blend}
    mine = text_project.lay(tmp_path_factory.mktemp("spiked"), document)
    (mine.root / "spiked.yaml").unlink()
    write_letters(mine)
    config = mine.experiments / "spiked.yaml"
    config.parent.mkdir()
    for seed in range(1000):  # the order depends on seed and content
        config.write_text(yaml.safe_dump({**document, "blend": {**blend, "seed": seed}}))
        found = resolve_blend(load_experiment(config), mine)
        if DataOrder(found).sample(SPIKE - 1).index == int(PLANTED.removeprefix("letters-")):
            break
    found.write(mine.blend)
    zygote.train(mine, mine.runs, config=str(config))
    (path,) = mine.runs.glob("*/resolved.json")
    return mine, RunDirectory(path.parent)


@pytest.fixture
def copied(spiked, tmp_path, monkeypatch):
    project, run = spiked
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("published*", "metrics", "plots"))
    monkeypatch.chdir(tmp_path / "copy")
    copy = Project(tmp_path / "copy")
    return copy, RunDirectory(copy.run(run.id))


@pytest.fixture
def became(monkeypatch):
    """What the process became: the words of its new program."""
    words = []

    def become(_interpreter, arguments):
        words.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", become)
    return words


def notes(run):
    return [note.text for note in notes_and_tags(line.entry for line in run.journal.lines())[0]]


def test_the_branch_skips_exactly_the_planted_document(copied, treering, became, zygote):
    project, run = copied
    theirs = {ring.step: ring for ring in run.path_rings(run.checkpoints()[-1])}
    assert theirs[SPIKE].loss > max(theirs[step].loss for step in range(11, SPIKE)) + 3
    code, out, err = treering("rewind", run.id[:6], "--to", 22, "--skip", 1, "--json")
    assert code == 0, err
    answer = json.loads(out)
    skipped = answer["skipped"]
    assert (answer["step"], skipped["sample_start"], skipped["sample_end"]) == (20, 20, 21)
    assert [row["id"] for row in skipped["documents"] if row["tokens_read"]] == [PLANTED]
    assert skipped["missing"] == []
    (words,) = became
    assert words[1:] == ["-m", "treering_trainer.launch", "--no-publish", "--", answer["experiment"]]
    assert answer["experiment"] == str(project.experiments / "spiked-rewind-20-skip-1.yaml")

    zygote.train(project, project.runs, "--no-publish", config=answer["experiment"])
    branch = RunDirectory(project.run(answer["branch"]))
    mine = list(branch.attempts()[0].rings())
    assert [ring.step for ring in mine] == list(range(21, 31))
    assert [ring.batch_digest for ring in mine[:9]] == [theirs[step].batch_digest for step in range(22, 31)]
    assert max(ring.loss for ring in mine) < theirs[SPIKE].loss - 3
    words = f"rewound by `treering rewind`: back to step 20 of run {run.id}, over the batches of steps 21 to 21"
    assert notes(branch) == [words]
    assert notes(run) == [f"{words}; the branch is run {branch.id} of spiked-rewind-20-skip-1.yaml"]
    assert [each.step for each in run.checkpoints()] == [5, 10, 15, 20, 25, 30]

    last = branch.checkpoints()[-1]
    report = audit_checkpoint(last, project, verify=True)
    assert report.findings == ()
    assert [(each.step, each.sample_start, each.sample_end) for each in report.passed_over] == [(21, 20, 21)]
    read = [row for batch in training_documents(last, project).batches() for row in batch.to_pylist()]
    assert sum(row["tokens_read"] for row in read if row["id"] != PLANTED) == 30 * LENGTH
    assert all(row["tokens_read"] == 0 for row in read if row["id"] == PLANTED)
    curve = read_run(branch).path.all_series(["train/loss"])["train/loss"].values
    assert curve.tolist() == [theirs[step].loss for step in range(1, 21)] + [ring.loss for ring in mine]

    # The same command goes on, and notes nothing twice; another skip is another file.
    assert treering("rewind", run.id, "--to", 20, "--skip", 1)[0] == 0
    assert len(notes(run)) == len(notes(branch)) == 1
    code, out, _ = treering("rewind", run.id, "--to", 20, "--skip", 3, "--no-train", "--limit", 1)
    assert code == 0
    assert f"back to     step 20 of run {run.id}; the run stays as it is" in out
    assert "skipped     the batches of steps 21 to 23: samples 20 to 23 of the data order, " in out
    assert "more; `--limit N` shows more" in out
    assert len(became) == 2
    assert (
        f"the way around step 21: `treering rewind {run.id[:8]} --to 15 --skip 6`" in treering("spikes", run.id, 21)[1]
    )


def test_a_branch_that_only_trains_otherwise(copied, treering):
    project, run = copied
    words = ("rewind", run.id, "--to", 20, "--no-train", "--json")
    first = json.loads(treering(*words, "--set", "optimizer.peak_learning_rate=0.001")[1])
    other = json.loads(treering(*words, "--set", "optimizer.peak_learning_rate=0.002")[1])
    again = json.loads(treering(*words, "--set", "optimizer.peak_learning_rate=0.001")[1])
    names = [Path(each["experiment"]).name for each in (first, other, again)]
    assert names == ["spiked-rewind-20.yaml", "spiked-rewind-20-2.yaml", "spiked-rewind-20.yaml"]
    assert first["branch"] == again["branch"] != other["branch"]
    document = yaml.safe_load((project.experiments / names[1]).read_text())
    assert document["optimizer"]["peak_learning_rate"] == 0.002
    assert "reads the same batches again" in treering(*words[:-1])[1]
    for each in (first, other):  # `treering evaluate RUN` reads the settings of the branch's own file
        file = Path(each["experiment"])
        experiment = load_experiment(file)
        resolved = resolve_run(experiment, resolve_blend(experiment, project), str(file), runs=project.runs)
        project.run(each["branch"]).mkdir()
        resolved.write(project.run(each["branch"]) / "resolved.json")
        assert _experiment_file(project, each["branch"][:8]) == file


def test_a_branch_of_a_branch(copied, treering, zygote):
    project, run = copied
    first = json.loads(treering("rewind", run.id, "--to", 5, "--skip", 2, "--no-train", "--json")[1])
    zygote.train(project, project.runs, "--no-publish", "--stop-after=9", config=first["experiment"], expect=75)
    second = json.loads(treering("rewind", first["branch"], "--to", 9, "--skip", 3, "--no-train", "--json")[1])
    assert second["step"] == 9
    assert (second["skipped"]["sample_start"], second["skipped"]["sample_end"]) == (11, 14)
    zygote.train(project, project.runs, "--no-publish", config=second["experiment"])
    report = audit_checkpoint(RunDirectory(project.run(second["branch"])).checkpoints()[-1], project, verify=True)
    assert report.findings == ()
    assert [each.run for each in report.path] == [run.id, first["branch"], second["branch"]]
    assert [each.sample_start for each in report.passed_over] == [5, 11]
    code, _, err = treering("rewind", second["branch"], "--to", 7, "--no-train")
    assert (code, f"it starts from step 9 of run {first['branch']}: rewind that run" in err) == (2, True)


def test_what_cannot_be_rewound_says_why(copied, treering):
    project, run = copied
    code, _, err = treering("rewind", run.id, "--to", 3)
    assert (code, "no checkpoint at or before step 3" in err, "steps 5, 10, 15, 20" in err) == (2, True, True)
    descriptor = acquire(run.lock)
    code, _, err = treering("rewind", run.id, "--to", 20)
    os.close(descriptor)
    assert (code, "the run is running; stop it" in err) == (2, True)
    code, _, err = treering("rewind", run.id, "--to", 30, "--no-train")
    assert (code, "schedule.train_tokens" in err) == (2, True)
    (project.experiments / "spiked.yaml").unlink()
    code, _, err = treering("rewind", run.id, "--to", 20, "--no-train")
    assert (code, "no experiment has the corpora letters" in err, "--config FILE" in err) == (2, True, True)
    assert list(project.experiments.iterdir()) == []


def test_other_corpora_are_refused(copied, treering):
    project, run = copied
    write_letters(project, planted=None)
    code, _, err = treering("rewind", run.id, "--to", 20, "--no-train")
    assert (code, "corpus letters is another one than run" in err) == (2, True)
    other = "--set=optimizer.beta2=0.98"
    code, _, err = treering("rewind", run.id, "--to", 20, "--no-train", other)
    assert (code, "corpus letters is another one than run" in err) == (2, True)
    assert [file.name for file in project.experiments.iterdir()] == ["spiked.yaml"]


@pytest.mark.parametrize(("step", "expected"), [(5, None), (6, (5, 1)), (11, (5, 6)), (16, (10, 6)), (21, (15, 6))])
def test_the_rewind_that_a_spike_offers(step, expected, spiked):
    _, run = spiked
    assert rewind_behind(run, step) == (None if expected is None else Rewind(run.id[:8], *expected))
