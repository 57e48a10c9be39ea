"""`dvc.yaml` says what the code says: commands, sections, and the sources that decide numbers."""

from pathlib import Path

import pytest
import yaml

from treering.cli.group import NAMES
from treering.collect.code import NUMERIC_SOURCES
from treering.config.load import load_experiment
from treering.config.schema import Experiment

ROOT = Path(__file__).parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
CODE = ("platform/", "trainer/", "dashboard/")


def test_the_stages_and_their_order():
    assert list(STAGES) == ["fetch", "curate", "tokenize", "blend", "train", "evaluate", "report"]


def test_train_depends_on_exactly_the_sources_of_the_code_digest_and_on_what_writes_its_outputs():
    depends = {dependency for dependency in STAGES["train"]["deps"] if dependency.startswith(CODE)}
    assert depends == {*NUMERIC_SOURCES, "trainer/treering_trainer/checkpointing/publish.py"}


def test_train_never_depends_on_evaluation_or_dashboard():
    assert not [d for d in STAGES["train"]["deps"] if d.startswith(("trainer/treering_trainer/evaluate", "dashboard"))]


@pytest.mark.parametrize("stage", STAGES)
def test_every_code_dependency_exists_and_every_section_is_one_of_the_schema(stage):
    for dependency in STAGES[stage].get("deps", []):
        if dependency.startswith(CODE):
            assert (ROOT / dependency).exists(), dependency
    written = yaml.safe_load((ROOT / "experiments/demo.yaml").read_text())
    for parameters in STAGES[stage].get("params", []):
        for sections in parameters.values():
            assert set(sections) <= set(Experiment.model_fields)
            assert set(sections) <= set(written), "DVC refuses a parameter that the file does not hold"


def test_every_stage_runs_a_command_that_exists():
    for stage in STAGES.values():
        lines = stage["cmd"] if isinstance(stage["cmd"], list) else [stage["cmd"]]
        for line in lines:
            program, command, *_ = line.split()
            assert program == "treering"
            assert command in NAMES


def test_the_recipe_sections_are_parameters_of_train():
    (parameters,) = STAGES["train"]["params"]
    (sections,) = parameters.values()
    recipe = {"seed", "model", "optimizer", "schedule", "precision"}
    assert recipe <= set(sections)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_config_loads(path):
    assert load_experiment(path).schema_version == 1
