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
        (("--nodes", 350), ConfigError, r"mt-nlg-530b\.yaml: parallel\.data: found 8: .*--set parallel\.data=10"),
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
