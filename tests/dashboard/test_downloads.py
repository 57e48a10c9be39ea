"""Every page offers each panel as CSV and each chart as SVG."""

from pathlib import Path

import numpy as np
import pytest
from bias_record import measured
from dashboard_charts import boards, charts
from dashboard_page import page

import treering_dashboard
from treering.runlog.chronicle import write_analysis
from treering.runlog.directory import RunDirectory

PAGES = sorted(
    path.stem
    for path in (Path(treering_dashboard.__file__).parent / "pages").glob("*.py")
    if not path.stem.startswith("_")
)
DRAWN = {"run": 15, "compare": 5, "cluster": 2, "data": 2, "logbook": 1, "scaling": 1, "bias": 6}
"""Charts of the project's pages, at least so many; the other pages have tables and texts alone."""


@pytest.fixture
def project(audited, lay_run, monkeypatch):
    """A project with corpora, two runs with sensors and scores, and a measured bias; the two folders."""
    monkeypatch.setenv("TREERING_ROOT", str(audited.root))
    runs = []
    for seed in (1, 2):
        folder = lay_run(seed=seed, steps=100, device="cuda")
        runs.append(RunDirectory(folder.rename(audited.runs / folder.name)))
    checkpoint = runs[0].checkpoints()[-1]
    of = {name: getattr(checkpoint.manifest, name) for name in ("run", "step", "consumed_tokens")}
    record = measured(np.random.default_rng(1), "many", share={("b", "cruel"): 3.0}, checkpoint=checkpoint.digest, **of)
    write_analysis(runs[0].evaluations_folder, record)
    (own,) = (run for run in audited.runs.iterdir() if run.name not in {each.path.name for each in runs})
    return own.name, [run.path.name for run in runs]


@pytest.mark.slow
def test_every_panel_is_offered_as_csv_and_every_chart_as_svg(project) -> None:
    audited_run, (run, other) = project
    queries = {"data": {"run": audited_run}, "compare": {"runs": [run, other]}}
    drawn = {}
    for name in PAGES:
        query = queries.get(name, {"run": run})
        app = page(name, **({} if name in {"runs", "scaling", "search", "megatron"} else query))
        offered = [button.proto.label for button in app.get("download_button")]
        panels = [panel.title for _, found in boards(app) for panel in found]
        for title in panels:
            assert f"CSV of {title}" in offered, (name, title)
            assert f"SVG of {title}" in offered, (name, title)
        heat_maps = len(app.get("echarts_chart"))
        drawn[name] = len(panels) + len(charts(app)) + heat_maps
        for kind in ("CSV", "SVG"):
            assert sum(each.startswith(kind) for each in offered) >= drawn[name], (name, kind)
    assert {name: least for name, least in DRAWN.items() if drawn[name] < least} == {}, drawn
    assert {name for name, number in drawn.items() if number} == set(DRAWN), drawn
