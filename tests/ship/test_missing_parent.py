"""A run whose parent run is missing or damaged keeps its own numbers, in every place that shows them."""

import json
import shutil
from pathlib import Path

import mlflow
import pytest
from dashboard_page import metrics, page, texts
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from treering.cli import app
from treering.errors import EvidenceError
from treering.metrics import path_summary
from treering.report.facts import Training
from treering.runlog.ancestry import path_left
from treering.runlog.directory import RunDirectory
from treering.ship.follow import ship_once

APP = str(Path(__file__).parents[2] / "dashboard" / "treering_dashboard" / "site" / "app.py")


@pytest.fixture
def pair(write_run):
    """Ten steps of one run, then twenty of another that starts from the first one's checkpoint."""
    parent = write_run(1).start().lay(10).save().end()
    child = write_run(2).start(parent=parent.run.checkpoints()[0]).lay(15).save()
    return parent, child.lay(5).evaluate(25).end()


def remove(parent):
    shutil.rmtree(parent.run.path)


def lose_header(parent):
    (parent.run.path / "attempts" / "0001" / "header.json").unlink()


def edit_ring(parent):
    file = parent.run.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":3.99', '"loss":2.99', 1))


def lose_rings(parent):
    file = parent.run.attempts()[0].rings_file
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:4]))


DAMAGES = [remove, lose_header, edit_ring, lose_rings]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_path_left_is_the_runs_own(pair, damage):
    parent, child = pair
    whole = path_left(child.run)
    assert ([ring.step for ring in whole.rings], whole.missing) == (list(range(1, 31)), "")
    damage(parent)
    left = path_left(child.run)
    assert [ring.step for ring in left.rings] == list(range(11, 31))
    assert left.missing.startswith(f"the run starts from step 10 of run {parent.resolved.run_id}, whose log is missing")


def test_a_long_run_without_its_parent_is_read_by_columns(pair, monkeypatch):
    parent, child = pair
    remove(parent)
    by_rings = path_summary.summary_of_path(child.run)
    monkeypatch.setattr(path_summary, "LONG_BYTES", 0)
    by_columns = path_summary.summary_of_path(RunDirectory(child.run.path))
    assert (child.run.path / "attempts" / "0001" / "columns" / "head.json").exists()
    assert by_columns.missing
    for name in ("missing", "newest", "validation_loss", "alarms"):
        assert getattr(by_columns, name) == getattr(by_rings, name)
    assert by_columns.last.step == 30


def test_damage_in_the_run_itself_is_still_an_error(pair):
    parent, child = pair
    remove(parent)
    edit = child.run.attempts()[0].rings_file
    edit.write_text(edit.read_text().replace('"loss":3.98', '"loss":2.98', 1))
    with pytest.raises(EvidenceError, match="ring of step 11"):
        path_left(child.run)


@pytest.mark.parametrize("damage", [remove, edit_ring])
def test_runs_show_and_ship(pair, damage, project, uri, monkeypatch):
    def call(*arguments):
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "300"})
        assert result.exit_code == 0, result.output
        return result.output

    client = mlflow.MlflowClient(uri)
    monkeypatch.chdir(project.root)
    parent, child = pair
    damage(parent)
    child_id = child.resolved.run_id
    row = next(row for row in json.loads(call("runs", "--json")) if row["id"] == child_id)
    assert (row["state"], row["step"], row["loss"], row["consumed_tokens"]) == ("finished", 30, 3.97, 30 * 8 * 64)
    assert f"step 10 of run {parent.resolved.run_id}" in row["problem"]
    shown = json.loads(call("show", child_id, "--json"))
    assert (shown["run"]["step"], shown["throughput"]["steps"]) == (30, 20)
    assert [(each["run"], each["attempt"]) for each in shown["path"]] == [(child_id, 1)]
    assert "missing     the run starts from step 10" in call("show", child_id)
    ship_once(project, child_id)
    (stored,) = [
        run
        for experiment in client.search_experiments()
        for run in client.search_runs([experiment.experiment_id])
        if run.data.tags.get("treering.run_id") == child_id
    ]
    assert stored.data.tags["treering.state"] == "finished"
    assert [metric.step for metric in client.get_metric_history(stored.info.run_id, "train/loss")] == list(
        range(11, 31)
    )


@pytest.mark.slow
@pytest.mark.parametrize("damage", [remove, edit_ring])
def test_the_dashboard(pair, damage, project, monkeypatch):
    parent, child = pair
    damage(parent)
    monkeypatch.setenv("TREERING_ROOT", str(project.root))
    shown = page("run", run=child.run.path.name)
    assert ":material/check_circle: finished" in texts(shown)
    assert metrics(shown)["Loss"] == "3.97"
    assert [error.value for error in shown.error] == ["The run that this one starts from is missing."]
    assert f"step 10 of run {parent.resolved.run_id}" in texts(shown)
    table = AppTest.from_file(APP, default_timeout=30).run().dataframe[0].value
    row = next(row for row in table.to_dict("records") if row["Run"].startswith(child.run.path.name[:8]))
    assert (row["State"], row["Progress"]) == (["✔ finished"], pytest.approx(30 / 400, abs=0.005))


def test_the_report_reads_the_runs_own_part(pair):
    parent, child = pair
    remove(parent)
    left = path_left(child.run, child.run.checkpoints()[-1])
    training = Training(child.resolved, child.run.checkpoints()[-1], left.rings, (), left.missing)
    assert [ring.step for ring in training.rings] == list(range(11, 26))
