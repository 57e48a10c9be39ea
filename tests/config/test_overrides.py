"""What `--set path=value` changes, and how its errors name it."""

import pytest
from tiny_experiment import config_error, write_experiment

from treering.config.load import apply_override, load_experiment


def test_an_error_of_an_override_names_the_override_and_no_line(tmp_path):
    file = write_experiment(tmp_path, precision="fp8")
    error = config_error(file, "model.num_layers=none")
    assert [(each.source, each.line is None) for each in error.errors] == [
        (f"{file} with --set model.num_layers=none", True),
        (str(file), False),
    ]


def test_overrides_in_order_with_list_indices_and_new_sections(tmp_path):
    experiment = load_experiment(
        write_experiment(tmp_path),
        (
            "blend.components.0.weight='0.5'",
            'blend.components.1.weight="0.5"',
            "schedule.rampup.start=4",
            "schedule.rampup={start: 2, increment: 2, samples: 32}",
            "seed=8",
            "seed=9",
        ),
    )
    assert [component.weight for component in experiment.blend.components] == ["0.5", "0.5"]
    assert experiment.schedule.rampup.increment == 2
    assert experiment.seed == 9


@pytest.mark.parametrize(
    ("override", "path", "found", "expected"),
    [
        ("seed", "", "'seed'", "dotted.path=value"),
        ("=3", "", "'=3'", "dotted.path=value"),
        ("seed=[1", "seed", "'[1'", "a YAML value"),
        ("blend.components.2.weight='1'", "blend.components.2", "2", "an index below 2"),
        ("blend.components.x.weight='1'", "blend.components.x", "x", "an index below 2"),
        ("corpora.2=1", "corpora.2", "2", "an index below 2"),
        ("model..x=1", "", "'model..x=1'", "dotted.path=value"),
        ("seed=2024-13-45", "seed", "a value of YAML type timestamp", "a text in quotes"),
        ("seed=1: 2", "seed", "'1: 2'", "a YAML value"),
        ("seed=&a [*a]", "seed", "'&a [*a]'", "a YAML value"),
        ("seed.low=1", "seed.low", "a int above it", "a section or a list"),
    ],
)
def test_overrides_that_lead_nowhere(tmp_path, override, path, found, expected):
    error = config_error(write_experiment(tmp_path), override)
    assert (error.source, error.path, error.found) == (f"--set {override}", path, found)
    assert expected in error.expected


def test_an_override_to_an_unknown_key_is_an_unknown_key(tmp_path):
    assert config_error(write_experiment(tmp_path), "model.layers=3").path == "model.layers"


@pytest.mark.parametrize("override", ["model.num_layers=none", "model={num_layers: none}"])
def test_a_wrong_value_from_an_override_is_not_blamed_on_the_file_alone(tmp_path, override):
    file = write_experiment(tmp_path)
    assert config_error(file, override, "seed=8").source == f"{file} with --set {override}"
    assert config_error(write_experiment(tmp_path, precision="fp8"), "seed=8").source == str(file)


def test_apply_override_changes_only_its_value():
    document = {"a": [{"b": 1}, {"b": 2}], "c": 3}
    apply_override(document, "a.1.b=5")
    assert document == {"a": [{"b": 1}, {"b": 5}], "c": 3}


def test_an_override_makes_the_section_that_is_null(tmp_path):
    document = {"start_from": None, "a": {"b": None}}
    apply_override(document, "start_from.step=320")
    apply_override(document, "a.b.c.d=1")
    assert document == {"start_from": {"step": 320}, "a": {"b": {"c": {"d": 1}}}}
    assert (
        load_experiment(
            write_experiment(tmp_path, start_from=None), ("start_from.run='0123'", "start_from.step=8")
        ).start_from.step
        == 8
    )
