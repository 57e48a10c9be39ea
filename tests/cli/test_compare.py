"""`treering compare`: verdicts on two checkpoints."""

import json

import pytest
from seeded_runs import evaluate, lay_run

BEFORE = [0] * 20 + [1] * 4 + [0] * 88 + [1] * 88
AFTER = [1] * 20 + [0] * 4 + [0] * 88 + [1] * 88


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_checkpoints_of_one_run_are_compared_item_by_item(root, treering):
    run = lay_run(root)
    evaluate(run, 5.0, {"cloze": BEFORE, "lastword": BEFORE}, step=2)
    evaluate(run, 4.5, {"cloze": AFTER, "lastword": BEFORE}, step=4)
    code, out, _ = treering("compare", f"{run.id}@2", f"{run.id}@4", "--json")
    answer = json.loads(out)
    assert (code, answer["a"]["step"], answer["b"]["step"]) == (0, 2, 4)
    cloze, lastword = answer["scores"]
    assert (cloze["task"], cloze["effect"]["method"], cloze["effect"]["pairs"]) == ("cloze", "mcnemar", 200)
    assert cloze["effect"]["value"] == pytest.approx(0.08)
    assert cloze["adjusted_p"] == pytest.approx(2 * cloze["effect"]["p"])
    assert (cloze["verdict"], lastword["verdict"]) == ("beyond noise", "within noise")
    assert (cloze["doubt"], lastword["effect"]["value"]) == ("", 0)
    text = treering("compare", run.id + "@2", run.id)[1]
    assert "held-out loss 5.0000 nat/token" in text
    assert "Everything that can move numbers is the same." in text
    row = next(line for line in text.splitlines() if line.startswith("cloze"))
    assert row.split()[:6] == ["cloze", "0", "acc", "0.4600", "0.5400", "+0.0800"]
    assert row.endswith("beyond noise")


def test_records_without_items_are_compared_by_errors_and_say_so(root, treering):
    first, second = lay_run(root, 1), lay_run(root, 2)
    evaluate(first, 5.0, {"cloze": BEFORE}, items=False)
    evaluate(second, 5.0, {"cloze": AFTER})
    (found,) = json.loads(treering("compare", first.id, second.id, "--json")[1])["scores"]
    assert (found["effect"]["method"], found["verdict"]) == ("unpaired", "within noise")
    text = treering("compare", first.id, second.id)[1]
    assert "no results by item" in text
    assert "score the checkpoints again with `treering evaluate`" in text


def test_a_task_of_one_checkpoint_alone_has_no_verdict(root, treering):
    first, second = lay_run(root, 1), lay_run(root, 2)
    evaluate(first, 5.0, {"cloze": BEFORE})
    evaluate(second, 5.0, {"other": BEFORE})
    assert "No task was scored at both checkpoints" in treering("compare", first.id, second.id)[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [("@9", "step 9 is not evaluated, expected one of 4"), ("@x", "found step 'x', expected a number")],
)
def test_a_step_that_is_not_evaluated(root, treering, name, message):
    run = lay_run(root)
    evaluate(run, 5.0, {"cloze": BEFORE})
    code, _, errors = treering("compare", run.id, run.id + name)
    assert code == 2
    assert message in errors


def test_a_run_without_evaluations(root, treering):
    run = lay_run(root)
    code, _, errors = treering("compare", run.id, run.id)
    assert code == 2
    assert "`treering evaluate` scores them all" in errors


def test_environments_are_compared_by_package_and_variable(root, treering):
    old = {"digest": "a", "packages": {"torch": "2.12.0"}, "numeric_packages": {"torch": "2.12.0"}, "variables": {}}
    new = {"digest": "b", "packages": {"torch": "2.13.0"}, "numeric_packages": {"torch": "2.13.0"}, "variables": {}}
    first, second = lay_run(root, 1, environment=old), lay_run(root, 2, environment=new)
    for run in (first, second):
        evaluate(run, 5.0, {"cloze": BEFORE})
    found = json.loads(treering("compare", first.id, second.id, "--json")[1])["environment"]
    assert (found["same_digest"], len(found["differences"])) == (False, 1)
    text = treering("compare", first.id, second.id)[1]
    assert ["package", "torch", "2.12.0", "2.13.0", "yes"] in [line.split() for line in text.splitlines()]
    assert "The devices and drivers were not compared" in text
