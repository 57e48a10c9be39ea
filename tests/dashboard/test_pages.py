"""Every page in every state, asserted on what reaches the browser: texts, tables, charts with their data."""

import io
import json
import os
import shutil
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from dashboard_page import metrics, page, texts
from streamlit.testing.v1 import AppTest

from treering.runlog.directory import RunDirectory
from treering.runlog.incidents import Incident, append_incident
from treering.runlog.lock import acquire
from treering_dashboard.frames import telemetry

APP = str(Path(__file__).parents[2] / "dashboard" / "treering_dashboard" / "site" / "app.py")


def charts(app: AppTest) -> list[tuple[dict, dict[str, pd.DataFrame]]]:
    """Specification and data of each chart."""
    found = []
    for element in app.get("vega_lite_chart"):
        data = {
            each.name: pa.ipc.open_stream(io.BytesIO(each.data.data)).read_pandas() for each in element.proto.datasets
        }
        found.append((json.loads(element.proto.spec), data))
    return found


def panel(app: AppTest, title: str) -> tuple[dict, dict[str, pd.DataFrame]]:
    for spec, data in charts(app):
        for view in spec["vconcat"]:
            if view["title"] == title:
                return view, data
    raise AssertionError(f"no panel {title!r}")


def layers(view: dict, mark: str) -> list[dict]:
    return [layer for layer in view["layer"] if layer["mark"]["type"] == mark]


def rows(layer: dict, data: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return data[layer["data"]["name"]]


def header_texts(view: dict) -> list[str]:
    return [layer["encoding"]["text"]["value"] for layer in layers(view, "text")]


# runs


@pytest.mark.slow
def test_runs_without_runs_says_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    app = AppTest.from_file(APP, default_timeout=30).run()
    assert not app.exception
    assert "No runs yet" in texts(app)
    assert "treering train experiments/demo.yaml" in texts(app)
    assert str(tmp_path / "runs") in texts(app)


@pytest.mark.slow
def test_runs_lists_every_state(lay_run) -> None:
    lay_run(seed=1)
    lay_run(seed=2, status="interrupted", stop_at=240)
    damaged = lay_run(seed=3)
    edit_ring(damaged, 150)
    empty = lay_run(seed=4)
    for part in ("attempts", "checkpoints", "evaluations"):
        shutil.rmtree(empty / part)
    app = AppTest.from_file(APP, default_timeout=30).run()
    assert not app.exception
    table = app.dataframe[0].value
    by_state = {
        state[0].split(" ", 1)[1]: row for state, row in zip(table["State"], table.to_dict("records"), strict=True)
    }
    assert set(by_state) == {"finished", "interrupted", "evidence damaged", "empty"}
    assert by_state["finished"]["Step"] == "306 of 306"
    assert by_state["finished"]["Progress"] == 1.0
    assert by_state["interrupted"]["At risk"] == "40 steps"
    assert by_state["evidence damaged"]["Step"] == "149 of 306"
    assert by_state["empty"]["Loss"] == "\u2013"
    assert "4 runs, none running" in texts(app)


# one run


def edit_ring(run: Path, line: int) -> None:
    path = run / "attempts" / "0001" / "rings.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace('"loss":', '"loss":1', 1)
    path.write_text("".join(lines))


@pytest.mark.slow
def test_a_finished_run_shows_its_numbers(lay_run) -> None:
    run = RunDirectory(lay_run())
    last = list(run.path_rings())[-1]
    app = page("run", run=run.path.name)
    shown = metrics(app)
    assert shown["Loss"] == f"{last.loss:.2f}"
    assert shown["Work at risk"] == "0 s"
    assert shown["Progress"] == "100 %"
    assert shown["Last step"].endswith(" ago")
    assert ":material/check_circle: finished" in texts(app)
    assert [spec["vconcat"][0]["title"] for spec, _ in charts(app)] == ["Loss", "cloze: acc", "Tokens per second"]


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


def test_a_value_that_is_no_number_has_its_own_mark(lay_run) -> None:
    app = page("run", run=lay_run(nan_at=77).name)
    table = next(frame.value for frame in app.dataframe if "Background" in frame.value).set_index("Step")
    assert table.loc["77", "Value"] == "NaN"
    view, data = panel(app, "Loss")
    (cross,) = [layer for layer in layers(view, "point") if layer["mark"].get("shape") == "cross"]
    assert rows(cross, data)["step"].tolist() == [77]
    assert 77 not in rows(layers(view, "line")[0], data)["step"].tolist()


def befall(run: Path, step: int, kind: str, text: str, attempt: str = "0001", **values: object) -> None:
    append_incident(run / "attempts" / attempt, Incident(step=step, kind=kind, text=text, at=12.5, **values))


@pytest.mark.slow
def test_incidents_are_a_table_and_marks(lay_run) -> None:
    run = lay_run(restart_after=100, lost_steps=17)
    befall(run, 50, "checkpoint_failed", "rank 0: No space left on device")
    befall(run, 117, "rank_killed", "rank 1 (process 7) was killed by SIGKILL", rank=1, host="node-9")
    rings = list(RunDirectory(run).path_rings())
    app = page("run", run=run.name)
    table = next(frame.value for frame in app.dataframe if "In its words" in frame.value)
    assert table.to_dict("records") == [
        {
            "Step": "117",
            "Attempt": "1",
            "What": "a rank was killed",
            "Node": "node-9",
            "In its words": "rank 1 (process 7) was killed by SIGKILL",
        },
        {
            "Step": "50",
            "Attempt": "1",
            "What": "no checkpoint, training goes on",
            "Node": "\u2013",
            "In its words": "rank 0: No space left on device",
        },
    ]
    for title in ("Loss", "cloze: acc", "Tokens per second"):
        view, data = panel(app, title)
        (marks,) = [layer for layer in layers(view, "point") if layer["mark"].get("shape") == "diamond"]
        marked = rows(marks, data)
        assert marked["x"].tolist() == [rings[49].consumed_tokens, rings[116].consumed_tokens]
        assert marked["label"].tolist()[1] == (
            "a rank was killed after step 117: rank 1 (process 7) was killed by SIGKILL"
        )
    view, data = panel(page("run", run=run.name, steps="last 100"), "Loss")
    assert not [layer for layer in layers(view, "point") if layer["mark"].get("shape") == "diamond"]


@pytest.mark.slow
def test_without_incidents_it_says_so(lay_run) -> None:
    app = page("run", run=lay_run().name)
    assert "None on record." in texts(app)
    assert "Incidents" not in AppTest.from_file(APP, default_timeout=30).run().dataframe[0].value


def test_runs_count_their_incidents(lay_run) -> None:
    befall(lay_run(seed=1), 0, "contact_lost", "rank 0 lost contact while starting")
    lay_run(seed=2)
    table = AppTest.from_file(APP, default_timeout=30).run().dataframe[0].value
    assert sorted(table["Incidents"]) == ["", "1"]


@pytest.mark.slow
def test_a_damaged_incident_is_named(lay_run) -> None:
    run = lay_run()
    (run / "attempts" / "0001" / "incidents.jsonl").write_text('{"step":1}\n')
    app = page("run", run=run.name)
    assert "incidents.jsonl line 1: not an incident" in texts(app)
    panel(app, "Loss")


def test_a_running_run_looks_again(lay_run) -> None:
    run = RunDirectory(lay_run(stop_at=120, status=None, ended_ago_s=5))
    held = acquire(run.lock)
    try:
        app = page("run", run=run.path.name)
    finally:
        os.close(held)
    assert ":material/play_circle: running" in texts(app)
    assert metrics(app)["Work at risk"].endswith(" s")
    assert "20 steps" in [metric.proto.delta_description for metric in app.metric]


def test_a_broken_run_says_how_to_go_on(lay_run) -> None:
    app = page("run", run=lay_run(stop_at=120, status=None).name)
    assert "broken" in texts(app)
    assert "goes on from the newest checkpoint" in texts(app)


@pytest.mark.slow
@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_run_that_ended_early_gives_its_reason(lay_run, status) -> None:
    app = page("run", run=lay_run(stop_at=120, status=status).name)
    assert f"{status} by the test" in texts(app)
    assert ("goes on from its newest checkpoint" in texts(app)) == (status == "interrupted")


def test_an_empty_run_says_what_to_do(lay_run) -> None:
    run = lay_run()
    for part in ("attempts", "checkpoints", "evaluations"):
        shutil.rmtree(run / part)
    app = page("run", run=run.name)
    assert "No step yet" in texts(app)
    assert charts(app) == []


@pytest.mark.slow
def test_damaged_evidence_is_named_and_what_stands_before_it_is_drawn(lay_run) -> None:
    run = lay_run()
    edit_ring(run, 150)
    app = page("run", run=run.name)
    assert "evidence damaged" in texts(app)
    assert "rings.jsonl line 150: ring of step 150" in texts(app)
    view, data = panel(app, "Loss")
    assert rows(layers(view, "line")[0], data)["step"].max() == 149


def test_a_missing_header_is_a_state_and_no_crash(lay_run) -> None:
    run = lay_run()
    (run / "attempts" / "0001" / "header.json").unlink()
    app = page("run", run=run.name)
    assert "there is no header.json beside it" in texts(app)


def test_a_damaged_evaluation_leaves_the_curves(lay_run) -> None:
    run = lay_run()
    path = run / "evaluations" / "step-00000200.json"
    path.write_text(path.read_text().replace("lm-eval", "lm-evil"))
    app = page("run", run=run.name)
    assert "step-00000200.json" in texts(app)
    panel(app, "Loss")


@pytest.mark.slow
def test_a_run_without_evaluation_names_the_command(lay_run) -> None:
    run = lay_run()
    shutil.rmtree(run / "evaluations")
    app = page("run", run=run.name)
    assert f"treering evaluate --run {run.name[:8]}" in texts(app)


@pytest.mark.slow
def test_kernels_and_layout_are_facts_of_the_newest_attempt(lay_run) -> None:
    app = page("run", run=lay_run(restart_after=100).name)
    kernels = next(frame.value for frame in app.dataframe if "Kernel" in frame.value)
    assert kernels.iloc[0].tolist() == ["attention", "sdpa_auto", "sdpa_math", "no fused kernel on CPU"]
    assert kernels.iloc[1].tolist()[:3] == ["optimizer", "torch_fused", "as asked"]
    facts = next(frame.value for frame in app.dataframe if "of the newest attempt" in frame.value)
    assert "TP 1 x PP 1 x DP 2" in facts["of the newest attempt"].tolist()
    assert "2 (resume) on node-17" in facts["of the newest attempt"].tolist()
    assert "megatron-2023" in facts["of the newest attempt"].tolist()


@pytest.mark.slow
def test_sensors_of_devices_stand_on_the_steps(lay_run) -> None:
    run = lay_run(steps=60, device="cuda")
    rings = list(RunDirectory(run).attempts()[0].rings())
    app = page("run", run=run.name)
    view, data = panel(app, "Power")
    band, line = rows(layers(view, "area")[0], data), rows(layers(view, "line")[0], data)
    assert line["x"].tolist() == [ring.consumed_tokens for ring in rings]
    assert line["y"].tolist() == [310.0 + ring.step for ring in rings]
    assert (band["lo"].iloc[0], band["hi"].iloc[0]) == (301.0, 321.0)
    assert header_texts(view) == [f"{310 + rings[-1].step} W"]
    assert header_texts(panel(app, "Device memory")[0]) == ["65 GB"]
    view, data = panel(app, "Computing by rank")
    band = rows(layers(view, "area")[0], data)
    assert (set(band["lo"]), set(band["hi"])) == ({0.3}, {0.35}), "the highest is the rank that others wait for"
    assert "Mean over 2 ranks" in texts(app)
    assert "device/temperature: none, not supported" in texts(app)


def readings_of(run: Path, ranks: Iterable[int], slowest: int) -> None:
    """Telemetry of many ranks, three readings in the last steps; one rank computes longer than all others."""
    folder = run / "attempts" / "0001" / "telemetry"
    folder.mkdir()
    ended_at = [ring.ended_at for ring in RunDirectory(run).path_rings()][-3:]
    for rank in ranks:
        compute = 0.9 if rank == slowest else 0.3 + 0.0001 * (rank % 100)
        values = {"rank/step": 1.0, "rank/compute": compute, "rank/communication": 1 - compute, "rank/tflops": 1.0}
        rows = [{"time": moment - 0.05, "rank": rank, "values": values} for moment in ended_at]
        (folder / f"rank-{rank}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.slow
def test_every_rank_of_2240_is_read_and_the_slowest_is_named(lay_run) -> None:
    """Rank 2,239 is the last in order of numbers, and far from the first 64 in order of texts."""
    run = lay_run(stop_at=110, ranks=2240)
    readings_of(run, range(2240), slowest=2239)
    app = page("run", run=run.name)
    view, data = panel(app, "Computing by rank")
    band = rows(layers(view, "area")[0], data)
    assert (band["hi"].max(), band["lo"].min()) == (0.9, 0.3)
    shown = texts(app)
    assert "Mean over 2\u2009240 ranks" in shown
    assert "Rank 2239 computes longest, 0.900 s a step; rank 2200 shortest, 0.300 s; of 2\u2009240 ranks" in shown


def test_ranks_without_readings_are_counted(lay_run) -> None:
    run = lay_run(stop_at=110, ranks=2240)
    readings_of(run, range(64), slowest=63)
    shown = texts(page("run", run=run.name))
    assert "Mean over 64 of 2\u2009240 ranks" in shown
    assert "Rank 63 computes longest" in shown


@pytest.mark.slow
def test_a_long_file_says_how_much_of_it_is_read(lay_run, monkeypatch) -> None:
    monkeypatch.setattr(telemetry, "ALL_BYTES", 2 * 8192)
    run = lay_run(device="cpu")
    shown = texts(page("run", run=run.name))
    files = (run / "attempts" / "0001" / "telemetry").glob("rank-*.jsonl")
    size = max(file.stat().st_size for file in files)
    assert f"The newest 8.19 kB of each rank's file are read, of up to {size / 1000:.1f} kB" in shown


@pytest.mark.slow
def test_more_steps_than_points_are_said(lay_run) -> None:
    assert "stretches" not in texts(page("run", run=lay_run().name))
    run = lay_run(steps=1300, seed=2, checkpoint_every=2000)
    assert "1\u2009306 steps in 1\u2009000 stretches: the line is the last value" in texts(page("run", run=run.name))


@pytest.mark.slow
def test_sensors_of_the_processor_without_a_device(lay_run) -> None:
    app = page("run", run=lay_run(steps=60, device="cpu").name, steps="last 100")
    view, data = panel(app, "CPU of the node")
    assert set(rows(layers(view, "line")[0], data)["y"]) == {50.0}
    assert header_texts(panel(app, "Memory of the rank")[0]) == ["700 MB"]
    assert "device: none, no device" in texts(app)


def test_a_run_without_readings_says_so(lay_run) -> None:
    assert "No readings on record." in texts(page("run", run=lay_run(steps=60).name))


@pytest.mark.slow
def test_runs_links_to_mlflow_where_it_is_served(lay_run, monkeypatch) -> None:
    lay_run(steps=60)
    monkeypatch.setenv("TREERING_MLFLOW_URL", "http://127.0.0.1:5000/#/experiments/1")
    (link,) = page("runs").get("page_link")
    assert (link.proto.label, link.proto.page) == ("MLflow", "http://127.0.0.1:5000/#/experiments/1")
    monkeypatch.setenv("TREERING_MLFLOW_URL", "javascript:alert(1)")
    assert not page("runs").get("page_link")


@pytest.mark.slow
def test_what_was_set_beside_the_file_tells_runs_apart(lay_run) -> None:
    lay_run(steps=60)
    assert "Set" not in page("runs").dataframe[0].value
    run = lay_run(steps=60, seed=2, overrides=("seed=2", "optimizer.peak_learning_rate=0.001"))
    table = page("runs").dataframe[0].value
    assert table.set_index("Run").loc[run.name, "Set"] == "seed=2  optimizer.peak_learning_rate=0.001"
    assert "seed=2  ·  optimizer.peak_learning_rate=0.001" in texts(page("run", run=run.name))


def test_foreign_text_is_never_read_as_markdown(lay_run) -> None:
    run = lay_run(status="failed", stop_at=50, reason="**bold** <script>alert(1)</script> [x](http://x)")
    app = page("run", run=run.name)
    assert any("<script>" in element.value for element in app.text)
    assert not any("<script>" in element.value for element in (*app.markdown, *app.caption))


@pytest.mark.slow
def test_a_change_on_disk_is_seen_although_readers_are_cached(lay_run) -> None:
    run = lay_run(stop_at=50, status=None)

    def last_step() -> int:
        view, data = panel(page("run", run=run.name), "Loss")
        return rows(layers(view, "line")[0], data)["step"].max()

    assert last_step() == 50
    edit_ring(run, 40)
    assert last_step() == 39


# compare


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
    assert "The blends differ" in texts(app)
    held_out = next(table for table in tables if "Corpus" in table).set_index("Corpus")
    losses = [RunDirectory(run).evaluations()[-1].perplexity["factbook"]["loss"] for run in (base, blend)]
    assert held_out.loc["factbook"].tolist()[::2] == [
        f"{losses[0]:.3f}",
        f"{losses[1]:.3f}  ({losses[1] - losses[0]:+.3f})",
    ]
    view, drawn = panel(app, "Loss")
    assert [text.split()[0] for text in header_texts(view)] == [run.name[:8] for run in (base, faster, blend)]
    assert len(rows(layers(view, "line")[0], drawn)) == 306


def test_losses_on_one_blend_need_no_warning(lay_run) -> None:
    app = page("compare", runs=[lay_run(steps=60).name, lay_run(steps=60, learning_rate=2e-3).name])
    assert "Data differ from" in app.dataframe[0].value
    assert "The blends differ" not in texts(app)


@pytest.mark.slow
def test_smoothing_is_off_until_asked_for_and_keeps_the_raw_curve_below(lay_run) -> None:
    names = [lay_run(seed=1).name, lay_run(seed=2).name]
    raw_view, raw_data = panel(page("compare", runs=names), "Loss")
    view, data = panel(page("compare", runs=names, smooth="true"), "Loss, smoothed 0.9")
    raw = rows(layers(raw_view, "line")[0], raw_data)["y"]
    faint, smoothed = (rows(layer, data)["y"] for layer in layers(view, "line")[:2])
    assert faint.tolist() == raw.tolist()
    assert smoothed.iloc[0] == raw.iloc[0]
    assert smoothed.diff().iloc[150:].std() < raw.diff().iloc[150:].std() / 3
    assert len(layers(view, "line")) == 4


def test_compare_of_one_run_asks_for_another(lay_run) -> None:
    assert "Choose two or more runs" in texts(page("compare", runs=[lay_run().name]))


def test_compare_with_a_damaged_run_names_the_damage(lay_run) -> None:
    whole, damaged = lay_run(seed=1), lay_run(seed=2)
    edit_ring(damaged, 100)
    app = page("compare", runs=[whole.name, damaged.name])
    assert "line 100" in texts(app)
    data = next(frame.value for frame in app.dataframe if "Data differ from" in frame.value)
    assert data["How"].tolist() == ["token for token the same in 99 common steps"]


# audit


def test_audit_shows_what_each_corpus_gave(lay_run) -> None:
    run = RunDirectory(lay_run(restart_after=100))
    manifest = run.checkpoints()[-1].manifest
    app = page("audit", run=run.path.name, checkpoint="step-00000306")
    assert "recorded: 306 of 306 steps" in texts(app)
    assert "batch digests were not recomputed; --verify does it." in texts(app)
    table = next(frame.value for frame in app.dataframe if "Epochs planned" in frame.value)
    assert table["Corpus"].tolist() == ["pubmed", "factbook", "python"]
    assert sum(int(text.replace("\u2009", "")) for text in table["Samples"]) == manifest.consumed_samples
    path = next(frame.value for frame in app.dataframe if "Changed" in frame.value)
    assert path["Steps"].tolist() == ["1 to 100", "101 to 306"]
    assert f"treering audit runs/{run.path.name}/checkpoints/step-00000306 --verify" in texts(app)


def test_audit_of_a_damaged_run_does_not_hold(lay_run) -> None:
    run = lay_run()
    edit_ring(run, 150)
    app = page("audit", run=run.name, checkpoint="step-00000306")
    assert "does not hold" in texts(app)
    assert "step 150" in texts(app)


def test_audit_without_a_checkpoint_says_so(lay_run) -> None:
    app = page("audit", run=lay_run(stop_at=50, status=None).name)
    assert "no complete checkpoint yet" in texts(app)
