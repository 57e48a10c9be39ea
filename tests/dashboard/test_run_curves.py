"""The Run page's curves: metrics, evaluations, axes, spikes and restarts, with their data."""

import time
from itertools import pairwise

import pytest
from dashboard_charts import boards, panel, titles
from dashboard_page import APP, metrics, page, texts
from streamlit.testing.v1 import AppTest

from treering.runlog.directory import RunDirectory
from treering.runlog.mirror import Mirror


@pytest.mark.slow
def test_training_health_holds_every_ring(lay_run) -> None:
    run = RunDirectory(lay_run())
    rings = list(run.path_rings())
    app = page("run", run=run.path.name)
    loss = panel(app, "Loss")
    training, validation = loss.lines
    assert training["x"].tolist() == [ring.consumed_tokens for ring in rings]
    assert training["y"].tolist() == [ring.loss for ring in rings]
    assert validation["y"].tolist() == [ring.validation_loss for ring in rings if ring.validation]
    assert loss.labels[0] == f"training {rings[-1].loss:.2f}"
    assert sorted(set(panel(app, "Batch size").lines[0]["y"])) == [4, 8, 12, 16]
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
    split = panel(page("run", run=run.path.name), "Step time by part")
    drawn = split.lines
    assert [text.split()[0] for text in split.labels] == ["passes", "waits", "update", "data"]
    parts = ("forward_backward", "communication", "optimizer", "data_wait")
    for part, layer in zip(parts, drawn, strict=True):
        assert layer["value"].tolist() == pytest.approx([ring.time_s[part] for ring in rings])
        assert (layer["hi"] - layer["lo"]).tolist() == pytest.approx(layer["value"].tolist())
    for below, above in pairwise(drawn):
        assert above["lo"].tolist() == below["hi"].tolist()
    assert drawn[-1]["y"].tolist() == pytest.approx([sum(ring.time_s[part] for part in parts) for ring in rings])
    assert [line["layer"] for line in split.head["lines"]] == [True] * 4


@pytest.mark.slow
def test_bubble_and_utilisation_stand_where_they_are_known(lay_run) -> None:
    app = page("run", run=lay_run().name)
    assert "Pipeline bubble" not in titles(app)
    assert "Share of the peak" not in titles(app)
    app = page("run", run=lay_run(seed=2, pipeline=2, device="cuda").name)
    bubble = panel(app, "Pipeline bubble")
    measured, ideal = bubble.lines
    assert measured["y"].tolist() == pytest.approx([0.3] * len(measured))
    # Batches of 4, 8, 12 and 16 samples by micro-batches of 2, one replica.
    assert sorted(set(ideal["y"])) == pytest.approx(sorted(1 / (size / 2 + 1) for size in (4, 8, 12, 16)))
    assert [text.split()[0] for text in bubble.labels] == ["measured", "ideal"]
    share = panel(app, "Share of the peak")
    assert [text.split()[0] for text in share.labels] == ["MFU"], "nothing is recomputed: HFU is the same"


@pytest.mark.slow
def test_evaluation_stands_on_the_same_axis(lay_run) -> None:
    run = RunDirectory(lay_run())
    app = page("run", run=run.path.name)
    cloze = panel(app, "cloze: acc")
    evaluations = run.evaluations()
    by_shots = cloze.lines
    assert [text.split()[0] for text in cloze.labels] == ["0-shot", "1-shot", "4-shot"]
    assert by_shots[2]["x"].tolist() == [evaluation.consumed_tokens for evaluation in evaluations]
    assert by_shots[2]["y"].tolist() == [evaluation.scores["cloze"]["4"]["acc"] for evaluation in evaluations]
    error = evaluations[0].scores["cloze"]["4"]["acc_stderr"]
    assert by_shots[2]["hi"].iloc[0] - by_shots[2]["y"].iloc[0] == pytest.approx(error)
    assert len(boards(app)) == 1, "all panels have one x"
    perplexity = panel(app, "Held-out perplexity")
    assert perplexity.lines[0]["y"].iloc[-1] == evaluations[-1].perplexity["factbook"]["perplexity"]


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
    batch = panel(app, "Batch size")
    assert batch.board["x"]["title"] == title
    assert batch.lines[0]["x"].iloc[99] == pytest.approx(value(run, ring))


@pytest.mark.slow
def test_a_window_stands_in_the_address_and_leaves_the_head_line(lay_run) -> None:
    app = page("run", run=lay_run().name, steps="last 100")
    assert panel(app, "Loss").lines[0]["step"].tolist() == list(range(207, 307))
    assert metrics(app)["Progress"] == "100 %"


@pytest.mark.slow
def test_more_corpora_than_colours_are_all_drawn(lay_run) -> None:
    weights = {f"corpus-{number:02}": "0.1" for number in range(10)}
    perplexity = panel(page("run", run=lay_run(weights=weights).name), "Held-out perplexity")
    lines = perplexity.head["lines"]
    assert len(lines) == 10
    assert len({(line["colour"], line["dashed"]) for line in lines}) == 10
    assert [text.split()[0] for text in perplexity.labels] == sorted(weights)


@pytest.mark.slow
def test_alarms_are_named_by_their_rules(lay_run) -> None:
    run = lay_run(nan_at=200)
    alarms = page("run", run=run.name).dataframe
    rules = next(frame.value for frame in alarms if "Rule" in frame.value)["Rule"].tolist()
    assert rules[0] == "non_finite"
    assert set(rules) == {"spike", "non_finite"}
    marks = panel(page("run", run=run.name), "Gradient norm").spikes
    assert {text.split()[0] for text in marks["text"]} == {"spike"}
    table = AppTest.from_file(APP, default_timeout=30).run().dataframe[0].value
    assert "1 non_finite, 2 spike" in table["Alarms"][0]


@pytest.mark.slow
def test_spikes_are_marked_on_the_metric_that_shows_them(lay_run) -> None:
    run = RunDirectory(lay_run(spike_at=190))
    app = page("run", run=run.path.name)
    marked = panel(app, "Gradient norm").spikes
    ring = list(run.path_rings())[190]
    assert any(f"at step {ring.step}:" in text for text in marked["text"])
    assert ring.grad_norm in marked["y"].tolist()
    table = next(frame.value for frame in app.dataframe if "Background" in frame.value)
    assert "191" in table["Step"].tolist()
    assert f"treering spikes {run.path.name[:8]} {table['Step'].iloc[0]}" in texts(app)
    newest = max(int(step) for step in table["Step"])
    before = max(each.step for each in run.checkpoints() if each.step < ring.step - 5)
    command = f"treering rewind {run.path.name[:8]} --to {before} --skip"
    assert f"{command} {newest - before}" in [each.value for each in app.code]
    assert f"Back to step {before} around the alarm at step {newest}" in texts(app)
    opened = page("run", run=run.path.name, at=ring.step)
    assert f"{command} {ring.step - before}" in [each.value for each in opened.code]
    assert f"Back to step {before} around the alarm, over the batches" in texts(opened)
    fields = {"store": "s3://bucket", "project": "team", "state": "finished", "complete": True, "rewritten": {}}
    Mirror(**fields, written_at=time.time() - 3600).write(run.mirror_file)
    mirrored = page("run", run=run.path.name, at=ring.step)
    assert not [each.value for each in mirrored.code if "rewind" in each.value]
    assert "Rewind the run in the project that trains it. This folder: mirror of s3://bucket" in texts(mirrored)


@pytest.mark.slow
def test_no_spike_is_said_in_words(lay_run) -> None:
    assert "None. Judged by the robust z-score" in texts(page("run", run=lay_run(spike_at=0, seed=9).name))


@pytest.mark.slow
def test_a_restart_is_two_segments_and_its_replaced_steps_are_off_until_asked_for(lay_run) -> None:
    name = lay_run(restart_after=100, lost_steps=17).name
    loss = panel(page("run", run=name), "Loss")
    assert loss.lines[0].groupby("segment")["step"].min().tolist() == [1, 101]
    assert [text for _, text in loss.board["restarts"]] == ["attempt 2 (resume) from step 101, 17 steps done again"]
    assert len(loss.lines) == 2
    loss = panel(page("run", run=name, replaced="true"), "Loss")
    assert loss.lines[-1]["step"].tolist() == list(range(101, 118))


@pytest.mark.slow
def test_smoothing_is_off_until_asked_for_and_hides_no_mark(lay_run) -> None:
    name = lay_run(restart_after=100, lost_steps=17, nan_at=77).name
    raw = panel(page("run", run=name, x="step"), "Loss").lines[0]
    faint, average = panel(page("run", run=name, x="step", smooth="true"), "Loss, smoothed 0.9").lines[:2]
    assert faint["y"].tolist() == pytest.approx(raw["y"].tolist(), nan_ok=True)
    by_step = average.set_index("step")["y"]
    kept = raw.set_index("step")["y"]
    assert [by_step[1], by_step[101]] == [kept[1], kept[101]]
    assert by_step[2] == pytest.approx((0.9 * kept[1] + kept[2]) / 1.9)
    assert faint[faint["bad"] > 0]["step"].tolist() == [77]


def test_a_value_that_is_no_number_has_its_own_mark(lay_run) -> None:
    app = page("run", run=lay_run(nan_at=77).name)
    table = next(frame.value for frame in app.dataframe if "Background" in frame.value).set_index("Step")
    assert table.loc["77", "Value"] == "NaN"
    line = panel(app, "Loss").lines[0]
    assert line[line["bad"] > 0]["step"].tolist() == line[line["y"].isna()]["step"].tolist() == [77]


@pytest.mark.slow
def test_more_steps_than_points_are_said(lay_run) -> None:
    assert "stretches" not in texts(page("run", run=lay_run().name))
    run = lay_run(steps=1300, seed=2, checkpoint_every=2000)
    assert "1\u2009306 steps in 1\u2009000 stretches: the line is the last value" in texts(page("run", run=run.name))


@pytest.mark.slow
def test_a_part_of_a_run_and_an_open_step_stand_in_the_address(lay_run) -> None:
    run = RunDirectory(lay_run())
    app = page(
        "run", run=run.path.name, x="step", **{"from": "50", "to": "149", "at": "100", "linear": "Gradient norm"}
    )
    loss = panel(app, "Loss")
    assert loss.lines[0]["step"].tolist() == list(range(50, 150))
    assert loss.board["x"]["window"] == [50.0, 149.0]
    assert loss.board["x"]["extent"] == [1.0, 306.0]
    assert loss.board["at"] == 100.0
    assert panel(app, "Gradient norm").head["log"] is False
    assert loss.board["rest"] == "Steps 50 to 149"
    newest = {"steps": "last 100", "x": "step"}
    part = panel(page("run", run=run.path.name, **newest, **{"from": "150", "to": "250"}), "Loss")
    assert (part.lines[0]["step"].min(), part.lines[0]["step"].max()) == (207, 250)
    assert part.board["rest"] == "Steps 207 to 250"
    none = panel(page("run", run=run.path.name, **newest, **{"from": "50", "to": "149"}), "Loss")
    assert none.board["rest"] == "Steps 207 to 306"
    assert "Nearest checkpoints: step 100 (with it)" in texts(app)
    assert "expected a whole number from 1 to 306" in texts(page("run", run=run.path.name, **{"from": "400"}))


@pytest.mark.slow
def test_published_scores_are_levels_where_task_shots_and_metric_are_the_same(lay_run, tmp_path) -> None:
    run = lay_run().name
    assert "Large" not in str(panel(page("run", run=run, x="step"), "cloze: acc").labels)
    folder = tmp_path / "experiments" / "references"
    folder.mkdir(parents=True)
    (folder / "large.yaml").write_text(
        "model: Large 1T\ncitation: a paper\ncaveat: other prompts\nscores:\n"
        "  - {task: cloze, shots: 1, metric: acc, value: 0.81}\n"
        "  - {task: cloze, shots: 2, metric: acc, value: 0.9}\n"
        "  - {task: cloze, shots: 1, metric: acc_norm, value: 0.95}\n"
    )
    app = page("run", run=run, x="step")
    cloze = panel(app, "cloze: acc")
    assert [text for text in cloze.labels if "Large" in text] == ["Large 1T, 1-shot 0.810"]
    level, own = cloze.head["lines"][-1], cloze.head["lines"][1]
    assert (level["level"], level["dashed"], level["colour"]) == (True, True, own["colour"])
    assert cloze.lines[-1]["x"].tolist() == [1.0, 306.0]
    assert cloze.lines[-1]["y"].tolist() == [0.81, 0.81]
    assert cloze.head["note"] == "Large 1T: a paper; other prompts."
    assert panel(app, "lastword: acc").head["note"] == ""
