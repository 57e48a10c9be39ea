"""The steps of curation that `curation_speed.py` times are where the stage calls them."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "experiments/benchmarks/curation_steps.py"


def test_every_step_is_found_where_the_stage_calls_it():
    spec = importlib.util.spec_from_file_location("curation_steps", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    places = [place for step in module.STEPS.values() for place in step]
    assert [f"{owner.__name__}.{name}" for owner, name in places if not hasattr(owner, name)] == []
