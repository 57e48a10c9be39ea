"""Pages of runs that other trainers reported: list, run, comparison and audit."""

import time
from pathlib import Path

import numpy as np
import pytest
from dashboard_charts import panel, titles
from dashboard_page import metrics, page, table, texts

from treering.metrics.lines.read import run_line
from treering.record.start import start
from treering.runlog.directory import RunDirectory
from treering.runlog.journal import Archived
from treering.runlog.mirror import Mirror
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames import cached
from treering_dashboard.panels.text import NOTHING

HOSTILE = "<b>bold</b> $x$ :smile:"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))


def loop(name: str, *, steps: int = 6, first: int = 1, offset: int = 0, **options) -> Path:
    """A finished run; step n is fed samples that are all n + offset."""
    with start(name, **options) as run:
        for step in range(first, steps + 1):
            run.step(loss=10.0 - step, learning_rate=0.1, tokens=np.full((2, 8), step + offset))
            run.score(step, HOSTILE, {"acc": step / 10, "acc_stderr": 0.01})
    return run.path


def restarted(*, fault: bool) -> Path:
    """A run that was interrupted after step 5 and resumed from its checkpoint of step 3."""
    first = start("restarted")
    for step in range(1, 6):
        first.step(loss=1.0, tokens=np.full((2, 8), step))
        if step == 3:
            Path("ckpt").mkdir()
            first.checkpoint("ckpt")
    first.interrupt("by the test")
    with start("restarted") as run:
        for step in range(4, 8):
            run.step(loss=1.0, tokens=np.full((2, 8), step - 3 if fault else step))
    return run.path


def named(run: Path, experiment: str) -> str:
    """How the table names a run."""
    return f"{run.name[:8]} {experiment}"


@pytest.mark.slow
def test_the_list_has_runs_of_every_trainer_and_filters_by_tag() -> None:
    tagged = loop("tagged", tags=("keep", HOSTILE))
    other = loop("other", config={"lr": 1})
    app = page("runs")
    rows = table(app, "Trainer").set_index("Run")
    assert rows["Trainer"].to_dict() == {named(tagged, "tagged"): "recorded", named(other, "other"): "recorded"}
    assert (rows.loc[named(other, "other"), "Step"], rows.loc[named(other, "other"), "Tokens"]) == ("6", "96")
    assert list(rows.loc[named(tagged, "tagged"), "Tags"]) == ["keep", HOSTILE]
    app = page("runs", tags=["keep"])
    assert table(app, "Trainer")["Run"].tolist() == [named(tagged, "tagged")]
    assert "1 run of 2" in texts(app)
    assert "No such tag" in texts(page("runs", tags=["lost"]))


@pytest.mark.slow
def test_a_loop_that_reports_little_looks_right() -> None:
    with start("bare") as run:
        for step in range(5):
            run.step({"reward of the agent": 200_000.0 + step})
    app = page("run", run=run.path.name)
    assert "reward of the agent" in titles(app)
    assert "No loss was reported." in texts(app)
    assert "No score was reported." in texts(app)
    assert "None reported: all steps so far are at risk." in texts(app)
    assert metrics(app)["Tokens"] == NOTHING
    assert app.segmented_control[0].options == ["step", "wall clock", "process time"]
    assert panel(app, "reward of the agent").head["format"] == "prefix"


@pytest.mark.slow
def test_an_axis_that_a_run_lacks_in_the_address_falls_back() -> None:
    with start("bare") as run:
        run.step(loss=1.0)
        run.step(loss=2.0)
    app = page("run", run=run.path.name, x="tokens")
    assert app.segmented_control[0].value == "step"
    assert "No such x" in texts(page("run", run=run.path.name, x="parsecs"))


@pytest.mark.slow
def test_the_run_page_shows_scores_notes_settings_and_checkpoints() -> None:
    path = loop("whole", config={"model": {"layers": 2}}, notes=HOSTILE)
    app = page("run", run=path.name)
    assert "\\<b\\>" not in texts(app)
    assert f"{HOSTILE}: acc" in titles(app)
    assert {"Loss", "Learning rate", "Tokens per second by reports", "Time between reports"} <= set(titles(app))
    assert table(app, "Note")["Note"].tolist() == [HOSTILE]
    settings = table(app, "Setting")
    assert settings[["Setting", "Value"]].to_numpy().tolist() == [["model.layers", "2"]]
    assert table(app, "Command")["Counts"].tolist() == ["to step 6"]


@pytest.mark.slow
def test_the_audit_names_what_a_restart_repeated() -> None:
    run = restarted(fault=True)
    app = page("audit", run=run.name)
    assert "FAILED with 1 finding" in texts(app)
    row = table(app, "Resumed after").iloc[0]
    assert row["State"] == ["✖ other samples"]
    assert (row["First difference"], row["Repeated"], row["Skipped"]) == ("step 4", "4 samples", "4 samples")
    assert "it was fed the samples of step 1 again" in texts(app)
    checkpoint = RecordedRunDirectory(run).checkpoint_files()[0].stem
    app = page("audit", run=run.name, checkpoint=checkpoint)
    assert metrics(app)["Steps"] == "3"
    assert "The run never restarted" in texts(app)


@pytest.mark.slow
def test_the_audit_accuses_no_whole_restart() -> None:
    run = restarted(fault=False)
    app = page("audit", run=run.name)
    assert table(app, "Resumed after")["State"].tolist() == [["✔ same samples"]]
    assert "recorded: samples of 7 of 7 steps" in texts(app)
    run_page = page("run", run=run.name)
    assert run_page.toggle[0].label == "Replaced steps"
    assert table(run_page, "Command")["Counts"].tolist() == ["to step 7", "to step 3"]


@pytest.mark.slow
def test_compare_names_the_first_step_with_other_data() -> None:
    one, same = loop("one"), loop("same", config={"lr": 2})
    other = loop("other", steps=4, offset=100)
    app = page("compare", runs=[one.name, same.name, other.name])
    rows = table(app, "Data differ from")
    assert rows["Data differ from"].tolist() == ["nowhere", "step 1"]
    assert rows["How"].tolist() == ["the same samples in 6 steps", "4 of 4 steps were fed other samples"]
    scores = table(app, "Metric")
    assert scores["Shots"].tolist() == [NOTHING]
    assert scores.iloc[0].tolist()[-1] == "0.400 ± 0.010  (-0.200, -0.228 to -0.172: beyond noise)"
    assert table(app, "Path")["Path"].tolist()[:2] == ["experiment", "config"]
    assert titles(app).count("Loss") == 1


@pytest.mark.slow
def test_runs_of_both_kinds_are_compared(lay_run) -> None:
    own, other = lay_run(steps=60), loop("other")
    app = page("compare", runs=[own.name, other.name])
    (row,) = table(app, "Data differ from").to_dict("records")
    assert (row["Data differ from"], row["How"]) == ("step 1", "other tokens, or the same in another order")
    assert "Configs of different trainers have different forms" in texts(app)
    assert app.segmented_control[0].options == ["tokens", "step", "wall clock", "process time"]


@pytest.mark.slow
def test_pages_about_documents_say_what_recorded_runs_lack() -> None:
    loop("only")
    assert "have no documents to show" in texts(page("batch"))


@pytest.mark.slow
def test_archived_runs_are_listed_after_a_switch_alone() -> None:
    kept, put_away = loop("kept"), loop("away")
    assert not page("runs").toggle
    RecordedRunDirectory(put_away).journal.append(Archived(at=1.0, by="ada", archived=True))
    app = page("runs")
    assert table(app, "Trainer")["Run"].tolist() == [named(kept, "kept")]
    assert "1 run of 2" in texts(app)
    app = page("runs", archived="true")
    archived = table(app, "Trainer").set_index("Run")["Archived"].to_dict()
    assert archived == {named(kept, "kept"): "", named(put_away, "away"): "archived"}
    assert "archived" in texts(page("run", run=put_away.name))


@pytest.mark.slow
def test_a_mirror_says_where_it_is_from_and_how_old_it_is() -> None:
    path = loop("far")
    mark = Mirror(
        store="s3://bucket", project="team", state="running", written_at=time.time() - 3600, complete=True, rewritten={}
    )
    mark.write(path / "mirror.json")
    assert table(page("runs"), "Mirror")["Mirror"].tolist() == ["copied 1.0 h ago"]
    assert "mirror of s3://bucket, project team: last copied 1 h ago, while it was running" in texts(
        page("run", run=path.name)
    )


@pytest.mark.slow
def test_energy_is_shown_with_its_doubt(lay_run) -> None:
    app = page("run", run=lay_run(steps=60, device="cuda").name)
    assert float(metrics(app)["Energy"]) > 0
    assert "hosts, network and cooling are not in it" in texts(app)


def test_scores_of_an_unsaid_number_of_examples_are_drawn_beside_own_ones(lay_run) -> None:
    own = lay_run(steps=60)
    with start("other") as run:
        run.step(loss=1.0)
        run.score(1, "cloze", {"acc": 0.5})
    cloze = panel(page("compare", runs=[own.name, run.path.name], x="step", curves="runs"), "cloze: 0-shot acc")
    assert [text.split()[0] for text in cloze.labels] == [own.name[:8], run.path.name[:8]]
    assert cloze.lines[1]["y"].tolist() == [0.5]
    assert cloze.head["note"] == f"The number of examples is not said of {run.path.name[:8]}."


def test_a_mirror_that_is_not_copied_any_more_stalls(lay_run, monkeypatch) -> None:
    run = RunDirectory(lay_run(steps=60, stop_at=50, status=None, ended_ago_s=1.0))
    mark = Mirror(
        store="s3://bucket", project="team", state="running", written_at=time.time(), complete=True, rewritten={}
    )
    mark.write(run.path / "mirror.json")
    assert cached.summary(run).state == "running"
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert (cached.summary(run).state, run_line(run).state) == ("stalled", "stalled")
    assert "last copied 1 h ago" in cached.summary(run).mirror
