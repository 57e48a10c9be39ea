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


def test_runs_without_evaluations_and_without_validation_are_not_comparable(root, treering):
    first, second = lay_run(root), lay_run(root, layers=4)
    text = treering("compare", first.id, second.id)[1]
    assert "B against A (model.num_layers 2 → 4): not comparable" in text
    assert "A  no checkpoint is evaluated; `treering evaluate` scores them all" in text


def lay_four_configs(root):
    """Four configs of three seeds: B is as A, C worse, D better and on another order of the data."""
    runs = {}
    for name, options, loss in (
        ("A", {}, 4.50),
        ("B", {"rate": 2e-3}, 4.505),
        ("C", {"layers": 1}, 4.80),
        ("D", {"layers": 4}, 4.30),
    ):
        for seed, noise in ((1, -0.012), (2, 0.004), (3, 0.008)):
            runs[name, seed] = lay_run(root, seed, **options)
            evaluate(runs[name, seed], loss + noise * (1 if name in "AC" else -1))
    return runs


def test_four_configs_of_three_seeds_give_one_right_sentence(root, treering):
    runs = lay_four_configs(root)
    names = [run.id for run in runs.values()]
    code, text, _ = treering("compare", *names)
    lines = text.splitlines()
    assert code == 0
    assert (
        "D (model.num_layers 2 → 4) has the lowest held-out loss at step 4, beyond the noise of seeds against A, B "
        "and C." in lines
    )
    (worse,) = [line for line in lines if line.startswith("C against A")]
    assert worse.startswith("C against A (model.num_layers 2 → 1): held-out loss +0.3000 nat/token (95 % interval +0.2")
    assert worse.endswith("higher beyond the noise of seeds. Both read the same data (4 common steps).")
    (even,) = [line for line in lines if line.startswith("B against A")]
    assert "(optimizer.peak_learning_rate 0.001 → 0.002): held-out loss +0.0050" in even
    assert "within the noise of seeds; a difference of 0.0" in even
    answer = json.loads(treering("compare", "--json")[1])["groups"]  # all runs, in the order of their activity
    assert sorted(len(group["runs"]) for group in answer["groups"]) == [3, 3, 3, 3]
    assert len(answer["verdicts"]) == 6
    assert "A  4.5000 ± 0.0106 (4.4880 to 4.5080)" in text


def test_with_one_seed_the_noise_is_unknown(root, treering):
    first, second, third = lay_run(root, 1), lay_run(root, 2), lay_run(root, 1, layers=4, blend_seed=8)
    for run, loss in ((first, 4.5), (second, 4.49), (third, 4.2)):
        evaluate(run, loss)
    text = treering("compare", first.id, second.id, third.id)[1]
    assert "B  4.2000, noise unknown with one seed" in text
    assert "the noise is unknown with 2 seeds of A and one seed of B, train more with `--set seed=N`" in text
    assert "B (model.num_layers 2 → 4) has the lowest held-out loss at step 4, with unknown noise against A." in text
    assert "Their data differ from step 1 on (other tokens in the same samples, the seeds of their data orders" in text


def test_runs_of_one_config_are_one_group(root, treering):
    runs = [lay_run(root, seed) for seed in (1, 2, 3)]
    for run, loss in zip(runs, (4.5, 4.51, 4.52), strict=True):
        evaluate(run, loss)
    text = treering("compare", *[run.id for run in runs])[1]
    assert text.startswith("A  4.5100 ± 0.0100 (4.5000 to 4.5200)")
    assert "nothing to compare with" in text


def test_one_run_or_three_checkpoints_are_refused(root, treering):
    run = lay_run(root)
    evaluate(run, 4.5)
    assert "found 1, expected two runs or more" in treering("compare", run.id)[2]
    assert "found 3, expected two checkpoints" in treering("compare", *[f"{run.id}@4"] * 3)[2]


def test_a_damaged_ring_leaves_the_data_unknown(root, treering):
    runs = [lay_run(root, seed, layers=layers) for layers in (2, 4) for seed in (1, 2)]
    for run in runs:
        evaluate(run, 4.5)
    file = runs[0].attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":5.9', '"loss":5.8'))
    assert "Whether they read the same data is not known" in treering("compare", *[run.id for run in runs])[1]


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
