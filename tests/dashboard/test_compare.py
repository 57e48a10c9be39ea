"""The Compare page: where data, config and scores differ, and smoothed curves."""

import numpy as np
import pandas as pd
import pytest
import seeded_runs
from damaged_run import edit_ring
from dashboard_charts import panel
from dashboard_page import page, table, texts

from treering.runlog.directory import RunDirectory
from treering_dashboard.frames.groups import band


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
    rate = config.loc["recipe.optimizer.peak_learning_rate"].tolist()
    assert rate == ["highest learning rate", "0.001", "0.002", "0.001"]
    weight = config.loc["blend.components.python.weight"].tolist()
    assert weight == ["share of corpus python in the samples", "0.2", "0.2", "0.5"]
    assert "recipe.seed" not in config.index
    scores = next(table for table in tables if "Task" in table)
    assert scores.iloc[0].tolist()[:3] == ["cloze", "0", "acc"]
    assert scores.iloc[0].iloc[3].startswith("0.441 ± 0.035")
    assert "within noise" in scores.iloc[0].iloc[4]
    assert "score the checkpoints again" in texts(app)
    assert "The blends differ" in texts(app)
    assert "the noise is unknown with one seed of A and one seed of B, train more" in texts(app)
    assert "Everything that can move numbers is the same" in texts(app)
    held_out = next(table for table in tables if "Corpus" in table).set_index("Corpus")
    losses = [RunDirectory(run).evaluations()[-1].perplexity["factbook"]["loss"] for run in (base, blend)]
    assert held_out.loc["factbook"].tolist()[::2] == [
        f"{losses[0]:.3f}",
        f"{losses[1]:.3f}  ({losses[1] - losses[0]:+.3f})",
    ]
    loss = panel(app, "Loss")
    assert [text.split()[0] for text in loss.labels] == [run.name[:8] for run in (base, faster, blend)]
    assert len(loss.lines[0]) == 306
    cloze = panel(app, "cloze: 0-shot acc")
    assert [text.split()[0] for text in cloze.labels] == [run.name[:8] for run in (base, faster, blend)]


def test_losses_on_one_blend_need_no_warning(lay_run) -> None:
    app = page("compare", runs=[lay_run(steps=60).name, lay_run(steps=60, learning_rate=2e-3).name])
    assert table(app, "Data differ from")["Data differ from"].tolist() == ["nowhere"]
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


@pytest.fixture
def seeds(tmp_path, monkeypatch):
    """Two configs of three seeds, the second with a lower loss and better answers."""
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    runs = []
    for layers_of, loss, right in ((2, 4.5, 90), (4, 4.3, 140)):
        for seed in (1, 2, 3):
            runs.append(seeded_runs.lay_run(tmp_path, seed, layers=layers_of))
            answers = [1] * (right + seed) + [0] * (110 - seed)
            seeded_runs.evaluate(runs[-1], loss + seed / 100, {"cloze": answers})
    return runs


SENTENCE = "B against A (model.num_layers 2 → 4): held-out loss -0.2000 nat/token (95 % interval -0.2227 to -0.1773, 3 "


def test_groups_have_a_sentence_a_band_and_verdicts_on_every_score(seeds) -> None:
    app = page("compare", runs=[run.path.name for run in seeds])
    assert (
        "B (model.num_layers 2 → 4) has the lowest held-out loss at step 4, beyond the noise of seeds against A."
        in texts(app)
    )
    assert f"{SENTENCE}and 3 seeds), lower beyond the noise of seeds." in texts(app)
    assert "Both read the same data (4 common steps)." in texts(app)
    groups = table(app, "Group").set_index("Group")
    assert groups.loc["A", "Held-out loss"] == "4.5200 ± 0.0100 (4.5100 to 4.5300)"
    assert groups.loc["B", "Seeds"] == "1, 2, 3"
    scores = table(app, "Verdict").set_index("Measure")
    assert set(scores["Verdict"]) == {"beyond noise"}
    assert scores.loc["cloze, 0-shot acc", "A"] == "0.4600 ± 0.0050"
    assert sum(name.startswith("held-out loss of ") for name in scores.index) == len(scores) - 1
    config = table(app, "Path").set_index("Path")
    assert config.loc["recipe.model.num_layers"].tolist() == ["number of layers", "2", "4"]
    assert "recipe.seed" not in config.index
    cloze = panel(app, "cloze: 0-shot acc")
    assert [text.split()[0] for text in cloze.labels] == ["A", "B"]
    point = cloze.lines[0].iloc[-1]
    assert (point["lo"], point["y"], point["hi"]) == pytest.approx((0.455, 0.46, 0.465))
    assert [text.split()[0] for text in panel(app, "Loss").labels] == ["A", "B"]


def test_the_address_asks_for_all_seeds_and_for_a_curve_a_run(seeds) -> None:
    app = page("compare", runs=[seeds[0].path.name, seeds[3].path.name], seeds="true", curves="runs")
    assert f"{SENTENCE}and 3 seeds), lower beyond the noise of seeds." in texts(app)
    assert len(panel(app, "Loss").labels) == 6
    one = page("compare", runs=[seeds[0].path.name, seeds[3].path.name])
    assert "the noise is unknown with one seed of A and one seed of B" in texts(one)
    assert "Another seed moves these numbers too, so a difference may be noise." in texts(one)


@pytest.mark.slow
def test_of_many_groups_the_first_sentences_are_open(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    runs = [seeded_runs.lay_run(tmp_path, rate=rate / 1000) for rate in range(1, 16)]
    for run in runs:
        seeded_runs.evaluate(run, 4.5)
    app = page("compare", runs=[run.path.name for run in runs])
    (folded,) = (each for each in app.expander if each.label == "2 more groups")
    assert [line.split(" (")[0] for line in folded.text[0].value.splitlines()] == ["N against A", "O against A"]
    assert "M against A (optimizer.peak_learning_rate 0.001 → 0.013)" in texts(app)
    assert len(panel(app, "Loss").labels) == 15


def test_a_band_is_as_long_as_the_shortest_run_of_a_group() -> None:
    long = pd.DataFrame({"x": [1.0, 2, 3, 4], "y": [1.0, 2, np.nan, 4], "step": [1, 2, 3, 4]})
    short = pd.DataFrame({"x": [1.0, 3.0], "y": [3.0, 5.0], "step": [1, 3]})
    found = band([long, short])
    assert found["y"].tolist() == [2, 3, 4]
    assert found["lo"].tolist() == [1, 2, 3]
    assert found["hi"].tolist() == [3, 4, 5]
    assert band([long]) is long
