"""`treering runs`, `show` and `ship` on run logs of our own, read back from what they print."""

import json
import math

import mlflow
import pytest
from run_records import CODE
from typer.testing import CliRunner

from treering.cli import app
from treering.cli.commands.runs import _shown_length
from treering.cli.numbers import age
from treering.config.canonical import short
from treering.errors import EvidenceError, NotFoundError
from treering.runlog.records import AttemptLayout
from treering.runlog.telemetry.events import append_event
from treering.ship.follow import follow
from treering.ship.projection import attempt_tags


@pytest.fixture
def call(project, monkeypatch):
    monkeypatch.chdir(project.root)

    def invoke(*arguments):
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "300"})
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


def test_without_runs_it_says_what_helps(call):
    assert "No runs here" in call("runs")
    assert json.loads(call("runs", "--json")) == []


def test_a_run_without_its_config_is_named(call, write_run):
    lost = write_run(1).start().lay(3).end()
    path = lost.run.path / "resolved.json"
    path.unlink()
    said = f"{path}: missing, so the run is not listed; restore the file from a copy of the run"
    assert call("runs").split("\n") == ["", said, ""]
    kept = write_run(2)
    assert [row["id"] for row in json.loads(call("runs", "--json"))] == [kept.resolved.run_id]
    assert said in call("runs")


def test_lists_each_run_with_its_state(call, write_run):
    done = write_run(1).start().lay(20).save().end()
    alive = write_run(2).hold().start().lay(3)
    dead = write_run(3).start().lay(4).die()
    empty = write_run(4)
    rows = {row["id"]: row for row in json.loads(call("runs", "--json"))}
    assert {rows[w.resolved.run_id]["state"] for w in (done, alive, dead, empty)} == {
        "finished",
        "stalled",  # its processes live, and its last ring is of 2023
        "broken",
        "empty",
    }
    stalled = rows[alive.resolved.run_id]
    assert "after step 3, expected one within 30 s; no rank has telemetry" in stalled["stall"]
    assert (stalled["reason"], stalled["attention"]) == (stalled["stall"], "stalled")
    assert f"{alive.resolved.run_id}: no step for " in call("runs")
    assert f"why         {stalled['stall'][:8]}" in call("show", alive.resolved.run_id)
    row = rows[done.resolved.run_id]
    assert (row["state"], row["step"], row["num_steps"], row["checkpoints"], row["attempts"]) == (
        "finished",
        20,
        400,
        1,
        1,
    )
    assert (row["loss"], row["validation_loss"], row["consumed_tokens"]) == (3.98, 3.5, 20 * 8 * 64)
    assert rows[empty.resolved.run_id]["loss"] is None
    table = call("runs")
    line = next(line for line in table.splitlines() if line.startswith(done.resolved.run_id[:8]))
    assert line.split()[:7] == [done.resolved.run_id[:8], "tiny", "finished", "20/400", "3.98", "█▇▆▅▄▃▂▁", "0.5"]
    assert [each.split()[2] for each in table.splitlines()[1:5]] == ["finished", "empty", "broken", "stalled"]


def test_a_damaged_log_is_a_state_with_its_reason(call, write_run):
    writer = write_run().start().lay(3)
    file = writer.run.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":3.998', '"loss":2.998'))
    (row,) = json.loads(call("runs", "--json"))
    assert row["state"] == "damaged"
    assert "ring of step 2" in row["problem"]
    assert "ring of step 2" in call("runs")
    with pytest.raises(EvidenceError, match="ring of step 2"):
        call("show", writer.resolved.run_id)


@pytest.mark.parametrize("file", ["resolved.json", "attempts/0001/end.json", "attempts/0001/header.json"])
def test_a_damaged_document_does_not_hide_the_other_runs(call, write_run, file):
    damaged = write_run(1).start().lay(2).end()
    whole = write_run(2).start().lay(3)
    path = damaged.run.path / file
    path.write_text(path.read_text().replace("sha256:", "sha256:0"))
    rows = {row["id"]: row for row in json.loads(call("runs", "--json"))}
    assert rows[damaged.resolved.run_id]["state"] == "damaged"
    assert file in rows[damaged.resolved.run_id]["problem"]
    assert (rows[whole.resolved.run_id]["state"], rows[whole.resolved.run_id]["step"]) == ("broken", 3)
    assert damaged.resolved.run_id in call("runs")


def test_show_prints_the_whole_run(call, write_run):
    spike = {45: 9.0, 46: math.nan}
    writer = write_run().start(devices=["NVIDIA A100-SXM4-80GB"])
    writer.lay(40).save().lay(3).die().start(parent=writer.run.checkpoints()[0], devices=["NVIDIA A100-SXM4-80GB"])
    writer.lay(20, loss=lambda step: spike.get(step, 4.0)).save().evaluate(60).end()
    page = json.loads(call("show", writer.resolved.run_id[:6], "--json"))
    assert (page["run"]["step"], page["run"]["state"]) == (60, "finished")
    assert page["recipe"]["model"]["hidden_size"] == 32
    assert page["parameters"] == 12 * 2 * 32**2 + 13 * 2 * 32 + (128 + 64) * 32 + 2 * 32  # the last: layer norm
    assert [(a["attempt"], a["origin"], a["from_step"], a["on_path"], a["status"]) for a in page["attempts"]] == [
        (1, "start", 0, True, None),
        (2, "resume", 40, True, "finished"),
    ]
    assert [(p["attempt"], p["last_step"]) for p in page["path"]] == [(1, 40), (2, None)]
    assert page["layout"]["data"] == 2
    assert page["kernels"][0] == {
        "operation": "optimizer",
        "requested": "torch_fused",
        "used": "torch",
        "reason": "no GPU",
    }
    speed = page["throughput"]
    assert (speed["tflops_per_device"], speed["flops_formula"], speed["steps"]) == (156.0, "megatron-2023", 60)
    assert (speed["mfu"], speed["hfu"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (speed["pipeline_bubble"], speed["ideal_pipeline_bubble"], speed["split"]) == (None, None, {})
    assert speed["peak_source"].startswith("https://www.nvidia.com/")
    assert [(s["step"], s["metric"], s["value"]) for s in page["spikes"]] == [
        (45, "train/loss", 9.0),
        (46, "train/loss", "NaN"),
    ]
    assert [(c["step"], c["bytes"]) for c in page["checkpoints"]] == [(40, 1000), (60, 1000)]
    assert page["evaluations"][0]["scores"]["cloze"]["0"]["accuracy"] == 0.5
    text = call("show", writer.resolved.run_id, "--full")
    for expected in (
        "attempt 1 to step 40 → attempt 2",
        "156 TFLOP/s a device by megatron-2023, MFU 50.0%, HFU 50.0% of 312",
        "no GPU",
        "cloze accuracy",
        "0.05",
        "finished: the schedule's end",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("launch", "text"),
    [
        ({"launcher": "torchrun"}, "started by torchrun on 2 nodes\n"),
        (
            {
                "launcher": "srun",
                "slurm": {"job": "4711", "restarts": "2", "nodelist": "dgx[001-002]"},
                "script": {"digest": f"sha256:{'ab' * 32}", "text": "#!/bin/bash\n"},
            },
            "started by srun, Slurm job 4711 after 2 restarts on dgx[001-002], script abababababab\n",
        ),
        ({"launcher": "treering", "slurm": {"job": "7"}}, "started by treering, Slurm job 7 on 2 nodes\n"),
    ],
)
def test_show_tells_what_started_an_attempt(launch, text, call, write_run):
    nodes = ({"host": "dgx001", "rank": 0}, {"host": "dgx002", "rank": 8})
    run = write_run().start(launch=launch, nodes=nodes).lay(2).end().run
    assert text in call("show", run.path.name, "--full")
    (attempt,) = json.loads(call("show", run.path.name, "--json"))["attempts"]
    assert (attempt["launch"], attempt["nodes"]) == (launch, ["dgx001", "dgx002"])
    tags = attempt_tags(run.attempts(), ())
    assert (tags["treering.launcher"], tags["treering.nodes"]) == (launch["launcher"], "2")
    assert tags.get("treering.slurm_job") == launch.get("slurm", {}).get("job")


def test_show_tells_where_the_time_goes_and_which_rank_is_slow(call, write_run):
    times = {"step": 2.0, "data_wait": 0.1, "forward_backward": 1.0, "communication": 0.6, "optimizer": 0.3}
    times |= {"pipeline": 1.5, "pipeline_bubble": 0.45, "record": 0.01}
    layout = AttemptLayout(tensor=1, pipeline=2, data=1, micro_batch_size=2, device="cpu", backend="gloo")
    writer = write_run().start(layout=layout).lay(10, time_s=lambda _: times)
    for rank, compute_s in ((0, 1.3), (1, 1.8)):
        values = {"rank/step": 2.0, "rank/compute": compute_s, "rank/communication": 0.6, "rank/tflops": 1.0 + rank}
        writer.telemetry(rank, [(1, values), (2, {"host/memory_used": 1}), (3, values)])
    writer.end()
    speed = json.loads(call("show", writer.resolved.run_id, "--json"))["throughput"]
    assert speed["split"] == pytest.approx(
        {"data_wait": 0.05, "forward_backward": 0.5, "communication": 0.3, "optimizer": 0.15, "record": 0.005}
    )
    # Eight samples by twos are four micro-batches: (2 - 1)/(4 + 2 - 1).
    assert (speed["pipeline_bubble"], speed["ideal_pipeline_bubble"]) == (pytest.approx(0.3), 0.2)
    assert [(rank["rank"], rank["compute_s"]) for rank in speed["ranks"]] == [(1, 1.8), (0, 1.3)]
    text = call("show", writer.resolved.run_id, "--full")
    for expected in (
        "step        data wait 5.0%, forward and backward 50.0%, communication 30.0%, optimizer 15.0%; between steps: "
        "record 0.5% of their time",
        "bubble      30.0% of the pipeline's time, ideal 20.0% by (p - 1)/(m + p - 1)",
        "ranks       of 2 with telemetry rank 1 computes longest, 1.8 s a step, rank 0 shortest, 1.3 s; TFLOP/s by",
    ):
        assert expected in text


def test_show_tells_the_energy_of_devices_with_its_doubt(call, write_run):
    layout = AttemptLayout(tensor=1, pipeline=1, data=2, micro_batch_size=2, device="cuda", backend="nccl")
    writer = write_run().start(layout=layout).lay(10)
    for rank in (0, 1):
        powers = [(second, {"device/power": 360.0}) for second in range(11)]
        writer.telemetry(rank, powers)
    append_event(writer.directory / "telemetry", 0, {"time": 1e9, "xids": [{"device": 1, "code": 79}], "lost": 5})
    writer.end()
    page = json.loads(call("show", writer.resolved.run_id, "--json"))
    tokens = page["run"]["consumed_tokens"]
    assert page["energy"]["kwh"] == pytest.approx(2 * 3600 / 3.6e6)
    assert page["energy"]["joules_per_token"] == pytest.approx(7200 / tokens)
    assert page["sensors"]["lost_readings"] == 5
    text = call("show", writer.resolved.run_id)
    assert f"energy      0.002 kWh, {7200 / tokens:.3g} J a token" in text
    assert "of it     0 of 2 devices by their energy counter, 2 by power over time, as they have no counter" in text
    assert "XID         79 of device 1 on node 0, 2001-09-09 01:46:40 UTC" in text
    assert "telemetry   5 readings lost" in text


def test_incidents_are_counted_in_the_list_and_told_on_the_page(call, write_run):
    write_run(1).start().lay(2)
    assert "incident" not in call("runs")
    told = write_run(2).start().lay(3)
    told.befall("rank_stuck", text="rank 1 has given no sign for 600 s while training step 4", rank=1, host="node-9")
    rows = {row["id"]: row["incidents"] for row in json.loads(call("runs", "--json"))}
    assert (rows[told.resolved.run_id], sorted(rows.values())) == (1, [0, 1])
    assert f"{told.resolved.run_id}: 1 incident" in call("runs")
    (incident,) = json.loads(call("show", told.resolved.run_id, "--json"))["attempts"][0]["incidents"]
    assert (incident["title"], incident["rank"], incident["host"]) == ("a rank was stuck", 1, "node-9")
    text = " ".join(call("show", told.resolved.run_id, "--full").split())
    assert (
        "incident step 3: a rank was stuck: rank 1 has given no sign for 600 s while training step 4 (on node-9)"
        in text
    )


def test_show_fits_80_columns_and_names_folders_from_here(project, write_run, monkeypatch):
    monkeypatch.chdir(project.root)
    writer = write_run(overrides=("seed=1", "blend.components.0.weight=0.75")).start().lay(20).save().end()
    text = CliRunner().invoke(app, ["show", writer.resolved.run_id, "--full"], env={"COLUMNS": "80"}).output
    lines = text.splitlines()
    assert f"folder      runs/{writer.resolved.run_id}" in lines
    assert "set         seed=1  blend.components.0.weight=0.75" in lines
    (row,) = (line for line in lines if line.rstrip().endswith("checkpoints/step-00000020"))
    assert row.split()[0] == "20"
    assert str(project.root) not in text


def test_show_of_a_run_that_has_not_started(call, write_run):
    writer = write_run()
    text = call("show", writer.resolved.run_id, "--full")
    assert "no attempt yet" in text
    assert "no spikes" in text


def test_an_unknown_run(call):
    with pytest.raises(NotFoundError, match="no project with runs, since runs/ is missing, and 'beef' is not a folder"):
        call("show", "beef")


def test_an_unknown_run_among_others(call, write_run):
    write_run().start().lay(1)
    with pytest.raises(NotFoundError, match="no run starts with 'beef'; `treering runs` lists them"):
        call("show", "beef")
    with pytest.raises(NotFoundError, match="'published' is not a folder here and not a run's id"):
        call("show", "published")


def test_show_says_first_what_matters_first(call, write_run):
    writer = write_run(1).start().lay(20).save().lay(20).save().end()
    lines = call("show", writer.resolved.run_id).splitlines()
    assert [line.split()[0] for line in lines] == [
        "run", "state", "progress", "loss", "newest", "speed", "alarms", "more",
    ]  # fmt: skip
    assert all(len(line) <= 80 for line in lines)
    assert lines[2].startswith("progress    step 40 of 400 (10%), ")
    assert lines[4] == "newest      step-00000040; no held-out loss on record"


def test_the_list_fits_80_columns_and_tells_runs_apart(call, write_run):
    told = write_run(1).start().lay(3)
    told.befall("rank_stuck", text="rank 1 has given no sign", rank=1, host="node-9")
    write_run(2).start().lay(2)
    lines = call("runs").splitlines()
    assert max(len(line.rstrip()) for line in lines[: lines.index("")]) <= 80
    assert lines[-1] == f"{told.resolved.run_id}: 1 incident; `treering show RUN --full` lists them"
    assert _shown_length(["0123456789ab", "0123456789cd"]) == 11


def test_ship_says_what_it_sent(call, write_run, uri):
    writer = write_run().start().lay(4).save().end()
    name = writer.resolved.run_id
    assert call("ship").splitlines() == [
        f"shipping 1 run to mlflow ({uri})",
        f"mlflow: {name} finished: 4 rings, 1 checkpoint",
    ]
    assert call("ship").splitlines()[1] == f"mlflow: {name} finished: nothing new"
    (report,) = json.loads(call("ship", name, "--json"))
    assert report["sent"] == {"ring": 0, "checkpoint": 0, "evaluation": 0}
    assert (report["target"], report["place"], report["problem"]) == ("mlflow", uri, None)
    assert mlflow.MlflowClient(uri).get_run(report["stored_as"]).info.status == "FINISHED"
    other, empty = write_run(2).start().lay(1), write_run(3)
    assert call("ship").splitlines()[0] == f"shipping 3 runs to mlflow ({uri})"
    text = call("ship")
    assert f"mlflow: {empty.resolved.run_id} empty: no attempt yet, nothing to ship" in text
    assert text.splitlines()[-1] == "mlflow is up to date: nothing new"
    other.lay(2)
    assert call("ship").splitlines()[-1] == "mlflow is up to date: 2 rings of 1 run"


def test_ship_without_runs_makes_no_database(call, project):
    assert "`treering train" in call("ship") or "start a run" in call("ship")
    assert json.loads(call("ship", "--json")) == []
    assert not (project.root / "mlflow.db").exists()


@pytest.mark.usefixtures("uri")
def test_a_damaged_run_does_not_keep_the_others_from_being_shipped(call, write_run, capsys):
    bad, good = write_run(1).start().lay(3), write_run(2).start().lay(2)
    file = bad.run.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":3.998', '"loss":2.998'))
    with pytest.raises(EvidenceError, match="ring of step 2"):
        call("ship")
    assert [r["sent"]["ring"] for r in json.loads(call("ship", good.resolved.run_id, "--json"))] == [0]
    capsys.readouterr()


def test_a_follower_says_once_what_it_cannot_ship(project, write_run, uri, caplog):
    damaged, going, good = (write_run(seed).start().lay(3).end() for seed in (1, 2, 3))
    file = damaged.run.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":3.998', '"loss":2.998'))
    (going.run.path / "ship-mlflow.lock").mkdir()  # as odd as a folder that is being removed
    follow(project, interval_s=0.05, grace_s=0.5)
    said = sorted(record.getMessage() for record in caplog.records if "not shipped" in record.getMessage())
    assert len(said) == 2
    assert any("ring of step 2" in text for text in said)
    assert any("Is a directory" in text for text in said)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs(["1"], f"tags.`treering.run` = '{good.resolved.recipe.digest}'")
    assert run.info.status == "FINISHED"


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (42, "42s"), (600, "10m"), (12_600, "4h"), (200_000, "2d"), (7199, "120m")]
)
def test_ages(seconds, text):
    assert age(seconds) == text


@pytest.mark.parametrize(("rule", "shown"), [({"rule": "syntax-1"}, "syntax-1"), ({}, "bytes")])
def test_the_codes_digest_is_named_with_its_rule(rule, shown, call, write_run):
    writer = write_run().start(code={"digest": CODE, **rule}).lay(2)
    assert attempt_tags(writer.run.attempts(), ())["treering.code_rule"] == shown
    attempt = json.loads(call("show", writer.resolved.run_id, "--json"))["attempts"][0]
    assert (attempt["code"], attempt["code_rule"]) == (CODE, shown)
    assert f"code {short(CODE)} (rule {shown})" in call("show", writer.resolved.run_id, "--full")
