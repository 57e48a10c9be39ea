"""The page Scaling: own runs and published trainings in one table and one chart."""

import shutil
from pathlib import Path

import pytest
from dashboard_page import page, table, texts

from treering.metrics.flops import ModelShape, ptdp_2021
from treering.metrics.scaling import OWN, own_speed
from treering.runlog.directory import RunDirectory

PUBLISHED = Path(__file__).parents[2] / "experiments" / "references"


def test_own_runs_stand_beside_published_trainings(lay_run, tmp_path):
    run = RunDirectory(lay_run())
    shutil.copytree(PUBLISHED, tmp_path / "experiments" / "references")
    app = page("scaling")
    rows = table(app, "Series").set_index("Training")
    assert rows.loc[run.id, "Series"] == "own runs"
    assert rows.loc["1T", ["Devices", "TFLOP/s", "Of the peak"]].tolist() == ["3\u2009072", "163", "52.2%"]
    mt_nlg = rows[rows["Series"] == "MT-NLG 530B"]
    assert mt_nlg["Step"].tolist() == ["60.1 s", "50.2 s", "44.4 s"]
    assert mt_nlg["Efficiency"].tolist() == ["\u2013", "96.0%", "89.7%"]
    assert "PTD-P: arXiv 2104.04473, table 1; the model grows with the number of devices" in texts(app)


def test_without_runs_and_publications_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    assert "No run has a step yet" in texts(page("scaling"))
    (tmp_path / "experiments" / "references").mkdir(parents=True)
    (tmp_path / "experiments" / "references" / "x.yaml").write_text("model: A\n")
    assert "x.yaml: " in texts(page("scaling"))


def test_an_own_run_is_counted_by_the_formula_of_the_publications(lay_run):
    run = RunDirectory(lay_run())
    speed, rings = own_speed(run), list(run.path_rings())[-100:]
    resolved, devices = run.resolved, run.attempts()[-1].header.layout.world_size
    seconds = sorted(ring.time_s["step"] for ring in rings)
    shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
    recompute = resolved.attempt.parallel.activation_recompute == "full"
    assert (speed.series, speed.name, speed.devices) == (OWN, run.id, devices)
    assert seconds[0] <= speed.seconds <= seconds[-1]
    flops = ptdp_2021(shape, rings[-1].global_batch_size, recompute)
    assert speed.tflops == pytest.approx(flops / speed.seconds / devices / 1e12)
