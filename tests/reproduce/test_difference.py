"""Two runs compared: the first step whose data differ, the first whose numbers do, and what else differs."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import run_writer
import seeded_runs

import treering
from treering.project import Project
from treering.reproduce.code import CodeComparison
from treering.reproduce.difference import RunDifference, compare_runs
from treering.reproduce.sentence import difference_sentence
from treering.reproduce.weights import StepWeights, WeightsComparison
from treering.runlog.recorded_directory import RecordedRunDirectory


@pytest.fixture
def write(tmp_path):
    """Writes a run in a project of its own, so that two runs may have one id."""
    writers = []

    def writer(name, seed=1, **values):
        writers.append(run_writer.Writer(Project(tmp_path / name), seed, **values))
        return writers[-1].start()

    yield writer
    for each in writers:
        each.die()


def record(folder: Path, *, steps=6, lr=0.1, tokens=lambda step: [[step, 1, 2]], **metrics) -> RecordedRunDirectory:
    """A run of another trainer."""
    run = treering.start("plain", config={"lr": lr}, folder=folder)
    for step in range(1, steps + 1):
        run.step(tokens=tokens(step), **{name: value(step) for name, value in metrics.items()})
    run.finish()
    return RecordedRunDirectory(next(folder.iterdir()))


def beside_code(found: RunDifference):
    """The doubts but those about the code, which is the repository around the test's own script."""
    return [doubt for doubt in found.doubts if doubt not in found.code.doubts]


def test_two_trainings_of_one_recipe_with_equal_rings_are_identical(write):
    one, two = (write(name).lay(12).end().run for name in "ab")
    found = compare_runs(one, two)
    assert (found.state, found.first_step, found.same_data) == ("identical", None, True)
    assert (found.numbers.compared_steps, found.data.compared_steps) == (12, 12)
    assert sorted(found.numbers.compared) == [
        "data/consumed_tokens",
        "optim/global_batch_size",
        "optim/learning_rate",
        "train/applied",
        "train/grad_norm",
        "train/loss",
        "validation/loss",
        "validation/loss/books",
        "validation/loss/code",
    ]
    assert difference_sentence(found) == (
        "Identical to the last bit over 12 steps: the same data, and every recorded number, held-out losses too."
    )
    assert (found.config, found.layout, found.environment.differences) == ((), (), ())


def test_one_bit_of_one_loss_is_found_with_its_size(write):
    step = 7
    one = write("a").lay(12).end().run
    two = write("b").lay(12, loss=lambda at: math.nextafter(4.0 - 0.001 * at, 5) if at == step else 4.0 - 0.001 * at)
    found = compare_runs(one, two.end().run)
    assert (found.state, found.first_step, found.numbers.equal_steps) == ("numbers", 7, 6)
    (field,) = found.numbers.at_first
    assert (field.name, field.steps, field.relative) == ("train/loss", 1, pytest.approx(1.1e-16, rel=0.1))
    assert "Same data, numbers differ from step 7 after 6 equal ones: loss 3.993 against" in difference_sentence(found)


def test_numbers_that_are_not_finite_are_compared_too(write):
    bad = {3: math.nan, 4: math.inf, 5: -math.inf}
    same = [write(name).lay(6, loss=lambda at: bad.get(at, 1.0)).end().run for name in "ab"]
    assert compare_runs(*same).state == "identical"
    other = write("c").lay(6, loss=lambda at: math.inf if at == 5 else bad.get(at, 1.0)).end().run
    found = compare_runs(same[0], other)
    assert (found.first_step, found.numbers.at_first[0].relative) == (5, math.inf)


def test_steps_that_a_killed_attempt_did_and_a_later_one_repeated_are_off_the_path(write):
    whole = write("a").lay(12).end().run
    killed = write("b").lay(5).save().lay(3, loss=lambda _: 9.0)
    killed.die()
    killed.start(killed.run.checkpoints()[0]).lay(7).end()
    found = compare_runs(whole, killed.run)
    assert (found.state, found.numbers.compared_steps) == ("identical", 12)


def test_only_the_steps_asked_for_count(write):
    one = write("a").lay(12).end().run
    two = write("b").lay(12, loss=lambda at: 9.0 if at in {3, 9} else 4.0 - 0.001 * at).end().run
    assert compare_runs(one, two).first_step == 3
    assert compare_runs(one, two, range(4, 13)).first_step == 9
    found = compare_runs(one, two, range(4, 9))
    assert (found.state, found.numbers.compared_steps, found.data.compared_steps) == ("identical", 5, 5)


def test_steps_asked_for_that_one_run_does_not_have_leave_the_answer_open(write):
    one, two = (write(name).lay(steps).end().run for name, steps in (("a", 12), ("b", 8)))
    for pair in ((one, two), (two, one)):
        found = compare_runs(*pair, range(4, 12))
        assert (found.state, found.missing, found.numbers.compared_steps) == ("unknown", (9, 11), 5)
        assert difference_sentence(found) == (
            "Whether the runs are the same is not known: one of them ends before steps 9 to 11. Nothing differs in the "
            "5 steps before."
        )
    assert compare_runs(one, two, range(4, 9)).state == "identical"
    other = write("c").lay(8, loss=lambda _: 9.0).end().run
    assert compare_runs(one, other, range(4, 12)).state == "numbers"


def test_the_shorter_run_ends_the_comparison(write):
    found = compare_runs(write("a").lay(12).end().run, write("b").lay(8).end().run)
    assert (found.state, found.numbers.compared_steps) == ("identical", 8)
    assert difference_sentence(found) == (
        "Identical to the last bit over 8 steps: the same data, and every recorded number; the first "
        "run goes on to step 12."
    )


@pytest.mark.parametrize(
    "name",
    [
        "learning_rate",
        "lr-AdamW",
        "train/epoch",
        "num_input_tokens_seen",
        "consumed_samples",
        "lr-AdamW/pg1",
        "momentum",
        "weight_decay",
        "total_flos",
        "base_lr",
        "seq_len",
        "max_grad_norm",
        "odd",
        "loss_scale",
        "scaler/loss_scale",
        "train/applied",
    ],
)
def test_numbers_that_the_weights_may_not_decide_do_not_make_two_runs_identical(tmp_path, name):
    """The learning rate is equal whatever the weights are; of a name that nobody knows that may be so."""
    one, two = (record(tmp_path / each, **{each: float, name: lambda _: 1.0}) for each in ("loss", "foo"))
    found = compare_runs(one, two)
    assert (found.state, found.numbers.compared_steps, found.numbers.result_steps) == ("unknown", 6, 0)
    key = {"learning_rate": "optim/learning_rate", "loss_scale": "optim/loss_scale"}.get(name, name)
    assert difference_sentence(found) == (
        "Whether the runs are the same is not known: in the 6 steps that were compared, both report only numbers that "
        f"are not known to depend on the weights ({key}), but for metrics that only one run measured (foo, train/loss)."
    )
    assert "report a number that the weights decide" in str(found.doubts)


def test_numbers_of_other_steps_were_not_compared(tmp_path):
    """A loss that no step has in both runs neither makes them identical nor takes the say from the other metrics."""
    losses = (dict.fromkeys(range(part, 7, 2), 1.0) for part in (1, 2))

    def lay(name, loss, odd):
        run = treering.start("plain", folder=tmp_path / name)
        for step in range(1, 7):
            run.step(learning_rate=0.1, odd=odd, **({"loss": loss[step]} if step in loss else {}))
        run.finish()
        return RecordedRunDirectory(next((tmp_path / name).iterdir()))

    one, two = (lay(str(at), loss, at) for at, loss in enumerate(losses))
    found = compare_runs(one, two)
    assert (found.state, found.first_step) == ("numbers", 1)
    assert found.numbers.compared == ("optim/learning_rate", "odd")
    assert found.numbers.one_sided == {"train/loss": 6}


@pytest.mark.parametrize("name", ["train_loss_step", "loss_per_token", "accuracy_epoch", "evalLoss", "gnorm"])
def test_a_number_that_the_weights_decide_counts_by_its_name(tmp_path, name):
    found = compare_runs(*(record(tmp_path / each, **{name: float}) for each in "ab"))
    assert (found.state, found.numbers.result_steps) == ("identical", 6)


@pytest.mark.parametrize("name", ["device/power", "host/memory_used", "process/rss", "gpu.0.util"])
def test_sensors_do_not_make_two_runs_differ(tmp_path, name):
    found = compare_runs(*(record(tmp_path / str(at), nll=float, **{name: lambda _, at=at: at}) for at in range(2)))
    assert (found.state, found.numbers.left_out) == ("identical", (name,))


def test_another_order_of_the_data_differs_in_data_first(tmp_path):
    one, two = (seeded_runs.lay_run(tmp_path, blend_seed=seed) for seed in (7, 8))
    found = compare_runs(one, two)
    assert (found.state, found.first_step, found.data.kind) == ("data", 1, "tokens")
    assert [each.path for each in found.config] == ["recipe.blend", "blend.seed"]
    assert difference_sentence(found) == (
        "The data differ from step 1. The records differ in config (recipe.blend, blend.seed 7 → 8)."
    )


def test_code_environment_and_layout_are_of_the_attempt_that_did_the_differing_step(write):
    one = write("a").lay(12).end().run
    two = write("b").lay(5).save()
    two.die()
    environment = {"digest": "sha256:" + "e" * 64, "packages": {"torch": "2.9"}, "variables": {}, "devices": []}
    two.start(two.run.checkpoints()[0], environment=environment).lay(7, loss=lambda _: 9.0).end()
    assert compare_runs(one, two.run).environment.same_digest is False
    assert compare_runs(one, two.run, range(1, 6)).environment.same_digest is True


def test_a_ring_that_was_changed_is_a_doubt_and_no_answer(write):
    one, two = (write(name).lay(6).end().run for name in "ab")
    file = two.attempts()[0].rings_file
    file.write_text(file.read_text().replace('"loss":3.997', '"loss":3.9971'))
    found = compare_runs(one, two)
    assert (found.state, found.numbers, found.data) == ("unknown", None, None)
    assert "rings.jsonl" in found.doubts[0].text
    assert found.config == ()


def test_a_run_without_an_attempt_is_a_doubt(write, tmp_path):
    one = write("a").lay(6).end().run
    empty = run_writer.Writer(Project(tmp_path / "b")).run
    found = compare_runs(one, empty)
    assert found.state == "unknown"
    assert any("found no attempt with a header" in doubt.text for doubt in found.doubts)


def test_recorded_runs_are_compared_by_what_they_reported(tmp_path):
    one = record(tmp_path / "a", loss=lambda step: 1 / step)
    two = record(tmp_path / "b", loss=lambda step: 1 / step if step < 4 else 0.2)
    found = compare_runs(one, two)
    assert (found.state, found.first_step, found.same_data) == ("numbers", 4, True)
    three = record(tmp_path / "c", loss=lambda step: 1 / step, tokens=lambda step: [[step, 1, 2 + step // 5]])
    found = compare_runs(one, three)
    assert (found.state, found.first_step, found.data.compared_steps) == ("data", 5, 6)
    assert difference_sentence(found) == "The data differ from step 5. The records name no other difference."


def test_records_that_do_not_say_what_differs_are_no_proof_that_nothing_does(write):
    found = compare_runs(write("a").lay(6).end().run, write("b").lay(6, loss=lambda _: 9.0).end().run)
    for code, end in (
        (CodeComparison(same=True, changes=(), doubts=()), "The records name no other difference."),
        (CodeComparison(same=None, changes=(), doubts=()), "The records name no other difference. Not known: code."),
        (CodeComparison(same=False, changes=(), doubts=()), "The records differ in code (its digest)."),
    ):
        assert difference_sentence(replace(found, code=code)).endswith(end)
    less = replace(found, code=None, config=None, environment=None)
    assert difference_sentence(less).endswith("no other difference. Not known: config, code, environment.")


def test_clocks_of_another_trainer_do_not_count_and_unknown_metrics_are_a_doubt(tmp_path):
    def values(shift):
        return {"loss": lambda step: 1 / step, "step_seconds": lambda step: step + shift, "odd": lambda _: shift}

    found = compare_runs(*(record(tmp_path / name, **values(at)) for at, name in enumerate("ab")))
    assert (found.state, found.numbers.left_out) == ("identical", ("step_seconds",))
    (doubt,) = beside_code(found)
    assert "odd from step 1" in doubt.text


def test_a_metric_that_differs_and_does_not_count_is_named_in_the_sentence(tmp_path):
    found = compare_runs(
        *(record(tmp_path / name, loss=float, odd=lambda _, at=at: at) for at, name in enumerate("ab"))
    )
    assert difference_sentence(found) == (
        "Identical to the last bit over 6 steps: the same data, and every recorded number, but for metrics that "
        "differ and that the catalog does not know (odd)."
    )


def test_held_out_losses_that_only_one_run_has_are_named(write):
    one = write("a").lay(20).end().run
    none = write("b").lay(20, validation=lambda _: None).end().run
    early = write("c").lay(12).lay(8, validation=lambda _: None).end().run
    heldout = {"validation/loss": 2, "validation/loss/books": 2, "validation/loss/code": 2}
    for other, counts in ((none, heldout), (early, dict.fromkeys(heldout, 1))):
        for pair in ((one, other), (other, one)):
            found = compare_runs(*pair)
            assert (found.state, found.numbers.one_sided) == ("identical", counts)
            assert difference_sentence(found).endswith(
                ", but for metrics that only one run measured (validation/loss, validation/loss/books, "
                "validation/loss/code)."
            )
            (doubt,) = found.doubts
            count = counts["validation/loss"]
            assert (doubt.level, doubt.text[:26]) == ("limited", f"validation/loss of {count} steps")
    assert compare_runs(one, none, range(1, 10)).doubts == ()
    assert compare_runs(one, write("d").lay(9).end().run).doubts == ()


def test_weights_of_an_earlier_step_leave_the_last_update_uncompared(write):
    found = compare_runs(*(write(name).lay(12).end().run for name in "ab"))
    for step, end in ((12, "The weights after step 12 are equal."), (10, "step, 12, were not compared.")):
        weights = WeightsComparison((StepWeights(step, 28, ()),), ())
        assert difference_sentence(replace(found, weights=weights)).endswith(end)


def test_data_that_only_some_steps_record_are_the_same_in_these(tmp_path):
    def tokens(step):
        return [[step, 1, 2]] if step <= 2 else None

    one, two = (record(tmp_path / name, loss=lambda step: 1 / step, tokens=tokens) for name in "ab")
    found = compare_runs(one, two)
    assert difference_sentence(found) == (
        "Identical to the last bit over 6 steps: the same data in the 2 steps that record them, and every recorded "
        "number."
    )
    (doubt,) = beside_code(found)
    assert doubt.text == "the data of 2 of 6 steps: not both runs recorded the rest"


def test_without_a_loss_every_metric_counts(tmp_path):
    found = compare_runs(*(record(tmp_path / name, odd=lambda _, at=at: at) for at, name in enumerate("ab")))
    assert (found.state, found.first_step, beside_code(found)) == ("numbers", 1, [])


def test_data_that_nobody_recorded_are_a_doubt(tmp_path):
    runs = [record(tmp_path / name, loss=lambda step: 1 / step, tokens=lambda _: None) for name in "ab"]
    found = compare_runs(*runs)
    assert (found.state, found.same_data) == ("identical", None)
    assert difference_sentence(found) == (
        "Every recorded number is equal to the last bit over 6 steps; what was read is not known."
    )
    assert [doubt.level for doubt in beside_code(found)] == ["missing"]


def test_a_run_of_the_trainer_and_a_recorded_one_are_compared_by_the_catalog(write, tmp_path):
    own = write("a").lay(6).end().run
    other = record(tmp_path / "b", loss=lambda step: 4.0 - 0.001 * step, tokens=lambda _: None)
    found = compare_runs(own, other)
    assert (found.state, found.numbers.compared, found.config) == ("identical", ("train/loss",), None)
    assert any("two trainers" in doubt.text for doubt in found.doubts)


def test_the_answer_is_json(write):
    one, two = (write(name).lay(6).end().run for name in "ab")
    found = compare_runs(one, two)
    assert isinstance(found, RunDifference)
    answer = found.to_json()
    assert (answer["state"], answer["numbers"]["compared_steps"], answer["doubts"]) == ("identical", 6, ())
