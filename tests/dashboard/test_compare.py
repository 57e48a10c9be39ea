"""The Compare page: where data, config and scores differ, and smoothed curves."""

import pytest
from damaged_run import edit_ring
from dashboard_charts import panel
from dashboard_page import page, texts

from treering.runlog.directory import RunDirectory


def test_compare_says_where_data_config_and_scores_differ(lay_run) -> None:
    base = lay_run(seed=1)
    faster = lay_run(seed=1, learning_rate=2e-3)
    blend = lay_run(seed=1, weights={"pubmed": "0.2", "factbook": "0.3", "python": "0.5"}, experiment="ablation")
    app = page("compare", runs=[base.name, faster.name, blend.name])
    tables = [frame.value for frame in app.dataframe]
    data = next(table for table in tables if "Data differ from" in table)
    assert data["Data differ from"].tolist() == ["nowhere", "step 1"]
    assert data["How"].tolist()[0] == "token for token the same in 306 common steps"
    assert data["How"].tolist()[1] == "other tokens in the same samples 0 to 4"
    config = next(table for table in tables if "Path" in table).set_index("Path")
    assert config.loc["recipe.optimizer.peak_learning_rate"].tolist() == ["0.001", "0.002", "0.001"]
    assert config.loc["blend.components.python.weight"].tolist() == ["0.2", "0.2", "0.5"]
    assert "recipe.seed" not in config.index
    scores = next(table for table in tables if "Task" in table)
    assert scores.iloc[0].tolist()[:3] == ["cloze", "0", "acc"]
    assert scores.iloc[0].iloc[3].startswith("0.441 ± 0.035")
    assert "within noise" in scores.iloc[0].iloc[4]
    assert "score the checkpoints again" in texts(app)
    assert "The blends differ" in texts(app)
    held_out = next(table for table in tables if "Corpus" in table).set_index("Corpus")
    losses = [RunDirectory(run).evaluations()[-1].perplexity["factbook"]["loss"] for run in (base, blend)]
    assert held_out.loc["factbook"].tolist()[::2] == [
        f"{losses[0]:.3f}",
        f"{losses[1]:.3f}  ({losses[1] - losses[0]:+.3f})",
    ]
    loss = panel(app, "Loss")
    assert [text.split()[0] for text in loss.labels] == [run.name[:8] for run in (base, faster, blend)]
    assert len(loss.lines[0]) == 306


def test_losses_on_one_blend_need_no_warning(lay_run) -> None:
    app = page("compare", runs=[lay_run(steps=60).name, lay_run(steps=60, learning_rate=2e-3).name])
    assert "Data differ from" in app.dataframe[0].value
    assert "The blends differ" not in texts(app)


@pytest.mark.slow
def test_smoothing_is_off_until_asked_for_and_keeps_the_raw_curve_below(lay_run) -> None:
    names = [lay_run(seed=1).name, lay_run(seed=2).name]
    raw = panel(page("compare", runs=names), "Loss").lines[0]["y"]
    lines = panel(page("compare", runs=names, smooth="true"), "Loss, smoothed 0.9").lines
    faint, smoothed = (line["y"] for line in lines[:2])
    assert faint.tolist() == raw.tolist()
    assert smoothed.iloc[0] == raw.iloc[0]
    assert smoothed.diff().iloc[150:].std() < raw.diff().iloc[150:].std() / 3
    assert len(lines) == 4


def test_compare_of_one_run_asks_for_another(lay_run) -> None:
    assert "Choose two or more runs" in texts(page("compare", runs=[lay_run().name]))


def test_compare_with_a_damaged_run_names_the_damage(lay_run) -> None:
    whole, damaged = lay_run(seed=1), lay_run(seed=2)
    edit_ring(damaged, 100)
    app = page("compare", runs=[whole.name, damaged.name])
    assert "line 100" in texts(app)
    data = next(frame.value for frame in app.dataframe if "Data differ from" in frame.value)
    assert data["How"].tolist() == ["token for token the same in 99 common steps"]
