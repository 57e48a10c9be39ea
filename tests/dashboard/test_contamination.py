"""The Contamination page, held against `find_contamination`, on examples planted in corpora."""

import shutil
from types import SimpleNamespace

import pytest
import run_records
import text_project
from dashboard_page import metrics, page, table, texts

from treering.audit.documents.contamination import find_contamination
from treering.config.canonical import digest_file
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.text import Detokenizer
from treering_dashboard.pages import contamination


@pytest.fixture
def planted(indexed):
    """The run, scored on a task of 12 examples: ten stand in training documents, one in none, one is short."""
    project, run = indexed
    letters = Corpus.open(project.corpus("letters"))
    text_of = Detokenizer(project.tokenizer)
    rows = [
        {"id": f"planted-{number}", "context": " ".join(text.split()[:16]), "target": "end", "document": "x"}
        for number, text in enumerate(text_of.documents(letters, range(10)))
    ]
    rows.append({"id": "other", "context": " ".join(f"word{i}" for i in range(20)), "target": "x", "document": "x"})
    rows.append({"id": "short", "context": "too short", "target": "x", "document": "x"})
    task = project.tasks / "cloze.jsonl"
    text_project.write_jsonl(task, rows)
    checkpoint = run.checkpoints()[-1]
    (run.path / "evaluations").mkdir()
    record = run_records.evaluation(
        run.resolved,
        checkpoint,
        tasks={"cloze": digest_file(task)},
        items={"cloze": {"0": {"acc": {row["id"]: float(number % 2) for number, row in enumerate(rows)}}}},
    )
    record.write(run.path / "evaluations" / f"{checkpoint.path.name}.json")
    return SimpleNamespace(project=project, run=run, checkpoint=checkpoint)


def test_examples_steps_and_split_scores_are_those_of_the_audit(planted):
    found = find_contamination(planted.checkpoint, planted.project)
    (task,) = found.tasks
    (score,) = task.scores
    assert 0 < task.seen < task.in_corpora
    app = page("contamination", run=planted.run.path.name)
    assert f"{task.seen} examples seen" in texts(app)
    shown = metrics(app)
    assert [int(shown[name]) for name in ("Examples", "With a 13-gram", "In corpora", "Seen")] == [
        task.examples,
        task.checkable,
        task.in_corpora,
        task.seen,
    ]
    assert table(app, "In corpora").iloc[0].tolist() == ["cloze", "12", "11", "10", str(task.seen)]
    assert table(app, "Clean examples").iloc[0].tolist() == [
        "cloze",
        "0",
        "acc",
        f"{score.clean:.3f}",
        str(score.num_clean),
        f"{score.seen:.3f}",
        str(score.num_seen),
        f"{score.seen - score.clean:+.3f}",
    ]
    examples = table(app, "Exposures").set_index("Example")
    assert set(examples.index) == {each.id for each in found.examples}
    for each in found.examples:
        row = examples.loc[each.id]
        assert row["State"] == ["▲ seen" if each.seen else "○ not read"]
        assert (row["13-grams"], row["Exposures"]) == (str(each.ngrams), str(each.exposures))
        assert row["First step"] == (str(each.first_step) if each.seen else "\u2013")
        assert row["Documents"] == ", ".join(each.documents)
    steps = [each.first_step for each in found.examples if each.seen]
    assert examples["First step"].tolist()[: len(steps)] == [str(step) for step in sorted(steps)]
    name = f"runs/{planted.run.path.name}/checkpoints/{planted.checkpoint.path.name}"
    assert f"treering contamination {name}" in texts(app)


def test_nothing_seen_is_clean_and_needs_no_scores(planted):
    rows = [{"id": "other", "context": " ".join(f"word{i}" for i in range(20)), "target": "x", "document": "x"}]
    text_project.write_jsonl(planted.project.tasks / "cloze.jsonl", rows)
    app = page("contamination", run=planted.run.path.name)
    assert "clean" in texts(app)
    assert "read a 13-gram of none of 1 example that" in texts(app)
    assert f"treering evaluate --run {planted.run.path.name[:8]}" in texts(app), "scored on another file"


def test_what_cannot_be_looked_for_is_not_called_clean(planted):
    short = [{"id": "short", "context": "too short", "target": "x", "document": "x"}]
    text_project.write_jsonl(planted.project.tasks / "cloze.jsonl", short)
    app = page("contamination", run=planted.run.path.name)
    assert "not fully checked" in texts(app)
    assert "clean" not in texts(app).split("not fully checked")[0]
    assert "read a 13-gram of none of 0 examples that" in texts(app)


def test_without_an_index_it_says_how_to_build_one(planted):
    shutil.rmtree(planted.project.index)
    app = page("contamination", run=planted.run.path.name)
    assert "treering index" in [code.value for code in app.code]
    assert not app.dataframe


def test_a_corpus_without_an_index_is_named(planted):
    gone = Corpus.open(planted.project.corpus("numbers")).digest.removeprefix("sha256:")[:16]
    shutil.rmtree(planted.project.index / gone)
    app = page("contamination", run=planted.run.path.name)
    assert "Not looked into" in texts(app)
    assert "no index of corpus numbers" in texts(app)
    assert "Exposures" in table(app, "Exposures")
    other = [{"id": "other", "context": " ".join(f"word{i}" for i in range(20)), "target": "x", "document": "x"}]
    text_project.write_jsonl(planted.project.tasks / "cloze.jsonl", other)
    assert "not fully checked" in texts(page("contamination", run=planted.run.path.name))


def test_without_tasks_it_says_what_makes_them(planted):
    shutil.rmtree(planted.project.tasks)
    app = page("contamination", run=planted.run.path.name)
    assert "found no task (*.jsonl), expected at least one; `dvc repro curate` makes them" in texts(app)


def test_many_examples_are_looked_for_when_asked(planted, monkeypatch):
    monkeypatch.setattr(contamination, "MANY_BYTES", 100)
    app = page("contamination", run=planted.run.path.name)
    assert not app.dataframe
    app.button[0].click().run()
    assert "examples seen" in texts(app)


@pytest.mark.slow
def test_without_runs_or_checkpoints(planted):
    shutil.rmtree(planted.run.path / "checkpoints")
    assert "no complete checkpoint yet" in texts(page("contamination"))
    shutil.rmtree(planted.run.path)
    assert "No runs yet" in texts(page("contamination"))
