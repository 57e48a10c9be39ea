"""The example of a plain loop records, is killed and resumed from its own checkpoint."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from attempts import die, killed_and_resumed, recorded, rings

from treering.audit.recorded.difference import compare_recorded
from treering.audit.recorded.report import audit_recorded
from treering.audit.report import Level

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "experiments/plain_pytorch.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("plain_pytorch", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    subprocess.run([sys.executable, SCRIPT], cwd=folder, check=True)
    return recorded(folder)


def trainer(example):
    """The example, which can be killed before a step, or read its data from the beginning."""
    batches = example.batches

    def main(die_at=0, resume=False, from_sample_0=False):
        def read(first):
            assert bool(first) is resume
            for number, batch in enumerate(batches(0 if from_sample_0 else first), first):
                if number == die_at > 0:
                    die()
                yield batch

        example.batches = read
        example.main()

    return main


def test_a_training_is_on_record(unbroken):
    found = rings(unbroken)
    assert [ring.step for ring in found] == [*range(1, 31)]
    assert {(ring.samples, ring.tokens) for ring in found} == {(4, 68)}
    assert set(found[0].metrics) == {"loss", "learning_rate"}
    audit = audit_recorded(unbroken, unbroken.checkpoints()[-1])
    assert (audit.level, audit.holds, audit.steps, audit.state) == (Level.RECORDED, True, 30, "finished")


def test_an_honest_resume_is_proven_and_equals_the_unbroken_run(tmp_path, unbroken, example):
    run = killed_and_resumed(tmp_path, trainer(example), die_at=13)
    audit = audit_recorded(run)
    assert [(each.state, each.after_step, each.compared_steps) for each in audit.restarts] == [("same samples", 10, 3)]
    assert (audit.holds, audit.steps) == (True, 30)
    assert compare_recorded(run, unbroken).first_difference is None
    assert rings(run, 2)[-1].metrics["loss"] == pytest.approx(rings(unbroken)[-1].metrics["loss"])


def test_a_loader_that_starts_at_sample_0_is_named_with_its_step(tmp_path, unbroken, example):
    run = killed_and_resumed(tmp_path, trainer(example), die_at=13, from_sample_0=True)
    audit = audit_recorded(run)
    assert [(each.first_difference, each.repeats_step) for each in audit.restarts] == [(11, 1)]
    assert [(finding.kind, finding.step) for finding in audit.findings] == [("batch", 11)]
    assert compare_recorded(run, unbroken).first_difference == 11


def test_without_a_fault_nothing_is_found_where_no_step_was_lost(tmp_path, example):
    audit = audit_recorded(killed_and_resumed(tmp_path, trainer(example), die_at=10))
    assert [(each.state, each.fault) for each in audit.restarts] == [("no sample repeated", False)]
    (tmp_path / "faulty").mkdir()
    faulty = killed_and_resumed(tmp_path / "faulty", trainer(example), die_at=10, from_sample_0=True)
    assert [finding.step for finding in audit_recorded(faulty).findings] == [11]
