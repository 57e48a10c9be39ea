"""The Runs page: every state, incidents, overrides and the link to MLflow."""

import shutil

import pytest
from damaged_run import befall, edit_ring
from dashboard_page import APP, metrics, page, table, texts
from streamlit.testing.v1 import AppTest

from treering.runlog.directory import RunDirectory
from treering.runlog.journal import Archived, Tagged

HOSTILE = "**bold** <b>tag</b> $x^2$ :red[red] `code` [link](http://x.example) :material/home:"


@pytest.mark.slow
def test_runs_without_runs_says_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    app = AppTest.from_file(APP, default_timeout=30).run()
    assert not app.exception
    assert "No runs yet" in texts(app)
    assert "treering train experiments/demo.yaml" in texts(app)
    assert str(tmp_path / "runs") in texts(app)


@pytest.mark.slow
def test_runs_lists_every_state(lay_run) -> None:
    lay_run(seed=1)
    lay_run(seed=2, status="interrupted", stop_at=240)
    damaged = lay_run(seed=3)
    edit_ring(damaged, 150)
    empty = lay_run(seed=4)
    for part in ("attempts", "checkpoints", "evaluations"):
        shutil.rmtree(empty / part)
    app = AppTest.from_file(APP, default_timeout=30).run()
    assert not app.exception
    table = app.dataframe[0].value
    by_state = {
        state[0].split(" ", 1)[1]: row for state, row in zip(table["State"], table.to_dict("records"), strict=True)
    }
    assert set(by_state) == {"finished", "interrupted", "evidence damaged", "empty"}
    assert by_state["finished"]["Step"] == "306 of 306"
    assert by_state["finished"]["Progress"] == 1.0
    assert by_state["interrupted"]["At risk"].startswith("40 (")
    assert by_state["evidence damaged"]["Step"] == "149 of 306"
    assert by_state["empty"]["Loss"] == "\u2013"
    assert "4 runs, none running; 1 damaged, 1 interrupted" in texts(app)
    assert table["State"][0][0].endswith("evidence damaged"), "the neediest is first"
    assert by_state["interrupted"]["Why"] == "interrupted after step 240: interrupted by the test"
    assert by_state["interrupted"]["Devices"] == "2 CPU"
    assert "To go" not in table, "no run moves"
    assert by_state["empty"]["Devices"] == "\u2013"
    assert len(by_state["finished"]["Curve"]) == 24


@pytest.mark.slow
def test_without_incidents_it_says_so(lay_run) -> None:
    app = page("run", run=lay_run().name)
    assert "None on record." in texts(app)
    assert "Incidents" not in AppTest.from_file(APP, default_timeout=30).run().dataframe[0].value


def test_runs_count_their_incidents(lay_run) -> None:
    befall(lay_run(seed=1), 0, "contact_lost", "rank 0 lost contact while starting")
    lay_run(seed=2)
    table = AppTest.from_file(APP, default_timeout=30).run().dataframe[0].value
    assert sorted(table["Incidents"]) == ["", "1"]


@pytest.mark.slow
def test_runs_links_to_mlflow_where_it_is_served(lay_run, monkeypatch) -> None:
    lay_run(steps=60)
    monkeypatch.setenv("TREERING_MLFLOW_URL", "http://127.0.0.1:5000/#/experiments/1")
    (link,) = page("runs").get("page_link")
    assert (link.proto.label, link.proto.page) == ("MLflow", "http://127.0.0.1:5000/#/experiments/1")
    monkeypatch.setenv("TREERING_MLFLOW_URL", "javascript:alert(1)")
    assert not page("runs").get("page_link")


@pytest.mark.slow
def test_what_was_set_tells_runs_apart(lay_run) -> None:
    lay_run(steps=60)
    assert "Set" not in page("runs").dataframe[0].value
    run = lay_run(steps=60, learning_rate=2e-3, overrides=("seed=2", "optimizer.peak_learning_rate=0.002"))
    table = page("runs").dataframe[0].value.set_index("Run")
    assert table.loc[f"{run.name[:8]} demo", "Set"] == "peak_learning_rate=0.002 min_learning_rate=0.0002"
    assert "seed=2  ·  optimizer.peak_learning_rate=0.002" in texts(page("run", run=run.name))


@pytest.mark.slow
def test_the_query_in_the_address_filters_the_runs(lay_run) -> None:
    lay_run(seed=1)
    wanted = lay_run(seed=2, status="interrupted", stop_at=240)
    app = page("runs", q="seed>1 state:interrupted")
    assert not app.exception
    assert list(app.dataframe[0].value["Run"]) == [f"{wanted.name[:8]} demo"]
    assert "1 run of 2" in texts(app)
    assert "no run has the config value model.layer" in texts(page("runs", q="model.layer>1"))
    refused = page("runs", q="modl.x>2")
    assert "column 1: found 'modl.x>2', expected one of the fields experiment" in texts(refused)
    assert "an example: model.num_layers>=24 tag:ablation" in texts(refused)
    assert not refused.dataframe
    assert "corpus is in the ledger alone; `treering search QUERY` asks it" in texts(page("runs", q="corpus:code"))
    by_score = page("runs", q="score.cloze@4>0.4 host:node-17")
    assert len(by_score.dataframe[0].value) == 2
    assert "no run has the score lambada; there are cloze, cloze.acc, " in texts(page("runs", q="score.lambada>0"))


@pytest.mark.slow
def test_runs_are_folded_by_configuration_and_tag(lay_run) -> None:
    runs = [RunDirectory(lay_run(seed=seed, steps=60)) for seed in (1, 2)]
    other = RunDirectory(lay_run(steps=60, stop_at=60, learning_rate=2e-3, status="failed", reason=HOSTILE))
    runs[0].journal.append(Tagged(at=1.0, by="ada", added=(f"owner={HOSTILE}",)))
    folds = page("runs", by="configuration").dataframe[0].value
    assert list(folds["Runs"]) == ["1", "2"], "the group with the neediest run is first"
    assert list(folds["States"]) == ["1 failed", "2 finished"]
    assert folds["Group"][0] == "peak_learning_rate=0.002 min_learning_rate=0.0002"
    assert folds["Why"][0] == f"{other.path.name[:8]}: failed after step 60: {HOSTILE}"
    shown = page("runs", by="configuration", group=folds["Group"][1])
    assert {name[:8] for name in shown.dataframe[0].value["Run"]} == {run.path.name[:8] for run in runs}
    assert "2 runs of 3" in texts(shown)
    shown.button[0].click().run()
    assert list(shown.dataframe[0].value.columns[:2]) == ["Group", "Runs"]
    gone = page("runs", by="configuration", group="of no run")
    assert "This group has no run." in texts(gone)
    gone.selectbox(key="by").select("experiment").run()
    assert list(gone.dataframe[0].value["Group"]) == ["demo"]
    by_owner = page("runs", by="tag.owner").dataframe[0].value
    assert set(by_owner["Group"]) == {"none", HOSTILE}
    assert "No such by" in texts(page("runs", by="nothing"))


@pytest.mark.slow
def test_archived_runs_are_hidden_and_counted(lay_run) -> None:
    run = RunDirectory(lay_run(steps=60))
    lay_run(seed=2, steps=60)
    run.journal.append(Archived(at=1.0, by="ada", archived=True))
    app = page("runs")
    assert "1 run of 2" in texts(app)
    assert "1 archived run hidden" in texts(app)
    assert len(page("runs", archived="true").dataframe[0].value) == 2


@pytest.mark.slow
def test_the_order_is_explained(lay_run) -> None:
    lay_run(steps=60)
    said = texts(page("runs"))
    assert "1. stalled: no step comes" in said
    assert "2. diverging: every further step is lost" in said
    assert "outside its band at 8 or more of the newest 16 steps" in said


def test_what_hides_all_runs_is_said(lay_run) -> None:
    run = RunDirectory(lay_run(steps=60))
    assert "No run fits the query and the tags." in texts(page("runs", q="state:failed"))
    run.journal.append(Archived(at=2.0, by="", archived=True))
    assert "No run fits the query and the tags; archived runs are hidden." in texts(page("runs"))


def test_a_loss_that_is_no_number_and_the_last_step_before_the_end(lay_run) -> None:
    run = lay_run(nan_at=305, stop_at=305, status="interrupted")
    row = page("runs").dataframe[0].value.iloc[0]
    assert (row["Loss"], row["Progress"]) == ("NaN", 0.99)
    app = page("run", run=run.name, at="305")
    assert (metrics(app)["Loss"], metrics(app)["Progress"]) == ("NaN", "99 %")
    step = table(app, "Metric").set_index("Metric")["Value"]
    assert step["Loss"].startswith("NaN")
    assert step["alarm: non_finite"].startswith("NaN against ")
    batch = texts(page("batch", run=run.name, step="305"))
    assert "Loss NaN" in batch
    assert "NaN over" not in batch
