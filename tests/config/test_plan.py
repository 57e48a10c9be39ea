"""`treering plan`, and MT-NLG 530B held against its paper (arXiv 2201.11990)."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from treering.cli import app
from treering.config.load import load_experiment
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.errors import ConfigError

MT_NLG = Path(__file__).parents[2] / "experiments" / "mt-nlg-530b.yaml"

# Table 1 of the paper: tokens (10^9), weight, epochs over 270 B tokens as printed there.
PUBLISHED = {
    "books3": (25.7, "0.14336", 1.5),
    "openwebtext2": (14.8, "0.19336", 3.6),
    "stack-exchange": (11.6, "0.05689", 1.4),
    "pubmed-abstracts": (4.4, "0.02897", 1.8),
    "wikipedia": (4.2, "0.04771", 3.2),
    "gutenberg-pg-19": (2.7, "0.00873", 0.9),
    "bookcorpus2": (1.5, "0.01007", 1.8),
    "nih-exporter": (0.3, "0.00208", 1.8),
    "pile-cc": (49.8, "0.09446", 0.5),
    "arxiv": (20.8, "0.01359", 0.2),
    "github": (24.3, "0.01588", 0.2),
    "cc-2020-50": (68.7, "0.13017", 0.5),
    "cc-2021-04": (82.6, "0.15652", 0.5),
    "realnews": (21.9, "0.08962", 1.1),
    "cc-stories": (5.3, "0.00859", 0.5),
}


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["plan", *map(str, arguments)], catch_exceptions=False)


def planned(invoke, *arguments):
    return json.loads(invoke(*arguments, "--json").stdout)


def test_mt_nlg_model_and_schedule(invoke):
    document = planned(invoke, MT_NLG)
    plan = document["plan"]
    assert plan["parameters"] == pytest.approx(529.6e9, rel=1e-5)
    assert plan["steps"] == 80_087
    assert plan["tokens"] == 270_000_455_680
    full = next(milestone for milestone in plan["milestones"] if milestone["kind"] == "full_batch")
    assert full["step"] == 14_476
    assert full["consumed_samples"] + full["batch_size"] == 5_863_040
    warmup = next(milestone for milestone in plan["milestones"] if milestone["kind"] == "warmup_end")
    assert warmup["learning_rate"] == pytest.approx(5.0e-5)
    decay = next(milestone for milestone in plan["milestones"] if milestone["kind"] == "decay_end")
    assert (decay["reached"], decay["learning_rate"]) == (False, 5.0e-6)
    sizes = [milestone["batch_size"] for milestone in plan["milestones"] if milestone["kind"].endswith("_batch")]
    assert sizes == [1920]
    ramp = [milestone["batch_size"] for milestone in plan["milestones"] if milestone["kind"] == "batch_size"]
    assert ramp == list(range(32, 1920, 32))


def test_mt_nlg_recipe(invoke):
    recipe = planned(invoke, MT_NLG)["recipe"]
    model, optimizer = recipe["model"], recipe["optimizer"]
    assert (model["num_layers"], model["hidden_size"], model["num_attention_heads"]) == (105, 20_480, 128)
    assert (model["padded_vocab_size"], model["init_std"]) == (51_200, 4.0e-3)
    assert model["init_std"] == pytest.approx((3 * 20_480) ** -0.5, rel=0.02)
    assert (optimizer["beta1"], optimizer["beta2"], optimizer["epsilon"]) == (0.9, 0.95, 1e-8)
    assert (optimizer["weight_decay"], optimizer["gradient_clipping"]) == (0.1, 1.0)
    assert recipe["precision"] == "bf16"


def test_mt_nlg_blend(invoke):
    corpora = planned(invoke, MT_NLG)["plan"]["corpora"]
    assert {corpus["corpus"]: corpus["weight"] for corpus in corpora} == {
        name: weight for name, (_, weight, _) in PUBLISHED.items()
    }
    assert [corpus["corpus"] for corpus in corpora] == list(PUBLISHED)
    assert sum(Decimal(corpus["weight"]) for corpus in corpora) == 1
    for corpus in corpora:
        tokens, weight, epochs = PUBLISHED[corpus["corpus"]]
        assert corpus["tokens"] == tokens * 1e9
        assert corpus["planned_epochs"] == pytest.approx(float(weight) * 270 / tokens, rel=1e-4)
        assert corpus["planned_epochs"] == pytest.approx(epochs, abs=0.15)
        assert corpus["samples"] == pytest.approx(float(weight) * 131_836_160, abs=10)


def test_mt_nlg_layout_divides_only_with_its_data_parallel_size():
    with pytest.raises(ConfigError, match=r"105.*divisible by parallel\.pipeline 36"):
        load_experiment(MT_NLG, ["parallel.pipeline=36"])


def test_plan_for_people(invoke):
    text = invoke(MT_NLG).stdout
    assert "529.6 B parameters" in text
    assert "80,087 steps" in text
    assert "declared: data/blend.json does not exist" in text
    assert "14,476" in text
    assert "more sizes" in text


def test_plan_with_a_contradiction_says_where(invoke):
    with pytest.raises(ConfigError, match=r"mt-nlg-530b\.yaml: schedule: found a stage with global batch 32"):
        invoke(MT_NLG, "--set", "parallel.data=10")


def test_plan_uses_the_stored_blend_only_if_it_is_this_experiments(invoke, tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(
        MT_NLG.read_text()
        .replace("declared_tokens: 25_700_000_000", "jsonl: books.jsonl")
        .replace('weight: "0.14336"', 'weight: "0.14336" ')
    )
    before = planned(invoke, config)
    assert before["plan"]["corpora"][0]["planned_epochs"] is None
    assert before["plan"]["corpora"][1]["planned_epochs"] == pytest.approx(0.19336 * 270 / 14.8, rel=1e-4)

    experiment = load_experiment(config)
    stored = ResolvedBlend(
        algorithm="treering-1",
        seed=1234,
        sequence_length=2048,
        tokenizer=None,
        components=tuple(
            ResolvedComponent(
                corpus=component.corpus,
                weight=component.weight,
                digest=f"sha256:{number:064x}",
                num_tokens=10**9,
                num_documents=1000,
            )
            for number, component in enumerate(experiment.blend.components)
        ),
    )
    stored.write(tmp_path / "data" / "blend.json")
    after = planned(invoke, config)
    assert after["plan"]["blend_source"] == "resolved: data/blend.json"
    assert after["digests"]["blend"] == stored.digest != before["digests"]["blend"]
    assert after["plan"]["corpora"][0]["planned_epochs"] == pytest.approx(0.14336 * 270, rel=1e-4)

    other = planned(invoke, config, "--set", "blend.seed=5")
    assert other["plan"]["blend_source"] == "declared: data/blend.json is another experiment's (blend.seed differs)"
    assert other["overrides"] == ["blend.seed=5"]
