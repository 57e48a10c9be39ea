"""The Runs page: every state, incidents, overrides and the link to MLflow."""

import shutil

import pytest
from damaged_run import befall, edit_ring
from dashboard_page import APP, page, texts
from streamlit.testing.v1 import AppTest


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
    assert "4 runs, none running" in texts(app)


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
    assert not refused.dataframe
