"""The page Logbook: events on the curve of steps, their cost, kinds in the address."""

import pytest
from dashboard_charts import charts
from dashboard_page import page, table, texts

from treering.runlog.directory import RunDirectory
from treering.runlog.journal import Noted


def test_restarts_and_notes_stand_on_the_timeline_with_their_cost(lay_run) -> None:
    run = RunDirectory(lay_run(restart_after=100))
    ended_at = [ring.ended_at for ring in run.attempts()[0].rings()]
    run.journal.append(Noted(at=ended_at[50] + 0.01, by="ann", text="looks *fine*"))
    app = page("logbook", run=run.path.name)
    rows = table(app, "In its words")
    assert rows["Kind"].tolist() == ["end", "alarm", "alarm", "start", "end", "note", "start"]
    assert rows["Cost"].tolist()[4].startswith("17 steps (")
    assert "1 restart cost 17 steps (" in texts(app)
    ((spec, data),) = charts(app)
    marks = next(frame for frame in data.values() if "kind" in frame).set_index("kind")
    assert marks.loc["note", "step"] == 51, "where the run was at that time"
    line = next(frame for frame in data.values() if "attempt" in frame)
    assert line.groupby("attempt")["step"].max().tolist() == [117, 306]
    assert spec["layer"][1]["encoding"]["color"]["scale"]["domain"] == ["start", "end", "alarm", "note"]
    for layer in spec["layer"]:
        assert "scale" not in layer["encoding"]["x"], "times without a zone are drawn with their own digits"


def test_kinds_are_in_the_address_and_an_unknown_one_is_refused(lay_run) -> None:
    run = lay_run(steps=60).name
    assert table(page("logbook", run=run, kinds="start"), "In its words")["Kind"].tolist() == ["start"]
    assert "No such kind" in texts(page("logbook", run=run, kinds="party"))
    assert "Nothing of these kinds happened yet." in texts(page("logbook", run=run, kinds="stall"))


@pytest.mark.slow
def test_a_recorded_run_has_a_logbook(tmp_path, monkeypatch) -> None:
    import treering as api

    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with api.start("demo", config={"lr": 0.1}) as run:
        run.step(loss=1.0)
        run.note("a first step")
    app = page("logbook")
    assert table(app, "In its words")["What"].tolist()[0] == "attempt 1 finished"
    assert "No restart, so no work was lost." in texts(app)
