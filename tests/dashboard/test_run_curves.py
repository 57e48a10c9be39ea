"""The Run page's curves: metrics, evaluations, axes, spikes and restarts, with their data."""

from itertools import pairwise

import pytest
from dashboard_charts import charts, header_texts, layers, panel, rows
from dashboard_page import APP, metrics, page, texts
from streamlit.testing.v1 import AppTest

from treering.runlog.directory import RunDirectory


@pytest.mark.slow
def test_training_health_holds_every_ring(lay_run) -> None:
    run = RunDirectory(lay_run())
    rings = list(run.path_rings())
    app = page("run", run=run.path.name)
    view, data = panel(app, "Loss")
    training, validation = (rows(layer, data) for layer in layers(view, "line"))
    assert training["x"].tolist() == [ring.consumed_tokens for ring in rings]
    assert training["y"].tolist() == [ring.loss for ring in rings]
    assert validation["y"].tolist() == [ring.validation_loss for ring in rings if ring.validation]
    assert header_texts(view)[0] == f"training {rings[-1].loss:.2f}"
    view, data = panel(app, "Batch size")
    assert sorted(set(rows(layers(view, "line")[0], data)["y"])) == [4, 8, 12, 16]
    for title in (
        "Gradient norm",
        "Learning rate",
        "Tokens per second",
        "TFLOP/s per device",
    ):
        panel(app, title)


@pytest.mark.slow
def test_parts_of_a_step_are_stacked_to_its_whole(lay_run) -> None:
    run = RunDirectory(lay_run())
    rings = list(run.path_rings())
    view, data = panel(page("run", run=run.path.name), "Step time by part")
    drawn = [rows(layer, data) for layer in layers(view, "line")]
    assert [text.split()[0] for text in header_texts(view)] == ["passes", "waits", "update", "data"]
    parts = ("forward_backward", "communication", "optimizer", "data_wait")
    for part, layer in zip(parts, drawn, strict=True):
        assert layer["value"].tolist() == pytest.approx([ring.time_s[part] for ring in rings])
        assert (layer["hi"] - layer["lo"]).tolist() == pytest.approx(layer["value"].tolist())
    for below, above in pairwise(drawn):
        assert above["lo"].tolist() == below["hi"].tolist()
    assert drawn[-1]["y"].tolist() == pytest.approx([sum(ring.time_s[part] for part in parts) for ring in rings])
    areas = layers(view, "area")
    assert [layer["mark"]["opacity"] for layer in areas] == [0.6] * 4


@pytest.mark.slow
def test_bubble_and_utilisation_stand_where_they_are_known(lay_run) -> None:
    app = page("run", run=lay_run().name)
    titles = [view["title"] for spec, _ in charts(app) for view in spec["vconcat"]]
    assert "Pipeline bubble" not in titles
    assert "Share of the peak" not in titles
    app = page("run", run=lay_run(seed=2, pipeline=2, device="cuda").name)
    view, data = panel(app, "Pipeline bubble")
    measured, ideal = (rows(layer, data) for layer in layers(view, "line"))
    assert measured["y"].tolist() == pytest.approx([0.3] * len(measured))
    # Batches of 4, 8, 12 and 16 samples by micro-batches of 2, one replica.
    assert sorted(set(ideal["y"])) == pytest.approx(sorted(1 / (size / 2 + 1) for size in (4, 8, 12, 16)))
    assert [text.split()[0] for text in header_texts(view)] == ["measured", "ideal"]
    view, data = panel(app, "Share of the peak")
    assert [text.split()[0] for text in header_texts(view)] == ["MFU"], "nothing is recomputed: HFU is the same"


@pytest.mark.slow
def test_evaluation_stands_on_the_same_axis(lay_run) -> None:
    run = RunDirectory(lay_run())
    app = page("run", run=run.path.name)
    view, data = panel(app, "cloze: acc")
    evaluations = run.evaluations()
    by_shots = [rows(layer, data) for layer in layers(view, "line")]
    assert [text.split()[0] for text in header_texts(view)] == ["0-shot", "1-shot", "4-shot"]
    assert by_shots[2]["x"].tolist() == [evaluation.consumed_tokens for evaluation in evaluations]
    assert by_shots[2]["y"].tolist() == [evaluation.scores["cloze"]["4"]["acc"] for evaluation in evaluations]
    error = evaluations[0].scores["cloze"]["4"]["acc_stderr"]
    assert by_shots[2]["hi"].iloc[0] - by_shots[2]["y"].iloc[0] == pytest.approx(error)
    domains = set()
    for spec, _ in charts(app):
        for each in spec["vconcat"]:
            domains.add(tuple(each["layer"][0]["encoding"]["x"]["scale"]["domain"]))
    assert len(domains) == 1
    view, data = panel(app, "Held-out perplexity")
    assert rows(layers(view, "line")[0], data)["y"].iloc[-1] == evaluations[-1].perplexity["factbook"]["perplexity"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "title", "value"),
    [
        ("tokens", "Consumed tokens", lambda _, ring: ring.consumed_tokens),
        ("step", "Step", lambda _, ring: ring.step),
        ("samples", "Consumed samples", lambda _, ring: ring.consumed_samples),
        (
            "wall clock",
            "Wall clock since the start (min)",
            lambda run, ring: (ring.ended_at - run.attempts()[0].header.started_at) / 60,
        ),
    ],
)
def test_the_axis_stands_in_the_address(lay_run, x, title, value) -> None:
    run = RunDirectory(lay_run(step_s=2.0))
    ring = list(run.path_rings())[99]
    app = page("run", run=run.path.name, x=x)
    view, data = panel(app, "Batch size")
    assert view["layer"][0]["encoding"]["x"]["axis"]["title"] == title
    assert rows(layers(view, "line")[0], data)["x"].iloc[99] == pytest.approx(value(run, ring))


@pytest.mark.slow
def test_a_window_stands_in_the_address_and_leaves_the_head_line(lay_run) -> None:
    app = page("run", run=lay_run().name, steps="last 100")
    view, data = panel(app, "Loss")
    assert rows(layers(view, "line")[0], data)["step"].tolist() == list(range(207, 307))
    assert metrics(app)["Progress"] == "100 %"


@pytest.mark.slow
def test_more_corpora_than_colours_are_all_drawn(lay_run) -> None:
    weights = {f"corpus-{number:02}": "0.1" for number in range(10)}
    view, _ = panel(page("run", run=lay_run(weights=weights).name), "Held-out perplexity")
    lines = layers(view, "line")
    assert len(lines) == 10
    assert len({(line["mark"]["color"], str(line["mark"]["strokeDash"])) for line in lines}) == 10
    assert [text.split()[0] for text in header_texts(view)] == sorted(weights)


@pytest.mark.slow
def test_alarms_are_named_by_their_rules(lay_run) -> None:
    run = lay_run(nan_at=200)
    alarms = page("run", run=run.name).dataframe
    rules = next(frame.value for frame in alarms if "Rule" in frame.value)["Rule"].tolist()
    assert rules[0] == "non_finite"
    assert set(rules) == {"spike", "non_finite"}
    view, data = panel(page("run", run=run.name), "Gradient norm")
    marks = next(layer for layer in layers(view, "point") if layer["mark"].get("shape") == "triangle-down")
    assert set(rows(marks, data)["rule"]) == {"spike"}
    table = AppTest.from_file(APP, default_timeout=30).run().dataframe[0].value
    assert "spike, 1 non_finite" in table["Alarms"][0]


@pytest.mark.slow
def test_spikes_are_marked_on_the_metric_that_shows_them(lay_run) -> None:
    run = RunDirectory(lay_run(spike_at=190))
    app = page("run", run=run.path.name)
    view, data = panel(app, "Gradient norm")
    (marks,) = [layer for layer in layers(view, "point") if layer["mark"].get("shape") == "triangle-down"]
    marked = rows(marks, data)
    ring = list(run.path_rings())[190]
    assert ring.step in marked["step"].tolist()
    assert ring.grad_norm in marked["y"].tolist()
    table = next(frame.value for frame in app.dataframe if "Background" in frame.value)
    assert "191" in table["Step"].tolist()
    assert f"treering spikes {run.path.name[:8]} {table['Step'].iloc[0]}" in texts(app)


@pytest.mark.slow
def test_no_spike_is_said_in_words(lay_run) -> None:
    assert "None. Judged by the robust z-score" in texts(page("run", run=lay_run(spike_at=0, seed=9).name))


@pytest.mark.slow
def test_a_restart_is_two_segments_and_its_replaced_steps_are_off_until_asked_for(lay_run) -> None:
    name = lay_run(restart_after=100, lost_steps=17).name
    view, data = panel(page("run", run=name), "Loss")
    line = layers(view, "line")[0]
    assert line["encoding"]["detail"]["field"] == "segment"
    assert rows(line, data).groupby("segment")["step"].min().tolist() == [1, 101]
    dashed = [layer for layer in layers(view, "rule") if "strokeDash" in layer["mark"]]
    assert rows(dashed[0], data)["label"].tolist() == ["attempt 2 (resume) from step 101, 17 steps done again"]
    assert len(layers(view, "line")) == 2
    view, data = panel(page("run", run=name, replaced="true"), "Loss")
    assert rows(layers(view, "line")[-1], data)["step"].tolist() == list(range(101, 118))


@pytest.mark.slow
def test_smoothing_is_off_until_asked_for_and_hides_no_mark(lay_run) -> None:
    name = lay_run(restart_after=100, lost_steps=17, nan_at=77).name
    view, data = panel(page("run", run=name, x="step"), "Loss")
    raw = rows(layers(view, "line")[0], data)
    view, data = panel(page("run", run=name, x="step", smooth="true"), "Loss, smoothed 0.9")
    faint, average = (rows(layer, data) for layer in layers(view, "line")[:2])
    assert faint["y"].tolist() == raw["y"].tolist()
    by_step = average.set_index("step")["y"]
    kept = raw.set_index("step")["y"]
    assert [by_step[1], by_step[101]] == [kept[1], kept[101]]
    assert by_step[2] == pytest.approx((0.9 * kept[1] + kept[2]) / 1.9)
    (cross,) = [layer for layer in layers(view, "point") if layer["mark"].get("shape") == "cross"]
    assert rows(cross, data)["step"].tolist() == [77]


def test_a_value_that_is_no_number_has_its_own_mark(lay_run) -> None:
    app = page("run", run=lay_run(nan_at=77).name)
    table = next(frame.value for frame in app.dataframe if "Background" in frame.value).set_index("Step")
    assert table.loc["77", "Value"] == "NaN"
    view, data = panel(app, "Loss")
    (cross,) = [layer for layer in layers(view, "point") if layer["mark"].get("shape") == "cross"]
    assert rows(cross, data)["step"].tolist() == [77]
    assert 77 not in rows(layers(view, "line")[0], data)["step"].tolist()


@pytest.mark.slow
def test_more_steps_than_points_are_said(lay_run) -> None:
    assert "stretches" not in texts(page("run", run=lay_run().name))
    run = lay_run(steps=1300, seed=2, checkpoint_every=2000)
    assert "1\u2009306 steps in 1\u2009000 stretches: the line is the last value" in texts(page("run", run=run.name))
