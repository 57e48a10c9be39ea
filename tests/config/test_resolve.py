"""Resolution: identities, what enters them, and what a stored file must prove about itself."""

import json

import pytest

from treering.config.canonical import digest_json
from treering.config.load import load_experiment
from treering.config.model import ModelConfig, OptimizerConfig, ScheduleConfig
from treering.config.resolve import resolve
from treering.config.resolved import Resolved
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent, declared_blend
from treering.errors import ConfigError, EvidenceError, UserError

YAML = """
experiment: tiny
seed: 7
corpora:
  - {name: red, licence: CC0-1.0, jsonl: red.jsonl}
  - {name: blue, licence: CC0-1.0, declared_tokens: 5000}
tokenizer: {vocabulary_size: 300}
blend:
  seed: 3
  sequence_length: 16
  components: [{corpus: red, weight: "0.75"}, {corpus: blue, weight: "0.25"}]
model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, padded_vocab_size: 320}
optimizer: {peak_learning_rate: 1.0e-3, min_learning_rate: 1.0e-4}
schedule: {train_tokens: 4096, global_batch_size: 8, rampup: {start: 4, increment: 2, samples: 64}}
parallel: {micro_batch_size: 2, data: 1}
checkpoint: {every_steps: 10}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(YAML)
    return path


def resolved_with(file, *overrides, blend=None):
    experiment = load_experiment(file, overrides)
    return resolve(experiment, blend or declared_blend(experiment), str(file), overrides)


def blend_of(**changes):
    values = {
        "algorithm": "treering-1",
        "seed": 3,
        "sequence_length": 16,
        "components": (
            ResolvedComponent(
                corpus="red", weight="0.75", digest="sha256:" + "a" * 64, num_tokens=999, num_documents=9
            ),
            ResolvedComponent(corpus="blue", weight="0.25", digest=None, num_tokens=5000, num_documents=None),
        ),
        "tokenizer": "sha256:" + "c" * 64,
    }
    return ResolvedBlend(**{**values, **changes})


def test_defaults_are_written_out(file):
    recipe = resolved_with(file).recipe
    assert recipe.model.ffn_hidden_size == 128
    assert recipe.model.init_std == pytest.approx((3 * 32) ** -0.5)
    assert recipe.schedule.decay_tokens == 4096


def test_a_default_written_by_hand_is_the_same_run(file):
    assert resolved_with(file).run_id == resolved_with(file, "model.ffn_hidden_size=128").run_id


@pytest.mark.parametrize(
    "override",
    [
        "seed=8",
        "blend.seed=4",
        "model.num_layers=4",
        "optimizer.beta2=0.9",
        "schedule.train_tokens=8192",
        "precision=bf16",
        "blend.sequence_length=32",
    ],
)
def test_the_recipe_names_the_run(file, override):
    assert resolved_with(file).run_id != resolved_with(file, override).run_id


@pytest.mark.parametrize(
    "override",
    [
        "parallel.micro_batch_size=1",
        "kernels.attention=sdpa_math",
        "checkpoint.every_steps=5",
        "checkpoint.keep_last=2",
        "spikes.window=64",
        "telemetry.interval_s=2",
    ],
)
def test_the_attempt_part_may_change_under_a_run(file, override):
    before, after = resolved_with(file), resolved_with(file, override)
    assert before.run_id == after.run_id
    assert before.digests["attempt"] != after.digests["attempt"]
    assert after.overrides == (override,)


def test_rules_that_are_not_set_leave_no_trace_in_what_is_digested(file):
    """So documents from before there were any keep their digests."""
    rules = ("keep_last", "keep_every", "keep_best")
    plain, unset = resolved_with(file), resolved_with(file, *(f"checkpoint.{rule}=null" for rule in rules))
    assert plain.digests == unset.digests
    assert plain.to_json()["attempt"]["checkpoint"] == {"every_steps": 10}
    ruled = resolved_with(file, "checkpoint.keep_last=2", "checkpoint.keep_every=20")
    assert ruled.to_json()["attempt"]["checkpoint"] == {"every_steps": 10, "keep_last": 2, "keep_every": 20}


def test_price_and_factor_are_of_the_attempt_and_a_price_has_a_currency(file):
    overrides = ("price_per_kwh=0.2", "currency=EUR", "co2e_g_per_kwh=380")
    priced = resolved_with(file, *(f"telemetry.{override}" for override in overrides))
    assert priced.run_id == resolved_with(file).run_id
    assert priced.to_json()["attempt"]["telemetry"] == {
        "interval_s": 1.0,
        "price_per_kwh": 0.2,
        "currency": "EUR",
        "co2e_g_per_kwh": 380.0,
    }
    assert resolved_with(file).to_json()["attempt"]["telemetry"] == {"interval_s": 1.0}
    with pytest.raises(ConfigError, match=r"telemetry.price_per_kwh: found 0.2, expected currency beside it"):
        resolved_with(file, "telemetry.price_per_kwh=0.2")
    with pytest.raises(ConfigError, match=r"telemetry.currency: found EUR, expected price_per_kwh beside it"):
        resolved_with(file, "telemetry.currency=EUR")


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("checkpoint.keep_every=20",), "keep_last beside it"),
        (("checkpoint.keep_best=true",), "keep_last beside it"),
        (("checkpoint.keep_last=2", "checkpoint.keep_best=3", "validation=null"), "a section validation"),
        (("checkpoint.keep_last=2", "checkpoint.keep_every=15"), r"a multiple of every_steps \(10\)"),
    ],
)
def test_rules_for_checkpoints_must_fit(file, overrides, text):
    with pytest.raises(ConfigError, match=text):
        resolved_with(file, *overrides)


def test_what_makes_data_and_words_enters_neither(file):
    overrides = ("description=other", "curation.seed=5", "evaluation.max_items=3", "corpora.0.licence=MIT")
    before, after = resolved_with(file), resolved_with(file, *overrides)
    assert before.digests == after.digests


def test_blend_digest_by_hand():
    assert blend_of().digest == digest_json(
        {
            "algorithm": "treering-1",
            "components": [
                {"digest": "sha256:" + "a" * 64, "weight": "0.75"},
                {"declared": "blue", "weight": "0.25"},
            ],
            "seed": 3,
            "sequence_length": 16,
        }
    )
    assert blend_of().declared == ("blue",)


def test_a_corpus_is_its_content_not_its_name():
    renamed = blend_of().components[0].model_copy(update={"corpus": "rouge"})
    assert blend_of(components=(renamed, blend_of().components[1])).digest == blend_of().digest


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"seed": 4}, "blend.seed"),
        ({"sequence_length": 32}, "blend.sequence_length"),
        ({"components": blend_of().components[:1]}, "blend.components"),
    ],
)
def test_a_blend_of_another_experiment_is_refused(file, changes, path):
    with pytest.raises(ConfigError, match="dvc repro blend") as caught:
        resolved_with(file, blend=blend_of(**changes))
    assert (caught.value.source, caught.value.path) == (str(file), path)


def test_every_stage_of_the_ramp_must_divide(file):
    with pytest.raises(ConfigError, match="every stage divisible by micro_batch_size x data = 2 x 2") as caught:
        resolved_with(file, "parallel.data=2")
    assert caught.value.found == "a stage with global batch 6 from step 9 on"


def test_an_error_of_the_schedule_names_the_file(file):
    text = "schedule={train_tokens: 4096, global_batch_size: 8, batch_steps: '0:8 half:8'}"
    with pytest.raises(ConfigError, match=r"schedule\.batch_steps") as caught:
        resolved_with(file, text)
    assert caught.value.source == str(file)


def test_resolved_file_round_trip(file, tmp_path):
    resolved = resolved_with(file, blend=blend_of())
    resolved.write(tmp_path / "resolved.json")
    assert Resolved.read(tmp_path / "resolved.json") == resolved


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("recipe", "seed", 8, "recipe digest"),
        ("blend", "seed", 8, "blend digest"),
        ("attempt", "checkpoint", {"every_steps": 9}, "attempt digest"),
        ("recipe", "colour", 1, "not a resolved config"),
        (None, "run", "0" * 16, "run 0000000000000000 was written"),
        (None, "schema_version", 2, "not a resolved config"),
    ],
)
def test_an_edited_resolved_file_is_refused(file, section, key, value, message):
    path = file.with_name("resolved.json")
    resolved_with(file).write(path)
    document = json.loads(path.read_text())
    (document[section] if section else document)[key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(EvidenceError, match=message):
        Resolved.read(path)


def test_blend_file_round_trip_and_edits(tmp_path):
    path = tmp_path / "data" / "blend.json"
    with pytest.raises(UserError, match="`dvc repro blend` makes it"):
        ResolvedBlend.read(path)
    blend_of().write(path)
    assert ResolvedBlend.read(path) == blend_of()
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(EvidenceError, match="the file was edited"):
        ResolvedBlend.read(path)
    for garbage in (b"{}", b"[1]", b"\xff", b"[" * 100_000, b'{"seed":1,"seed":1}', b'"x"'):
        path.write_bytes(garbage)
        with pytest.raises(EvidenceError, match="not a resolved blend"):
            ResolvedBlend.read(path)


def test_sections_are_frozen():
    for section in (
        ModelConfig(num_layers=1, hidden_size=4, num_attention_heads=1, padded_vocab_size=8),
        OptimizerConfig(peak_learning_rate=1.0, min_learning_rate=0.0),
        ScheduleConfig(train_tokens=8, global_batch_size=1),
    ):
        with pytest.raises(ValueError, match="frozen"):
            section.seed = 1
