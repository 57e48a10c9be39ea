"""`treering compare`: verdicts on two checkpoints."""

import json
import math
import shutil

import numpy as np
import pytest
from seeded_runs import evaluate, lay_run

from treering.metrics.verdicts import judge_evaluations
from treering.record.start import start
from treering.runlog.records import TaskDefinition

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


def test_other_prompts_are_said(root):
    run = lay_run(root)
    evaluate(run, 5.0, {"cloze": BEFORE})
    (record,) = run.evaluations()
    digests = [f"sha256:{number:064d}" for number in (1, 2)]
    one, two = (
        record.model_copy(update={"definitions": {"cloze": TaskDefinition(prompts={"0": digest})}})
        for digest in digests
    )
    (same,), (other,) = judge_evaluations(one, one), judge_evaluations(one, two)
    assert same.doubt == ""
    assert other.doubt == "The prompts differ: other examples fitted, or the definition has another version"
    (older,) = judge_evaluations(record, one.model_copy(update={"harness": "lm-eval 1"}))
    assert older.doubt.startswith("The harness was ")
    assert "The prompts differ" not in older.doubt


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


def test_a_folder_may_have_an_at_sign_in_its_name(root, treering):
    first, second = lay_run(root), lay_run(root, layers=4)
    there = shutil.copytree(first.path.parent, root / "me@node")
    text = treering("compare", there / first.path.name, there / second.path.name)[1]
    assert "B against A (model.num_layers 2 → 4)" in text


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


def test_task_scores_of_groups_are_judged_by_seeds(root, treering):
    runs = []
    for layers, right in ((2, 90), (4, 130)):
        for seed in (1, 2, 3):
            runs.append(lay_run(root, seed, layers=layers))
            even = [1] * (100 + seed) + [0] * (100 - seed)
            evaluate(runs[-1], 4.5, {"cloze": [1] * (right + seed) + [0] * (110 - seed), "lastword": even})
    evaluate(runs[0], 4.4, {"cloze": AFTER, "once": AFTER}, step=2)
    names = [run.id for run in runs]
    (verdict,) = json.loads(treering("compare", *names, "--json")[1])["groups"]["verdicts"]
    found = {each["name"]: each for each in verdict["scores"]}
    cloze, lastword = found["cloze"], found["lastword"]
    assert (cloze["step"], cloze["verdict"], lastword["verdict"]) == (4, "beyond noise", "within noise")
    assert (len(cloze["first"]), cloze["shots"], cloze["metric"]) == (3, 0, "acc")
    assert cloze["effect"]["value"] == pytest.approx(132 / 242 - 92 / 202, abs=0.01)
    assert lastword["effect"]["value"] == 0
    assert (
        found["pubmed"]["kind"] == "corpus"
        if "pubmed" in found
        else all(each["kind"] == "corpus" for name, each in found.items() if name not in ("cloze", "lastword"))
    )
    text = treering("compare", *names)[1]
    assert "Of 2 task scores beyond the noise of seeds: cloze, 0-shot acc +0.0" in text
    row = next(line for line in text.splitlines() if line.startswith("B - A   cloze, 0-shot acc"))
    assert row.rstrip().endswith("beyond noise")
    left_out = next(line for line in text.splitlines() if line.startswith("Not compared, since not every run has them"))
    assert left_out.endswith("by one harness and one set of prompts: once, 0-shot acc.")
    (file,) = runs[5].evaluation_files()
    (record,) = runs[5].evaluations()
    record.model_copy(update={"tasks": {**record.tasks, "cloze": f"sha256:{7:064d}"}}).write(file)
    (verdict,) = json.loads(treering("compare", *names, "--json")[1])["groups"]["verdicts"]
    assert [each["name"] for each in verdict["scores"] if each["kind"] == "task"] == ["lastword"]


def report(loss, seed, rate=0.1, shift=0, tokens=True, **config):
    """A run of another trainer."""
    with start("other", config={"optimizer": {"lr": rate}, "seed": seed, **config}) as run:
        for step in (1, 2):
            fed = {"tokens": np.arange(8).reshape(2, 4) + step + shift} if tokens else {}
            run.step({"loss": loss + 0.1, "eval_loss": loss + seed / 1000}, **fed)
        if math.isfinite(loss):
            run.score(2, "hellaswag", {"acc": 1 - loss / 10 + seed / 1000, "acc_stderr": 0.01})
    return run.id


@pytest.mark.usefixtures("root")
def test_a_run_that_diverged_is_not_compared(treering):
    names = [report(4.5, 1), report(math.nan, 1, rate=0.2)]
    text = treering("compare", *names)[1]
    assert (
        "B against A (optimizer.lr 0.1 → 0.2): not comparable, since the held-out loss of a run is not finite." in text
    )
    assert "has the lowest" not in text


@pytest.mark.slow
@pytest.mark.usefixtures("root")
def test_runs_of_another_trainer_are_grouped_by_their_config(treering):
    names = [report(4.5, seed) for seed in (1, 2, 3)] + [report(4.2, seed, rate=0.2, shift=9) for seed in (1, 2, 3)]
    text = treering("compare", *names)[1]
    assert "A  4.5020 ± 0.0010 (4.5010 to 4.5030)" in text
    assert "(seeds 1, 2, 3)" in text
    (verdict,) = [line for line in text.splitlines() if line.startswith("B against A")]
    assert verdict.startswith("B against A (optimizer.lr 0.1 → 0.2): held-out loss -0.3000 nat/token (95 % interval")
    assert "lower beyond the noise of seeds" in verdict
    assert "Of 1 task scores beyond the noise of seeds: hellaswag, acc +0.0300" in verdict
    assert verdict.endswith("Their data differ from step 1 on (other tokens, or the same in another order).")
    assert "as each trainer reports it" in text
    alone = treering("compare", names[0], names[3])[1]
    assert "the noise is unknown with one seed of A and one seed of B" in alone
    assert "Scores item by item" not in alone


@pytest.mark.slow
def test_runs_of_two_trainers_and_of_one_without_a_config(root, treering):
    own = lay_run(root)
    other = report(4.5, 1, tokens=False)
    text = treering("compare", own.id, other)[1]
    assert "B against A (another trainer): not comparable, since no step has a held-out loss in all runs" in text
    assert "Whether they read the same data is not known: no step of both says what it read." in text
    for _ in range(2):
        with start("bare") as run:
            run.step(loss=1.0)
    bare = [each["id"] for each in json.loads(treering("runs", "--json")[1]) if each["experiment"] == "bare"]
    text = treering("compare", *bare)[1]
    assert "B against A (a config was not reported; `treering.start(config=…)` reports it)" in text
    assert (
        "found a run of another trainer, expected the run without a step"
        in treering("compare", f"{other}@2", own.id)[2]
    )


def test_with_one_seed_the_noise_is_unknown(root, treering):
    first, second, third = lay_run(root, 1), lay_run(root, 2), lay_run(root, 1, layers=4, blend_seed=8)
    for run, loss in ((first, 4.5), (second, 4.49), (third, 4.2)):
        evaluate(run, loss)
    text = treering("compare", first.id, second.id, third.id)[1]
    assert "B  4.2000, noise unknown with one seed" in text
    assert "the noise is unknown with 2 seeds of A and one seed of B, train more with `--set seed=N`" in text
    assert "B (model.num_layers 2 → 4) has the lowest held-out loss at step 4, with unknown noise against A." in text
    assert "Their data differ from step 1 on (other tokens in the same samples, the seeds of their data orders" in text


def test_a_copy_of_a_run_is_no_second_seed(root, treering):
    first, second = lay_run(root, 1), lay_run(root, 2, rate=2e-3)
    evaluate(first, 5.0)
    evaluate(second, 4.0)
    copy = shutil.copytree(first.path, root / "elsewhere" / first.id)
    found = json.loads(treering("compare", second.id, first.id, str(copy), "--json")[1])["groups"]
    assert [group["seeds"] for group in found["groups"]] == [[2], [1]]
    assert "the noise is unknown" in found["verdicts"][0]["sentence"]


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
