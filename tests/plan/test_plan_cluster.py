"""`treering plan --nodes`: what it prints, what it refuses and with which exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from treering.cli import app
from treering.errors import ConfigError, UserError

MT_NLG = Path(__file__).parents[2] / "experiments" / "mt-nlg-530b.yaml"


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(
        app, ["plan", str(MT_NLG), *map(str, arguments)], catch_exceptions=False
    )


def test_without_nodes_nothing_is_said_of_a_cluster(invoke):
    assert "cluster" not in json.loads(invoke("--json").stdout)["plan"]
    assert "cluster " not in invoke().stdout


def test_the_plan_of_a_cluster(invoke):
    document = json.loads(invoke("--nodes", 280, "--efficiency", 0.302, "--json").stdout)["plan"]["cluster"]
    assert (document["devices"], document["layout"]["name"], document["device"]["tflops"]) == (2240, "8x35x8", 312.0)
    assert [part["name"] for part in document["memory"]["parts"]] == [
        "weights",
        "gradients",
        "optimizer",
        "activations",
    ]
    assert document["memory"]["num_bytes"] == sum(part["num_bytes"] for part in document["memory"]["parts"])
    assert document["memory"]["usable_bytes"] == 72e9
    assert document["full_step"]["step_s"] == pytest.approx(60.1, rel=0.002)
    assert document["first_step"]["bubble"] == pytest.approx(34 / 38)
    assert document["full_step"]["mfu"] == pytest.approx(document["efficiency"])
    assert document["days"] == pytest.approx(48.9, abs=0.1)
    assert document["model"].startswith("a model, not a measurement")


def test_the_plan_for_people(invoke):
    text = invoke("--nodes", 280).stdout
    assert "529.6 B parameters" in text  # what plan prints without a cluster stands before it
    assert "280 nodes x 8 A100 80GB = 2,240 devices; peak 312 TFLOP/s, dense bf16 (https://www.nvidia.com/" in text
    assert "MFU 30.0% at the full batch in 8x35x8, micro-batch 1, full recompute, as stated" in text
    assert "This is a model, not a measurement" in text
    assert "arXiv 1910.02054" in text
    assert "arXiv 2205.05198" in text
    assert "full batch  1,920            240   12.4%" in text
    assert "49.2 days for all steps" in text


@pytest.mark.parametrize(
    ("nodes", "ramp", "seconds", "tflops"),
    # Iteration times and TFLOP/s that arXiv 2201.11990 measured; the plan is within 4 % of them.
    [(280, (32, 32), 60.1, 126), (350, (30, 30), 50.2, 121), (420, (48, 36), 44.4, 113)],
)
def test_the_plan_of_the_three_published_clusters_states_how_the_ramp_changes(invoke, nodes, ramp, seconds, tflops):
    found = json.loads(invoke("--nodes", nodes, "--efficiency", 0.302, "--json").stdout)
    cluster, replicas = found["plan"]["cluster"], nodes // 35
    expected = {"parallel.data": (8, replicas)} if replicas != 8 else {}
    names = ("schedule.rampup.start", "schedule.rampup.increment")
    expected |= {name: (32, size) for name, size in zip(names, ramp, strict=True) if size != 32}
    assert {each["path"]: (each["before"], each["after"]) for each in cluster["changes"]} == expected
    assert (cluster["layout"]["name"], cluster["reference"]["name"]) == (f"8x35x{replicas}", "8x35x8")
    assert found["recipe"]["schedule"]["rampup"] == {"start": ramp[0], "increment": ramp[1], "samples": 5_859_375}
    step = cluster["full_step"]
    assert step["step_s"] == pytest.approx(seconds, rel=0.04)
    assert step["hardware_tflops"] == pytest.approx(tflops, rel=0.045)
    assert step["tflops"] == pytest.approx(step["mfu"] * 312)


def test_the_changes_for_people_can_be_set_and_are_then_none(invoke):
    text = invoke("--nodes", 350).stdout
    assert "changed     parallel.data from 8 to 10\n            schedule.rampup.start from 32 to 30\n" in text
    settings = next(line for line in text.splitlines() if "changed experiment" in line).split(": ")[1].split()
    again = invoke("--nodes", 350, *settings).stdout
    assert "changed " not in again
    run = next(line for line in text.splitlines() if line.startswith("run "))
    assert run in again.splitlines()


def test_what_was_set_by_hand_is_not_changed(invoke):
    with pytest.raises(ConfigError, match=r"parallel\.data: found 8: .*--set parallel\.data=10"):
        invoke("--nodes", 350, "--set", "parallel.data=8")
    with pytest.raises(ConfigError, match=r"a stage with global batch 32 from step 1 on"):
        invoke("--nodes", 350, "--set", "schedule.rampup.start=32")
    with pytest.raises(ConfigError, match=r"a stage with global batch 32 .* divisible by .* 1 x 11"):  # 1,920 is not
        invoke("--nodes", 385)


def test_a_constant_batch_has_one_step_to_show(invoke):
    text = invoke("--nodes", 280, "--set", "schedule.rampup=null").stdout
    assert "full batch" in text
    assert "first  " not in text


def test_the_search(invoke):
    document = json.loads(invoke("--nodes", 280, "--device", "H100", "--search", "--json").stdout)["plan"]["cluster"]
    shown = document["layouts"]
    assert [each["days"] for each in shown] == sorted(each["days"] for each in shown)
    assert len(shown) == min(10, document["layouts_that_fit"])
    assert document["reference"]["name"] == "8x35x8"
    text = invoke("--nodes", 280, "--search").stdout
    assert "6 layouts fit; the fastest schedules:" in text
    assert text.splitlines()[-6].split()[:3] == ["8x35x8", "1", "none"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--nodes", 300), ConfigError, r"mt-nlg-530b\.yaml: parallel\.pipeline: found tensor 8 x pipeline 35 = 280"),
        (("--nodes", 280, "--device", "A100 40GB", "--set", "parallel.activation_recompute=none"), ConfigError,
         r"mt-nlg-530b\.yaml: parallel\.activation_recompute: found .* at most 90% of the 40 GB"),
        (("--nodes", 280, "--set", "model.num_layers=70", "--set", "schedule.rampup=null",
          "--set", "parallel.pipeline_schedule=dualpipev"), ConfigError,
         r"mt-nlg-530b\.yaml: parallel\.pipeline_schedule: found dualpipev, expected 1f1b: memory and bubble"),
        (("--nodes", 280, "--device", "abacus"), UserError, "--device: found 'abacus'"),
        (("--search",), UserError, "plan --search: found no --nodes"),
    ],
)  # fmt: skip
def test_refusals(invoke, arguments, error, message):
    with pytest.raises(error, match=message):
        invoke(*arguments)


def test_a_refusal_is_one_line_and_exit_code_2():
    done = subprocess.run(
        [Path(sys.executable).parent / "treering", "plan", MT_NLG, "--nodes", "35", "--set", "parallel.data=2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "parallel.data: found 2: 8x35x2 takes 560 devices, expected 1 for the 280 devices of 35 nodes" in done.stderr
    assert done.stdout == ""
