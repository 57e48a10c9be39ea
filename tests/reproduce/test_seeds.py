"""A difference of results beside what seeds change: other configs, one config, unknown noise."""

import pytest
import seeded_runs

from treering.project import Project
from treering.reproduce.plan import Plan
from treering.reproduce.prepared import Prepared, Training, Wishes
from treering.reproduce.seeds import judge_by_seeds
from treering.runlog.directory import RunDirectory


def lay(root, seed, loss, **settings):
    run = seeded_runs.lay_run(root, seed, **settings)
    seeded_runs.evaluate(run, loss)
    return RunDirectory(run.path)


@pytest.fixture
def seeds(tmp_path):
    """Three seeds of one config with losses 3.00, 3.02 and 3.04."""
    return [lay(tmp_path, seed, 3 + 0.02 * (seed - 1)) for seed in (1, 2, 3)]


def test_a_change_beyond_the_noise_of_seeds(seeds, tmp_path):
    others = [lay(tmp_path, seed, 3.5 + 0.01 * seed, layers=4) for seed in (1, 2, 3)]
    found = judge_by_seeds(seeds[0], others[0], [*seeds, *others])
    assert (found.within, found.seeds, found.difference) == (False, (3, 3), pytest.approx(0.5))
    assert "higher beyond the noise of seeds" in found.text


def test_a_change_within_the_noise_of_seeds(seeds, tmp_path):
    others = [lay(tmp_path, seed, 3.01 + 0.02 * (seed - 1), layers=4) for seed in (1, 2, 3)]
    found = judge_by_seeds(seeds[0], others[0], [*seeds, *others])
    assert (found.within, found.seeds) == (True, (3, 3))


def test_one_seed_of_a_config_leaves_the_noise_unknown(seeds, tmp_path):
    other = lay(tmp_path, 1, 3.5, layers=4)
    found = judge_by_seeds(seeds[0], other, [*seeds, other])
    assert (found.within, found.seeds) == (None, (3, 1))
    assert "train more with `--set seed=N`" in found.text


@pytest.mark.parametrize(("loss", "within"), [(3.05, True), (4.0, False)])
def test_a_second_training_of_a_run_is_compared_with_its_other_seeds(seeds, tmp_path, loss, within):
    again = lay(tmp_path / "again", 1, loss)
    assert again.id == seeds[0].id
    found = judge_by_seeds(seeds[0], again, seeds)
    assert (found.within, found.seeds, found.difference) == (within, (3,), pytest.approx(loss - 3))
    assert "two of 3 seeds differ by up to 0.1217 (95 %)" in found.text  # 4.303 * sqrt(2) * 0.02


def test_without_other_seeds_the_noise_is_unknown(tmp_path):
    one, again = (lay(tmp_path / name, 1, loss) for name, loss in (("a", 3.0), ("b", 3.1)))
    found = judge_by_seeds(one, again, [])
    assert (found.within, found.difference) == (None, pytest.approx(0.1))
    assert "unknown with one seed" in found.text


def test_runs_that_differ_in_their_seeds_alone_differ_as_seeds_do(seeds):
    found = judge_by_seeds(seeds[0], seeds[1], seeds)
    assert (found.within, "differ in their seeds alone" in found.text) == (True, True)


def test_runs_without_a_held_out_loss_are_not_compared(tmp_path):
    one, again = (seeded_runs.lay_run(tmp_path / name) for name in "ab")
    found = judge_by_seeds(one, again, [])
    assert (found.step, found.within) == (None, None)
    assert "`treering evaluate` measures it" in found.text


def test_a_run_whose_records_do_not_hold_is_left_out(seeds, tmp_path):
    again = lay(tmp_path / "again", 1, 3.05)
    broken = lay(tmp_path, 4, 9.0)
    broken.config_file.write_text("{}")
    assert judge_by_seeds(seeds[0], again, [*seeds, RunDirectory(broken.path)]).seeds == (3,)


def test_a_reproduction_is_judged_by_the_seeds_of_the_project(seeds, tmp_path, monkeypatch):
    """Its own project has the corpora alone."""
    project, run = Project(tmp_path), seeds[0]
    project.corpus("books", "heldout").mkdir(parents=True)
    again = lay(tmp_path / "again", 1, 3.05, blend_seed=8)
    monkeypatch.setattr("treering.reproduce.prepared.make_again", lambda *_: again)
    plan = Plan(run.id, 1, seeded_runs.STEPS, 0, None, None, ())
    digest = run.resolved.recipe.digest
    made = Prepared(run, digest, project, plan, Wishes(trials=False), Training(run, (), None))
    _, record = made.perform()
    assert record.comparison["seeds"]["seeds"] == [4]
