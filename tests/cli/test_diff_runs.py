"""`treering diff-runs`: exit codes, the answer on top, and JSON without numbers that JSON lacks."""

import json
import math

import pytest
import run_writer

from treering.project import Project


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Folders of three runs of one recipe: two equal ones, and one whose loss is NaN from step 4 on."""
    monkeypatch.chdir(tmp_path)
    found = []
    for name in "abc":
        writer = run_writer.Writer(Project(tmp_path / name)).start()
        loss = {} if name != "c" else {"loss": lambda step: math.nan if step > 3 else 4.0 - 0.001 * step}
        writer.lay(6, **loss).end()
        found.append(str(writer.run.path))
    return found


def test_equal_runs_end_with_0(runs, treering):
    code, out, _ = treering("diff-runs", *runs[:2])
    assert code == 0
    assert out.startswith("Identical to the last bit over 6 steps: the same data, and every recorded number.")


def test_runs_that_differ_end_with_6_and_the_step_is_on_top(runs, treering):
    code, out, _ = treering("diff-runs", runs[0], runs[2])
    assert code == 6
    assert out.splitlines()[0] == (
        "Same data, numbers differ from step 4 after 3 equal ones: loss 3.996 against nan (relative inf). "
        "A real divergence, not rounding noise: over 3 steps the losses differ by up to inf, rounding gives 5.0e-04 by "
        "the precision and the tokens of a step. The records name no other difference."
    )
    code, out, _ = treering("diff-runs", runs[0], runs[2], "--json")
    answer = json.loads(out)
    assert (code, answer["state"], answer["first_step"]) == (6, "numbers", 4)
    assert answer["numbers"]["at_first"][0]["second"] == "NaN"


def test_steps_before_the_difference_are_equal(runs, treering):
    assert treering("diff-runs", runs[0], runs[2], "--steps", "1:3")[0] == 0


def test_steps_that_no_run_has_leave_the_answer_open(runs, treering):
    code, out, _ = treering("diff-runs", *runs[:2], "--steps", "50:60")
    assert code == 3
    assert out.startswith("Whether the runs are the same is not known")


@pytest.mark.parametrize("steps", ["5", "0:3", "7:2", "a:b", "1:"])
def test_steps_of_another_form_are_refused(runs, steps, treering):
    code, _, error = treering("diff-runs", *runs[:2], "--steps", steps)
    assert code == 2
    assert "expected first and last step, such as 100:200" in error
