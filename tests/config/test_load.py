"""Every way in which an authored experiment can be wrong is one error with file, dotted path, found, expected."""

import pytest
from tiny_experiment import config_error, write_experiment

from treering.config.load import load_experiment


def test_a_right_file_loads_with_its_defaults(tmp_path):
    experiment = load_experiment(write_experiment(tmp_path))
    assert experiment.experiment == "tiny"
    assert experiment.model.ffn_width == 128
    assert experiment.blend.components[1].weight == "0.25"
    assert (experiment.precision, experiment.optimizer.beta2) == ("fp32", 0.95)


@pytest.mark.parametrize(
    ("change", "path", "found", "expected"),
    [
        ({"model__layers": 3}, "model.layers", "an unknown key", "one of num_layers, hidden_size, "),
        ({"colour": "green"}, "colour", "an unknown key", "one of schema_version, experiment, "),
        ({"blend__components__1__wait": "0.2"}, "blend.components.1.wait", "an unknown key", "one of corpus, weight"),
        ({"corpora__1__rules__min": 3}, "corpora.1.rules.min", "an unknown key", "one of min_characters, "),
        ({"schedule__rampup__begin": 3}, "schedule.rampup.begin", "an unknown key", "one of start, increment, samples"),
        ({"model__layers": 3, "model__num_layers": ...}, "model.layers", "an unknown key", "num_layers"),
        ({"model__num_layers": True}, "model.num_layers", "true", "a number or a text"),
        ({"seed": False}, "seed", "false", "a number or a text"),
        ({"optimizer__peak_learning_rate": True}, "optimizer.peak_learning_rate", "true", "a number or a text"),
        ({"evaluation__shots": [0, True]}, "evaluation.shots", "[0, true]", "a number or a text"),
        ({"parallel__data": True}, "parallel.data", "true", "a number or a text"),
        ({"tokenizer__end_of_document": ""}, "tokenizer.end_of_document", "''", "at least 1 character"),
        ({"blend__components__0__weight": float("nan")}, "blend.components.0.weight", "nan", "above 0"),
        ({"blend__components__0__weight": "sNaN"}, "blend.components.0.weight", "sNaN", "above 0"),
        ({"blend__components__0__weight": "1e-999999999"}, "blend.components.0.weight", "1e-999999999", "2**-64"),
        ({"model__num_layers": "two"}, "model.num_layers", "'two'", "valid integer"),
        ({"model__num_layers": 0}, "model.num_layers", "0", "greater than 0"),
        ({"model__num_layers": 2.5}, "model.num_layers", "2.5", "valid integer"),
        ({"seed": ...}, "seed", "nothing", "this key is required"),
        ({"precision": "fp8"}, "precision", "'fp8'", "'fp32', 'bf16' or 'fp16'"),
        ({"corpora": []}, "corpora", "[]", "at least 1 item"),
        ({"blend__components__0__weight": True}, "blend.components.0.weight", "True", "a decimal like"),
        ({"blend__components__0__weight": "much"}, "blend.components.0.weight", "'much'", "a decimal like"),
        ({"blend__components__0__weight": "-0.5"}, "blend.components.0.weight", "-0.5", "above 0"),
        ({"optimizer__beta1": float("nan")}, "optimizer.beta1", "nan", "finite"),
    ],
)
def test_unknown_keys_and_wrong_types(tmp_path, change, path, found, expected):
    file = write_experiment(tmp_path, **change)
    error = config_error(file)
    assert (error.source, error.path, error.found) == (str(file), path, found)
    assert expected in error.expected
    assert f"{file}:{error.line}:{error.column}: {path}: found {found}, expected " in str(error) or error.line is None
    assert (error.line is None) == (path == "seed" and change == {"seed": ...})
    if error.line is not None:
        line = file.read_text().splitlines()[error.line - 1]
        assert line.lstrip("- ").startswith(f"{path.rpartition('.')[2]}:")
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("change", "path", "found", "expected"),
    [
        (
            {"model__num_attention_heads": 5},
            "model.num_attention_heads",
            "5 heads for hidden_size 32",
            "a number of heads that divides hidden_size",
        ),
        (
            {"blend__components__0__weight": "0.7"},
            "blend.components",
            "weights that sum to 0.95",
            "weights that sum to exactly 1",
        ),
        (
            {"blend__components__0__weight": "0.75" + "0" * 40 + "1"},
            "blend.components",
            "weights that sum to 1+1e-43",
            "weights that sum to exactly 1",
        ),
        (
            {"corpora__0__rules": {"min_characters": 20, "max_characters": 10}},
            "corpora.0.rules.min_characters",
            "20",
            "at most max_characters 10",
        ),
        ({"blend__components__1__corpus": "red"}, "blend.components", "corpus red twice", "one component"),
        ({"blend__components__1__corpus": "grey"}, "blend.components", "corpus grey", "one of corpora: red, blue"),
        ({"corpora__1__name": "red"}, "corpora", "red twice", "each name once"),
        ({"model__padded_vocab_size": 256}, "model.padded_vocab_size", "256", "at least tokenizer.vocabulary_size 300"),
        ({"parallel__tensor": 3}, "model.num_attention_heads", "4", "divisible by parallel.tensor 3"),
        ({"parallel__pipeline": 3}, "model.num_layers", "2", "divisible by parallel.pipeline 3"),
        (
            {"parallel__recompute_interval": 2},
            "parallel.recompute_interval",
            "2 with activation_recompute none",
            "activation_recompute full beside it",
        ),
        (
            {"parallel__recompute_interval": 3, "parallel__activation_recompute": "full"},
            "parallel.recompute_interval",
            "3",
            "at most 2, the number of consecutive layers of a stage",
        ),
        (
            {"optimizer__min_learning_rate": 1.0},
            "optimizer.min_learning_rate",
            "1.0",
            "at most peak_learning_rate 0.001",
        ),
        ({"schedule__warmup_tokens": 4096}, "schedule.warmup_tokens", "4096", "less than the decay's end at 4096"),
        (
            {"schedule__rampup": {"start": 2, "increment": 4, "samples": 64}},
            "schedule.rampup.increment",
            "steps of 4 from 2",
            "steps that reach global_batch_size 8 exactly",
        ),
        (
            {"schedule__rampup": {"start": 4, "increment": 4, "samples": 64}, "schedule__global_batch_size": 10**12},
            "schedule.rampup.increment",
            "249999999999 batch sizes",
            "at most 100000",
        ),
        (
            {"schedule__rampup": {"start": 4, "increment": 4, "samples": 64}, "schedule__batch_steps": "0:4 2K:8"},
            "schedule.batch_steps",
            "both rampup and batch_steps",
            "one of them",
        ),
        (
            {"corpora__0__declared_tokens": 10},
            "corpora.0",
            "declared_tokens and jsonl",
            "exactly one of wheels, declared_tokens, jsonl, parquet, dataset, megatron",
        ),
        ({"corpora__0__reader": "bible"}, "corpora.0.reader", "bible", "a reader with wheels, and none without"),
        (
            {"curation__heldout__min_jaccard": 0.9},
            "curation.heldout.min_jaccard",
            "0.9",
            "at most dedup.min_jaccard 0.8",
        ),
        (
            {"corpora__0__jsonl": ..., "corpora__0__megatron": "own"},
            "tokenizer.file",
            "none",
            "the tokenizer that made the tokens of corpus red",
        ),
    ],
)
def test_contradictions_name_both_sides(tmp_path, change, path, found, expected):
    file = write_experiment(tmp_path, **change)
    error = config_error(file)
    assert (error.source, error.path, error.found) == (str(file), path, found)
    assert expected in error.expected


def test_all_errors_come_at_once_each_with_its_line(tmp_path):
    """Schema, types, unknown keys, and contradictions between the sections that are right."""
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "experiment: tiny\n"
        "seed: 7\n"
        "seed: 8\n"
        "corpora:\n"
        "- {name: red, licence: CC0-1.0, jsonl: red.jsonl}\n"
        "tokenizer: {vocabulary_size: 400}\n"
        "blend:\n"
        "  seed: 3\n"
        "  sequence_length: 16\n"
        "  components:\n"
        "  - corpus: red\n"
        "    weight: '0.75'\n"
        "model:\n"
        "  layers: 2\n"
        "  hidden_size: 32\n"
        "  num_attention_heads: four\n"
        "  padded_vocab_size: 320\n"
        "optimizer: {peak_learning_rate: 1.0e-3, min_learning_rate: 1.0e-4}\n"
        "schedule:\n"
        "  train_tokens: 4096\n"
        "  global_batch_size: 8\n"
        "  warmup_tokens: 5000\n"
        "  batch_steps: '0:8'\n"
        "  rampup: {start: 2, increment: 2, samples: 32}\n"
        "parallel: {micro_batch_size: 2, data: 2}\n"
        "checkpoint: {every_steps: 10, keep_best: true}\n"
        "description: 2024-01-01\n"
    )
    error = config_error(file)
    said = {(each.line, each.column, each.path): each for each in error.errors}
    assert sorted(said) == [
        (3, 1, "seed"),
        (10, 3, "blend.components"),
        (13, 1, "model.num_layers"),
        (14, 3, "model.layers"),
        (16, 3, "model.num_attention_heads"),
        (22, 3, "schedule.warmup_tokens"),
        (23, 3, "schedule.batch_steps"),
        (26, 31, "checkpoint.keep_best"),
        (27, 14, "description"),
    ]
    assert said[14, 3, "model.layers"].expected.endswith("; did you mean num_layers?")
    assert said[27, 14, "description"].found == "a value of YAML type timestamp"
    lines = str(error).splitlines()
    assert lines[0] == f"{file}: 9 errors"
    assert len(lines) == 10
    assert f"  {file}:16:3: model.num_attention_heads: found 'four', expected a valid integer, unable" in str(error)


def test_sections_that_are_right_are_held_against_each_other_beside_one_that_is_wrong(tmp_path):
    file = write_experiment(
        tmp_path, parallel__colour="green", blend__components__1__corpus="grey", tokenizer__vocabulary_size=400
    )
    paths = [each.path for each in config_error(file).errors]
    assert paths == ["parallel.colour", "blend.components", "model.padded_vocab_size"]


def test_many_errors_are_listed_and_counted(tmp_path):
    file = write_experiment(tmp_path)
    file.write_text(file.read_text() + "".join(f"key{number}: 1\n" for number in range(70)))
    lines = str(config_error(file)).splitlines()
    assert lines[0] == f"{file}: 70 errors"
    assert lines[-1] == "  and 20 more"
    assert len(lines) == 52


def test_numbers_that_no_counter_holds(tmp_path):
    for number, expected in ((1e300, "maximum size"), (2**63, "less than 2**63"), ("9" * 4000, "less than 2**63")):
        error = config_error(write_experiment(tmp_path, schedule__train_tokens=number))
        assert error.path == "schedule.train_tokens"
        assert expected in error.expected


def test_a_weight_keeps_every_digit(tmp_path):
    first, second = "0.7" + "3" * 40, "0.2" + "6" * 39 + "7"
    changes = {"blend__components__0__weight": first, "blend__components__1__weight": second}
    weights = [
        component.weight for component in load_experiment(write_experiment(tmp_path, **changes)).blend.components
    ]
    assert weights == [first, second]


@pytest.mark.parametrize("spelling", [0.75, "0.75", "0.750", "75e-2", ".75"])
def test_one_weight_has_one_spelling(tmp_path, spelling):
    experiment = load_experiment(write_experiment(tmp_path, blend__components__0__weight=spelling))
    assert experiment.blend.components[0].weight == "0.75"
