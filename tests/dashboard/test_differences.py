"""The Differences page, held against `compare_checkpoints`."""

import shutil
from urllib.parse import parse_qsl

import pytest
from audited_project import cut_checkpoint, lay_attempt, start_run
from dashboard_page import metrics, page, table, texts
from run_records import parent

from treering.audit.documents.difference import compare_checkpoints
from treering.data.blend.joins import join_lines
from treering.runlog.find import find_runs
from treering_dashboard.pages import differences


@pytest.fixture
def other(audited):
    """A second run on another blend."""
    run = start_run(audited, "blend.seed=4")
    cut_checkpoint(run, 1, lay_attempt(audited, run, 1, range(1, run.resolved.schedule.num_steps + 1))[-1])
    return run


def first_run(project, other):
    return next(run for run in find_runs(project.runs) if run.path != other.path)


def number(text):
    return int(text.replace("\u2009", ""))


def test_two_runs_on_other_blends(audited, other):
    run = first_run(audited, other)
    a, b = run.checkpoints()[-1], other.checkpoints()[-1]
    found = compare_checkpoints(a, b, audited)
    app = page(
        "differences",
        run=run.path.name,
        checkpoint=a.path.name,
        other_run=other.path.name,
        other_checkpoint=b.path.name,
    )
    assert found.first_step == 1
    assert "differ from step 1" in texts(app)
    assert found.reason in texts(app)
    shown = table(app, "Only A")
    assert shown["Corpus"].tolist() == [each.corpus for each in found.corpora]
    assert shown["Share A"].tolist() == [100 * each.share_a for each in found.corpora]
    assert shown["Share B"].tolist() == [100 * each.share_b for each in found.corpora]
    for column, field in (
        ("Reads A", "reads_a"),
        ("Reads B", "reads_b"),
        ("Only A", "only_a"),
        ("Only B", "only_b"),
        ("Both", "both"),
        ("Documents only A", "documents_only_a"),
        ("Documents only B", "documents_only_b"),
    ):
        assert [number(text) for text in shown[column]] == [getattr(each, field) for each in found.corpora]
    total = metrics(app)
    assert number(total["Only A"]) == sum(each.only_a for each in found.corpora) > 0
    assert number(total["A read"]) == a.manifest.consumed_samples
    assert [button.label for button in app.button] == ["Batch of A", "Batch of B"]
    where = [f"runs/{each.run.path.name}/checkpoints/{each.path.name}" for each in (a, b)]
    assert f"treering diff {where[0]} {where[1]}" in texts(app)


@pytest.mark.slow
def test_corpora_that_do_not_go_on_where_they_stopped(audited):
    run = find_runs(audited.runs)[0]
    start = (f"start_from.run='{run.id}'", "start_from.step=6", "start_from.schedule=continue")
    other = start_run(audited, "blend.components.0.weight='0.1'", "blend.components.2.weight='0.6'", *start)
    cut_checkpoint(other, 1, lay_attempt(audited, other, 1, range(7, 13), parent(run.checkpoints()[0]))[-1])
    a, b = run.checkpoints()[-1], other.checkpoints()[-1]
    lines = join_lines(compare_checkpoints(a, b, audited).joins)
    app = page("differences", run=run.path.name, other_run=other.path.name)
    assert len(lines) == 4
    assert "Corpora that do not go on where they stopped" in texts(app)
    assert all(line.replace("`", "") in texts(app) for line in lines)


@pytest.mark.slow
def test_compare_leads_here_where_data_differ(audited, other):
    run = first_run(audited, other)
    (link,) = page("compare", runs=[run.path.name, other.path.name]).get("page_link")
    assert link.proto.page == "differences"
    assert dict(parse_qsl(link.proto.query_string)) == {
        "run": run.path.name,
        "checkpoint": run.checkpoints()[-1].path.name,
        "other_run": other.path.name,
        "other_checkpoint": other.checkpoints()[-1].path.name,
    }
    shutil.rmtree(other.path / "checkpoints")
    assert not page("compare", runs=[run.path.name, other.path.name]).get("page_link")


@pytest.mark.slow
def test_b_is_another_run_or_else_an_earlier_checkpoint(audited):
    run = find_runs(audited.runs)[0]
    app = page("differences", run=run.path.name)
    assert "differ from step 7" in texts(app)
    assert f"only run {run.id} went on to this step" in texts(app)
    assert [box.value for box in app.selectbox] == [
        run.path.name,
        run.checkpoints()[-1].path.name,
        run.path.name,
        run.checkpoints()[0].path.name,
    ]
    other = start_run(audited, "seed=8")
    cut_checkpoint(other, 1, lay_attempt(audited, other, 1, range(1, 7))[-1])
    app = page("differences", run=run.path.name)
    assert [box.value for box in app.selectbox][2:] == [other.path.name, other.checkpoints()[0].path.name]


def test_a_step_that_the_next_run_has_no_checkpoint_of(audited):
    run = find_runs(audited.runs)[0]
    other = start_run(audited, "seed=8")
    cut_checkpoint(other, 1, lay_attempt(audited, other, 1, range(1, 8))[-1])
    app = page("differences", run=run.path.name, checkpoint="step-00000006", other_run=run.path.name)
    app.selectbox(key="run").select(other.path.name).run()
    assert not app.exception
    assert app.selectbox(key="checkpoint").value == "step-00000007"
    assert "step-00000007" in texts(app)


def test_environments_differ_by_package(audited, other):
    run = first_run(audited, other)
    for each, version in ((run.attempts()[-1], "2.12.0"), (other.attempts()[0], "2.13.0")):
        packages = {"packages": {"torch": version}, "numeric_packages": {"torch": version}}
        header = each.header
        header.model_copy(update={"environment": {**header.environment, **packages}}).write(each.header_file)
    app = page("differences", run=run.path.name, other_run=other.path.name)
    shown = table(app, "Can move numbers")
    assert shown.iloc[0].tolist() == ["package", "torch", "2.12.0", "2.13.0", "yes"]
    assert "devices and drivers were not compared" in texts(app)


@pytest.mark.slow
def test_the_same_checkpoint_twice_is_the_same_data(audited):
    run = find_runs(audited.runs)[0]
    last = run.checkpoints()[-1].path.name
    app = page("differences", run=run.path.name, other_run=run.path.name, other_checkpoint=last)
    assert "same data" in texts(app)
    assert "the same batches in the same order" in texts(app)
    assert metrics(app)["Only A"] == "0"


@pytest.mark.slow
def test_a_corpus_that_is_gone_leaves_the_samples(audited):
    shutil.rmtree(audited.corpus("green"))
    app = page("differences", run=find_runs(audited.runs)[0].path.name)
    shown = table(app, "Only A").set_index("Corpus")
    assert shown.loc["green", "Documents only A"] == "corpus not available"
    assert number(shown.loc["green", "Only A"]) > 0
    assert "Not looked into" in texts(app)
    assert "green" in "".join(text.value for text in app.text)


def test_a_damaged_record_is_named(audited):
    run = find_runs(audited.runs)[0]
    path = run.path / "attempts" / "0001" / "rings.jsonl"
    path.write_text(path.read_text().replace('"loss":5.7', '"loss":5.1', 1))
    app = page("differences", run=run.path.name)
    assert [each.value for each in app.error] == [
        "A record on the way to one of them does not hold; this is compared without it."
    ]
    assert "rings.jsonl line 3: ring of step 3" in app.code[0].value
    assert "Not looked into" not in texts(app)


def test_many_samples_are_compared_when_asked(audited, monkeypatch):
    monkeypatch.setattr(differences, "MANY_SAMPLES", 10)
    run = find_runs(audited.runs)[0]
    app = page("differences", run=run.path.name)
    assert not app.dataframe
    app.button[0].click().run()
    assert "differ from step 7" in texts(app)
    app.run()
    assert "differ from step 7" in texts(app), "what was asked stays answered"


@pytest.mark.slow
def test_without_runs_or_checkpoints(audited):
    run = find_runs(audited.runs)[0]
    shutil.rmtree(run.path / "checkpoints")
    assert "no complete checkpoint yet" in texts(page("differences"))
    shutil.rmtree(run.path)
    assert "No runs yet" in texts(page("differences"))
