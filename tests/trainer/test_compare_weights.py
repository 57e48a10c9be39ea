"""The weights of checkpoints compared tensor by tensor, by the trainer in a process of its own."""

import json
import shutil
import zipfile
from dataclasses import replace

import pytest
import torch

from treering.errors import EvidenceError
from treering.reproduce.difference import compare_runs, complete
from treering.reproduce.sentence import difference_sentence
from treering.reproduce.weights import StepWeights, WeightsComparison, compare_weights
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing import compare
from treering_trainer.checkpointing.weights import open_state

pytestmark = pytest.mark.slow


@pytest.fixture
def run(scored_run):
    return RunDirectory(scored_run)


@pytest.fixture
def copy(scored_run, tmp_path):
    """A copy of the trained run, in the folder of its id."""
    return RunDirectory(shutil.copytree(scored_run, tmp_path / "runs" / scored_run.name))


def layer_file(run, step):
    return next(run.checkpoint_folder(step).rglob("layer_02-model_00-model_states.pt"))


def patch(run, step, change):
    """Changes one weight of a checkpoint."""
    file = layer_file(run, step)
    state = {name: value.clone() for name, value in open_state(file).items() if isinstance(value, torch.Tensor)}
    change(state, next(name for name in state if name.endswith("linear_fc2.weight")))
    torch.save(state, file)


def next_bit(state, name):
    state[name][0, 0] = torch.nextafter(state[name][0, 0], torch.tensor(9.0))


def test_the_weights_of_a_copy_are_equal(run, copy, scored_project):
    found = complete(compare_runs(run, copy), run, copy, scored_project)
    assert found.state == "identical"
    assert [(each.step, each.differences) for each in found.weights.steps] == [(10, ())]
    assert found.weights.steps[0].weights > 20
    assert difference_sentence(found).endswith("The weights and the optimizer's state after step 10 are equal.")
    count, unequal = found.weights.steps[0].optimizer
    assert (count > 2, unequal, found.doubts) == (True, 0, ())


def test_weights_outside_the_steps_asked_for_do_not_count(run, copy, scored_project):
    patch(copy, 10, next_bit)
    for steps, state, compared in ((range(1, 8), "identical", [5]), (range(6, 11), "weights", [10])):
        found = complete(compare_runs(run, copy, steps), run, copy, scored_project, steps)
        assert (found.state, [each.step for each in found.weights.steps]) == (state, compared)
    found = compare_weights(run, copy, None, range(6, 9))
    assert (found.steps, found.doubts[0].text) == ((), "the weights: no step of these has a checkpoint in both runs")


def test_one_bit_of_one_weight_is_found_around_the_first_difference(run, copy):
    patch(copy, 10, next_bit)
    patch(copy, 5, lambda state, name: state.pop(name))
    found = compare_weights(run, copy, 7)
    assert [each.step for each in found.steps] == [5, 10]
    ((lost,), (difference,)) = (each.differences for each in found.steps)
    assert (lost["second"], lost["relative"]) == ("", None)
    assert (difference["elements"], difference["name"][-17:]) == (1, "linear_fc2.weight")
    assert 0 < difference["relative"] < 1e-6


def test_weights_that_differ_behind_equal_numbers_are_said(run, copy, capsys):
    patch(copy, 10, next_bit)
    assert compare.main([str(each.checkpoint_folder(10)) for each in (run, copy)]) == 0
    ((one,),) = (each["differences"] for each in json.loads(capsys.readouterr().out))
    found = compare_runs(run, copy)
    steps = (StepWeights(10, 28, (one,)),)
    found = replace(found, weights=WeightsComparison(steps, ()))
    assert found.state == "weights"
    assert "Of 28 weights after step 10, 1 differ." in difference_sentence(found)


def test_one_byte_of_the_optimizers_state_is_found_behind_equal_weights(run, copy, scored_project):
    patch_optimizer(copy, 10)
    found = complete(compare_runs(run, copy), run, copy, scored_project)
    assert (found.state, found.weights.steps[0].differences, found.weights.steps[0].optimizer[1]) == ("weights", (), 1)
    assert "The weights after step 10 are equal; of " in difference_sentence(found)
    assert "tensors of the optimizer's state, 1 differ." in difference_sentence(found)


def test_an_optimizers_state_in_other_parts_is_a_doubt(run, copy):
    first, *_ = optimizer_files(copy, 10)
    first.rename(first.with_name("zero_pp_rank_9_mp_rank_00_optim_states.pt"))
    found = compare_weights(run, copy, None)
    assert found.steps[0].optimizer is None
    assert found.doubts[0].text.startswith("the optimizer's state was not compared")


def optimizer_files(run, step):
    return sorted(run.checkpoint_folder(step).rglob("*optim_states.pt"))


def patch_optimizer(run, step):
    """Changes one byte of one tensor of the optimizer's state."""
    file = optimizer_files(run, step)[0]
    with zipfile.ZipFile(file) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    name = max((name for name in entries if "/data/" in name), key=lambda name: len(entries[name]))
    entries[name] = bytes([entries[name][0] ^ 1]) + entries[name][1:]
    with zipfile.ZipFile(file, "w") as archive:
        for each, content in entries.items():
            archive.writestr(each, content)


def test_a_folder_without_weights_is_refused(run, copy, capsys):
    shutil.rmtree(layer_file(copy, 10).parent)
    code = compare.main([str(each.checkpoint_folder(10)) for each in (run, copy)])
    assert code == EvidenceError.exit_code
    assert "no layer files, expected layer_NN" in capsys.readouterr().err


def test_runs_without_a_common_checkpoint_are_a_doubt(run, copy):
    shutil.rmtree(copy.checkpoints_folder)
    found = compare_weights(run, copy, None)
    assert (found.steps, found.doubts[0].level) == ((), "missing")
    assert "no step has a checkpoint in both runs" in found.doubts[0].text
