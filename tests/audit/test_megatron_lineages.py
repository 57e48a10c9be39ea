"""Runs that several lineages of Megatron fit: the right order, or an answer that names the others first."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from treering.audit.megatron.recognise import recognise
from treering.audit.megatron.run import AuditedRun
from treering.cli import app
from treering.data.corpus.indexed import TokenFile
from treering.data.megatron.lineage import GENERATIONS, LINEAGES, lineage_named
from treering.errors import ConfigError, NotFoundError, UserError

CASES = Path(__file__).with_name("megatron_cases")


@pytest.fixture
def case(request, tmp_path, monkeypatch):
    """The folder of a case, from which its run was launched."""
    shutil.copytree(CASES / request.param, tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    return tmp_path / "run"


def call(*arguments):
    return CliRunner().invoke(app, ["audit", "--megatron-run", *map(str, arguments)], env={"COLUMNS": "400"})


def read(run, last):
    """The documents of each sample up to a step: [[document, start, end], ...]."""
    return [
        [[part.number, part.start, part.end] for part in sample.documents]
        for step in range(1, last + 1)
        for sample in run.step(step)
    ]


@pytest.mark.parametrize("case", ["bigscience-cutoff"], indirect=True)
def test_a_last_epoch_that_bigscience_alone_shuffles_apart(case):
    truth = [documents for _, documents in json.loads((case / "truth.json").read_text())]
    run = AuditedRun.open(case / "ckpt")
    assert (run.lineage, run.level()) == ("bigscience", "re-derived"), "its index cache tells"
    assert read(run, 100) == truth

    for path in case.glob("data/*.npy"):
        path.unlink()
    run = AuditedRun.open(case / "ckpt")
    report = run.report()
    (other,) = report.alternatives
    assert (run.lineage, other.lineages, other.differ, other.compared) == (
        "megatron-deepspeed", ("bigscience",), 799, 800,
    )  # fmt: skip
    assert other.rules == ("the last epoch is shuffled apart below 95% of its samples",)
    wrong = [sample != true for sample, true in zip(read(run, 100), truth, strict=True)]
    assert sum(wrong) == 799
    assert report.level == "declared"
    assert report.verdict == "declared: 100 steps; 1 input is not bound"

    found = call("ckpt", "--step", 1)
    assert found.exit_code == 3
    assert found.stdout.startswith(
        "NOT BOUND    The lineage of the program that trained. The answer is by megatron-deepspeed."
    )
    assert "bigscience (8 of 8 samples of step 1 differ" in found.stdout
    assert "State the lineage with --lineage NAME" in found.stdout
    told = json.loads(call("ckpt", "--step", 1, "--json").stdout)
    assert (told["level"], told["lineage"]) == ("declared", "megatron-deepspeed")
    assert [(each["lineages"], each["differ"]) for each in told["alternatives"]] == [(["bigscience"], 8)]

    stated = AuditedRun.open(case / "ckpt", lineage="bigscience")
    assert read(stated, 100) == truth
    assert (stated.level(), stated.alternatives()) == ("re-derived", ())
    found = call("ckpt", "--lineage", "bigscience")
    assert "lineage              bigscience  (--lineage)" in found.stdout
    assert found.exit_code == 0
    document = truth[0][0][0]
    holders = [g for g, parts in enumerate(truth) if any(part[0] == document for part in parts)]
    assert [sample.g for sample in stated.exposures(f"data/wiki:{document}")] == holders
    (other,) = run.exposure_alternatives(f"data/wiki:{document}")
    by_own = {sample.g for sample in run.exposures(f"data/wiki:{document}")}
    assert other.differ == len(by_own ^ set(holders)) > 0


@pytest.mark.parametrize("case", ["core-0.12-double-ceil"], indirect=True)
@pytest.mark.parametrize("cached", [True, False])
def test_a_share_that_megatron_core_rounds_twice_from_0_11_on(case, cached):
    if not cached:
        shutil.rmtree(case / "data" / "x")
        shutil.rmtree(case / "data" / "y")
    truth = json.loads((case / "truth.json").read_text())["res"]
    run = AuditedRun.open(case / "ckpt")
    assert (run.lineage, run.level(), run.alternatives()) == ("megatron-core-0.11", "re-derived", ())
    for lineage, differing in (("megatron-core-0.12.0", 0), ("megatron-core-0.10", 63)):
        order = AuditedRun.open(case / "ckpt", lineage=lineage).order
        samples = order.samples_with_spans(0, 160)
        found = [[sample.component, [span.document for span in sample.spans]] for sample in samples]
        assert sum(sample != true[:2] for sample, true in zip(found, truth[:160], strict=True)) == differing


@pytest.mark.parametrize("case", ["core-0.12-double-ceil"], indirect=True)
def test_a_lineage_that_the_arguments_contradict_is_answered_beside_theirs(case):
    shutil.rmtree(case / "data" / "x")
    shutil.rmtree(case / "data" / "y")
    run = AuditedRun.open(case / "ckpt", lineage="megatron-core-0.10")
    (other,) = run.alternatives()
    assert (other.lineages, other.differ) == (("megatron-core-0.11",), 63)
    assert run.report().level == "declared"


@pytest.mark.parametrize("case", ["core-0.12-double-ceil"], indirect=True)
@pytest.mark.parametrize(
    ("generation", "lineage", "others"),
    [
        ("core-early", "megatron-core-0.11", []),  # the arguments say which of its lineages
        ("core", "megatron-core-0.13", []),  # makes the same order of this run
        ("legacy", "megatron-lm-legacy", [("megatron-core-0.11",)]),  # the arguments rule it out
    ],
)
def test_an_older_description_beside_a_checkpoint(case, generation, lineage, others):
    shutil.rmtree(case / "data" / "x")
    shutil.rmtree(case / "data" / "y")
    (case / "megatron-run.yaml").write_text(f"checkpoint: ckpt\ngeneration: {generation}\n")
    report = AuditedRun.open(case).report()
    assert (report.lineage, [each.lineages for each in report.alternatives]) == (lineage, others)
    assert report.level == ("declared" if others else "re-derived")


@pytest.mark.parametrize("case", ["neox-generation"], indirect=True)
def test_gpt_neox_never_shuffles_the_last_epoch_apart(case):
    run = AuditedRun.open(case)
    (other,) = [each for each in run.alternatives() if "gpt-neox" in each.lineages]
    assert (run.lineage, run.report().level) == ("megatron-lm-legacy", "declared")
    assert (other.differ, other.compared) == (80, 80)
    assert "the last epoch is never shuffled apart" in other.rules

    text = (case / "megatron-run.yaml").read_text()
    (case / "megatron-run.yaml").write_text(text.replace("generation: legacy", "lineage: gpt-neox"))
    run = AuditedRun.open(case)
    assert (run.lineage, run.report().level) == ("gpt-neox", "re-derived")
    tokens = TokenFile.open(case / "data" / "wiki.bin", case / "data" / "wiki.idx")
    rows = [
        np.concatenate([tokens.tokens[tokens.document_offsets[number] :][start:end] for number, start, end in parts])
        for parts in read(run, 10)
    ]
    # By the training loader of EleutherAI/gpt-neox, ea7aefd8.
    digest = hashlib.sha256(np.stack(rows).astype("<u4").tobytes()).hexdigest()
    assert digest == "9ff216a4e3f92658df4f7e0dd143b752b365e8686c3aca606da1e2f802432c24"


@pytest.mark.parametrize("case", ["neox-generation"], indirect=True)
def test_a_description_without_a_lineage_is_answered_by_megatron_core_beside_all_others(case):
    text = (case / "megatron-run.yaml").read_text().replace("generation: legacy\n", "")
    (case / "megatron-run.yaml").write_text(text)
    report = AuditedRun.open(case).report()
    assert (report.lineage, report.level) == ("megatron-core-0.13", "declared")
    assert [each.lineages for each in report.alternatives] == [("gpt-neox",)]
    assert "bigscience fit it too, and make the same order of it" in " ".join(report.not_proven)
    setting = next(each for each in report.settings if each.name == "lineage")
    assert (setting.value, setting.origin) == ("megatron-core-0.13", "default")

    (case / "megatron-run.yaml").write_text(f"{text}lineage: bloom\n")
    with pytest.raises(ConfigError, match=r"lineage: found bloom, expected one of megatron-core-0\.13, "):
        AuditedRun.open(case)
    with pytest.raises(UserError, match="lineage 'bloom', expected one of megatron-core"):
        AuditedRun.open(case, lineage="bloom")
    (case / "megatron-run.yaml").write_text(f"{text}lineage: bigscience\ngeneration: legacy\n")
    with pytest.raises(ConfigError, match="lineage and generation"):
        AuditedRun.open(case)
    assert AuditedRun.open(case, lineage="megatron-core-0.9").lineage == "megatron-core-0.7"


@pytest.mark.parametrize("case", ["neox-generation"], indirect=True)
def test_a_step_behind_the_last_sample_of_gpt_neox_is_an_error(case):
    text = (case / "megatron-run.yaml").read_text().replace("generation: legacy", "lineage: gpt-neox")
    samples = AuditedRun.open(case).order.components[0].plan.tokens // 16
    (case / "megatron-run.yaml").write_text(
        text.replace("832", str(samples))
        .replace("batch_size: 8", "batch_size: 1")
        .replace("iteration: 10", "iteration: 11")
    )
    run = AuditedRun.open(case)
    with pytest.raises(NotFoundError, match="step 12 asked for, the checkpoint did steps 1 to 11"):
        run.step(12)
    (case / "megatron-run.yaml").write_text(
        (case / "megatron-run.yaml").read_text().replace("iteration: 11", f"iteration: {samples}")
    )
    with pytest.raises(UserError, match=f"{samples} samples consumed, the order ends after {samples - 1}"):
        AuditedRun.open(case)


@pytest.mark.parametrize(
    ("names", "deepspeed", "lineages", "argument"),
    [
        ({"mid_level_dataset_surplus", "mock_data"}, False, ["megatron-core-0.13"], "mid_level_dataset_surplus"),
        ({"renormalize_blend_weights"}, False, ["megatron-core-0.7"], "renormalize_blend_weights"),
        ({"iterations_to_skip", "mock_data"}, False, ["megatron-core-0.11"], "iterations_to_skip"),
        ({"mtp_num_layers", *map(str, range(200))}, False, ["megatron-core-0.7", "megatron-core-0.11"], None),
        (
            {"mtp_num_layers", "moe_enable_deepep", *map(str, range(200))},
            False,
            ["megatron-core-0.11"],
            "moe_enable_deepep",
        ),
        ({"data_impl"}, False, ["megatron-lm-legacy"], "data_impl"),
        ({"data_impl", "deepspeed"}, False, ["megatron-deepspeed", "bigscience"], None),
        ({"data_impl", "deepspeed", *map(str, range(200))}, True, ["megatron-deepspeed"], None),
        ({"data_impl", "random_ltd"}, True, ["megatron-deepspeed"], "random_ltd"),
        ({"data_impl", "kill_switch_path"}, True, ["bigscience"], "kill_switch_path"),
        ({"data_impl", "kill_switch_path", "random_ltd"}, True, ["megatron-deepspeed", "bigscience"], None),
        ({"data_impl", "pipe_parallel_size"}, True, ["gpt-neox"], "pipe_parallel_size"),
        ({"mock_data"}, False, ["megatron-core-0.7", "megatron-core-0.11", "megatron-core-0.5"], None),
        ({"mock_data", *map(str, range(200))}, False, ["megatron-core-0.5"], None),
        ({"mock_data", "num_dataset_builder_threads", *map(str, range(200))}, False, ["megatron-core-0.7"], None),
        (set(map(str, range(200))), False, ["megatron-core-0.4"], None),
    ],
)
def test_the_arguments_of_each_lineage(names, deepspeed, lineages, argument):
    found = recognise(names, deepspeed=deepspeed)
    assert ([lineage.name for lineage in found.lineages], found.argument) == (lineages, argument)


def test_every_name_of_a_lineage():
    assert all(lineage_named(name) is lineage for name, lineage in LINEAGES.items())
    for release, name in (
        ("0.4.0", "0.4"), ("0.6", "0.5"), ("v0.8.0", "0.7"), ("0.10", "0.7"), ("0.12.3", "0.11"), ("0.16.1", "0.13"),
    ):  # fmt: skip
        assert lineage_named(f"megatron-core-{release}").name == f"megatron-core-{name}"
    for wrong in ("megatron-core-0.3", "megatron-core-1.0", "core", "NeoX", ""):
        with pytest.raises(UserError, match=r"expected one of megatron-core-0\.13, megatron-core-0\.11"):
            lineage_named(wrong)
    assert all(name in LINEAGES for names in GENERATIONS.values() for name in names)
