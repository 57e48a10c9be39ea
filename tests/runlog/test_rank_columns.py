"""The tokens of several ranks: added up where all of them reported, else said to be those of rank 0."""

import time

import numpy as np
import pytest

from treering.cli.commands import show as show_command
from treering.config.operation import ElectricityConfig
from treering.metrics.recorded_summary import ReportedTokens, path_tokens, recorded_page, reported_tokens
from treering.project import Project
from treering.record.start import start
from treering.runlog.columns import ranks as ranks_module
from treering.runlog.columns.path import PathColumns
from treering.runlog.garbage import find_garbage
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.telemetry.live import LiveWriter
from treering.ship.columns_target import ColumnsTarget


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def begin(world_size=3):
    return [start("ranks", rank=rank, world_size=world_size) for rank in range(world_size)]


def step(run, rank, number):
    """Rank 0 reports 1 token, rank 1 reports 10, rank 2 reports 100, as often as the step's number."""
    run.step(step=number, tokens=np.zeros((number, 10**rank), int))


def directory(run):
    return RecordedRunDirectory(run.path)


def token_series(run):
    ((columns, last_step),) = PathColumns.of_recorded(directory(run).path_to_end()).stretches
    steps, series = columns.series(["tokens"], 0, last_step)
    return steps.tolist(), series["tokens"].values.tolist()


def test_tokens_are_added_up_to_the_step_that_all_ranks_reported():
    ranks = begin()
    for rank, run in enumerate(ranks):
        for number in range(1, 5 - rank):  # rank 2 has reported steps 1 and 2 alone
            step(run, rank, number)
    assert reported_tokens(directory(ranks[0])) == ReportedTokens(111 * (1 + 2), all_ranks=True)
    steps, values = token_series(ranks[0])
    assert steps == [1, 2, 3, 4]
    assert values[:2] == [111, 222]
    assert np.isnan(values[2:]).all()
    for rank, number in ((1, 4), (2, 3), (2, 4)):
        step(ranks[rank], rank, number)
    assert path_tokens(directory(ranks[0])) == 111 * (1 + 2 + 3 + 4)
    for run in ranks[::-1]:
        run.finish()


def test_a_step_that_rank_0_did_not_report_counts_to_its_next_one():
    ranks = begin(2)
    for number in (1, 3):
        step(ranks[0], 0, number)
    for number in (1, 2, 3):
        step(ranks[1], 1, number)
    assert token_series(ranks[0]) == ([1, 3], [11.0, 3 + 20.0 + 30.0])
    assert path_tokens(directory(ranks[0])) == 4 + 60
    for run in ranks[::-1]:
        run.finish()


@pytest.mark.parametrize("fault", ["missing", "without tokens", "damaged", "behind", "many"])
def test_where_not_all_ranks_report_the_tokens_are_those_of_rank_0(fault, monkeypatch):
    ranks = begin(2)
    for number in (1, 2):
        step(ranks[0], 0, number)
        if fault == "without tokens":
            ranks[1].step(step=number, loss=1.0)
        elif fault != "missing" and not (fault == "behind" and number == 2):
            step(ranks[1], 1, number)
    for run in ranks[::-1]:
        run.finish()
    found = directory(ranks[0])
    if fault == "damaged":
        file = found.attempts()[0].rank_file(1)
        file.write_text(file.read_text().replace('"tokens":10', '"tokens":11', 1))
    if fault == "many":
        monkeypatch.setattr(ranks_module, "SUMMED_RANKS", 1)
    assert reported_tokens(found) == ReportedTokens(3, all_ranks=False)
    assert path_tokens(found) is None
    writer, before = LiveWriter(found.attempts()[0].path / "telemetry", 0), time.time() - 20
    for moment in (0, 10, 20):
        writer.append(before + moment, [0], [0], {"device/power": [500.0]})
    page = recorded_page(found, ElectricityConfig())
    assert page["run"]["consumed_tokens"] is None
    assert page["energy"]["kwh"] > 0
    assert page["energy"]["joules_per_token"] is None, "joules of all devices are not of the tokens of rank 0"


def test_show_says_whose_tokens_they_are(capsys):
    ranks = begin(2)
    for rank, run in enumerate(ranks):
        step(run, rank, 1)
    for run in ranks[::-1]:
        run.finish()
    found = directory(ranks[0])
    show_command.show(found.path.name)
    assert "tokens      11 of all 2 ranks\n" in capsys.readouterr().out
    found.attempts()[0].rank_file(1).unlink()
    show_command.show(found.path.name)
    assert "tokens      1 of rank 0 alone: not every one of 2 ranks" in capsys.readouterr().out


def test_the_columns_of_every_rank_are_rebuilt_compared_and_offered_to_gc():
    ranks = begin(2)
    for rank, run in enumerate(ranks):
        step(run, rank, 1)
    for run in ranks[::-1]:
        run.finish()
    found = directory(ranks[0])
    assert path_tokens(found) == 11
    folder = found.attempts()[0].path / "ranks/rank-00001/columns"
    (rows,) = folder.glob("rows-*.parquet")
    target = ColumnsTarget()
    assert target.difference(found) is None
    rows.write_bytes(b"other")
    assert str(folder) in target.difference(found).text
    target.rebuild(found)
    assert target.difference(found) is None
    offered = find_garbage(Project(found.path.parents[1]), None, ["columns"]).things
    assert [each.path for each in offered] == [found.attempts()[0].path / "columns", folder]
