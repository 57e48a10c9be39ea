from pathlib import Path

import pytest

from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved_blend import declared_blend
from treering.plan.layout import Workload

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mt_nlg():
    experiment = load_experiment(ROOT / "experiments" / "mt-nlg-530b.yaml")
    return Workload.of(resolve(experiment, declared_blend(experiment), "mt-nlg-530b.yaml"))
