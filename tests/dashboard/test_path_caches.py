"""What is kept of a run that starts from another one is read again when that other run changes."""

import shutil

import pytest
from audited_project import lay_attempt, start_run
from run_records import parent

from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering_dashboard.frames import cached
from treering_dashboard.frames.reads import fed


@pytest.fixture
def chain(audited) -> list[RunDirectory]:
    """A run, and one that starts from its step 6."""
    first = find_runs(audited.runs)[0]
    start = (f"start_from.run='{first.id}'", "start_from.step=6", "start_from.schedule=continue")
    second = start_run(audited, "blend.components.0.weight='0.1'", "blend.components.2.weight='0.6'", *start)
    lay_attempt(audited, second, 1, range(7, 10), parent(first.checkpoints()[0]))
    return [first, second]


def read(run: RunDirectory) -> tuple[int, bool, bool, int]:
    """Steps on the path, whether something before them is missing by frames and line, and the steps that were fed."""
    frames, line = cached.frames(run), cached.summary(run)
    return frames.num_steps, bool(frames.missing), bool(line.missing), len(fed(run).steps)


def test_a_run_that_another_one_starts_from_may_go_and_come_back(chain, tmp_path) -> None:
    first, second = chain
    whole, own = (9, False, False, 9), (3, True, True, 3)
    assert read(second) == whole
    shutil.move(first.path, tmp_path / "away")
    assert read(second) == own
    shutil.move(tmp_path / "away", first.path)
    assert read(second) == whole


def test_the_files_of_other_runs_are_looked_at_where_a_run_starts_from_one_alone(chain) -> None:
    first, second = chain
    assert cached.version_along(first) == cached.version(first)
    along = cached.version_along(second)
    assert along[: len(cached.version(second))] == cached.version(second)
    assert {name.removeprefix(f"{first.path}/") for name, _size, _time in along[len(cached.version(second)) :]} == {
        name for name, _size, _time in cached.version(first)
    }
