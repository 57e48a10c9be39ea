"""`treering rebuild`: what it prints, compares and makes again, for MLflow and the columns."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from shipped_runs import history, mlflow_runs
from typer.testing import CliRunner

from treering.cli import app
from treering.errors import EvidenceError, StoreError
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.compare import columns_difference
from treering.ship.follow import ship_once


@pytest.fixture
def call(project, monkeypatch):
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("TREERING_DATABASE_URL", f"sqlite:///{project.root / 'treering.db'}")

    def invoke(*arguments):
        result = CliRunner().invoke(app, ["rebuild", *arguments], env={"COLUMNS": "300"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    return invoke


def of(output, target):
    return [(each["run"], each["outcome"], each["text"]) for each in json.loads(output) if each["target"] == target]


def test_what_is_missing_is_made_and_then_equal(call, write_run, client, project):
    writer = write_run().start().lay(12).save().end()
    name = writer.resolved.run_id
    with pytest.raises(StoreError, match=r"(found no MLflow run|found no columns), .*`treering rebuild` makes"):
        call("--check")
    assert of(call("--json"), "mlflow") == [(name, "rebuilt", "found no MLflow run, expected one")]
    assert f"mlflow: {name}: equal" in call("--check").splitlines()
    assert f"columns: {name}: equal" in call(name[:6]).splitlines()
    (run,) = mlflow_runs(client)
    assert len(history(client, run, "train/loss")) == 12
    shutil.rmtree(project.root / "mlartifacts", ignore_errors=True)


def test_what_differs_is_named_kept_and_made_again(call, write_run, client, project):
    writer = write_run().start().lay(12).end()
    ship_once(project)
    (run,) = mlflow_runs(client)
    client.set_tag(run.info.run_id, "treering.path", "0009:")
    with pytest.raises(StoreError, match=r"tag treering.path: found '0009:', expected '0001:'"):
        call("--check")
    assert mlflow_runs(client, "replaced") == []
    output = call()
    assert (
        f"rebuilt: tag treering.path: found '0009:', expected '0001:': MLflow run {run.info.run_id} is kept" in output
    )
    assert f"mlflow: {writer.resolved.run_id}: equal" in call("--check")


@pytest.mark.usefixtures("uri")
def test_a_damaged_run_keeps_what_mlflow_has(call, write_run, client, project):
    bad, good = write_run(1).start().lay(3), write_run(2).start().lay(2).end()
    ship_once(project)
    file = bad.run.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":3.998', '"loss":2.998'))
    with pytest.raises(EvidenceError, match=r"damaged: .*ring of step 2.* are not equal"):
        call()
    assert len(mlflow_runs(client)) == 2
    assert f"mlflow: {good.resolved.run_id}: equal" in call(good.resolved.run_id)


def change_rows(attempt):
    (part,) = (attempt.path / "columns").glob("rows-*")
    table = pq.read_table(part)
    at = table.column_names.index("metric/train/loss")
    values = table["metric/train/loss"].to_pylist()
    values[4] = 9.0
    pq.write_table(table.set_column(at, "metric/train/loss", [values]), part)


def change_pyramid(attempt):
    (part,) = (attempt.path / "columns").glob("pyramid-*")
    table = pq.read_table(part)
    at = table.column_names.index("metric/train/loss")
    values = [2 * value for value in table["metric/train/loss"].to_pylist()]
    pq.write_table(table.set_column(at, "metric/train/loss", [values]), part)


def remove_part(attempt):
    for part in (attempt.path / "columns").glob("rows-*"):
        part.unlink()


def change_head(attempt):
    head = attempt.path / "columns" / "head.json"
    head.write_text(head.read_text().replace('"maximum":3.999', '"maximum":5.0'))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (change_rows, "metric train/loss at step 5: found 9.0, expected 3.995"),
        (change_pyramid, "train/loss: found other buckets than the rows give"),
        (remove_part, "found a damaged part"),
        (change_head, "found other extreme or newest values than the rings have"),
    ],
)
def test_columns_that_differ_are_named_and_built_again(call, write_run, uri, damage, text):  # noqa: ARG001 - migrated
    writer = write_run().start().lay(12).end()
    attempt = writer.run.attempts()[0]
    AttemptColumns(attempt).head()
    assert columns_difference(attempt) is None
    damage(attempt)
    assert text in columns_difference(attempt)[0]
    assert text in call()
    assert columns_difference(attempt) is None


def test_columns_that_lack_rings_are_behind(write_run):
    writer = write_run().start().lay(12)
    attempt = writer.run.attempts()[0]
    AttemptColumns(attempt).head()
    writer.lay(3)
    text, behind = columns_difference(attempt)
    assert (text.endswith("found 12 rings, expected 15"), behind) == (True, True)
