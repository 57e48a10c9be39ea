"""What lists and pages say of a long path, read through columns, is what they say of the same path ring by ring."""

import json
import math
import random
import shutil

import pytest
import run_records
from audited_project import lay_attempt, lay_project
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_project import unpack

from treering.audit.inventory import verify_paths
from treering.metrics import path_summary, stored_alarms
from treering.metrics.lines.read import run_line
from treering.metrics.path_alarms import judge_of
from treering.metrics.run_summary import run_page
from treering.metrics.spikes import RingAlarms, SpikeRule
from treering.metrics.stored_alarms import judge_state, set_judge_state
from treering.project import Project
from treering.runlog.ancestry import path_left, segments_left
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.extract import extract_run
from treering.runlog.find import find_runs
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    root = tmp_path_factory.mktemp("projects")
    lay_project(root / "two attempts")
    return {"two attempts": root / "two attempts", "journals": unpack("journals", root)}


@pytest.fixture(params=["two attempts", "journals"])
def run(projects, tmp_path, request):
    shutil.copytree(projects[request.param], tmp_path / "project")
    return find_runs(tmp_path / "project" / "runs")[-1]


@pytest.fixture
def two_attempts(projects, tmp_path):
    shutil.copytree(projects["two attempts"], tmp_path / "project")
    return find_runs(tmp_path / "project" / "runs")[-1]


@pytest.fixture
def by_columns(monkeypatch):
    """What a function returns where every path counts as long, without the age of a run."""

    def call(function, run, limit=0):
        monkeypatch.setattr(path_summary, "LONG_BYTES", limit)
        found = function(RunDirectory(run.path))
        found = found if isinstance(found, dict) else found.to_json()
        for age in ("age_s", "checkpoint_age_s"):
            found.get("run", found).pop(age)
        return json.loads(json.dumps(found))

    return call


def both(by_columns, function, run):
    return by_columns(function, run), by_columns(function, run, 1 << 60)


@pytest.mark.parametrize("function", [run_line, run_page])
def test_a_long_path_is_summed_up_as_a_short_one(run, by_columns, function):
    for _ in range(2):
        columns, rings = both(by_columns, function, run)
        assert columns == rings
    attempts = [segment.attempt for segment in run.path_to()]
    assert all((attempt.path / "columns" / "head.json").exists() for attempt in attempts)
    assert (attempts[-1].path / "columns" / "alarms.json").exists()


def edited(path, at, old, new):
    lines = path.read_text().splitlines(keepends=True)
    lines[at] = lines[at].replace(old, new)
    path.write_text("".join(lines))


@pytest.mark.parametrize("before", [False, True], ids=["fresh", "with columns"])
@pytest.mark.parametrize("damage", ["ring", "tail", "header", "missing"])
def test_a_damaged_run_is_damaged_with_the_same_words(two_attempts, by_columns, damage, before):
    run = two_attempts
    if before:
        by_columns(run_line, run)
    first, second = run.attempts()
    if damage == "ring":
        edited(first.rings_file, 3, '"applied":true', '"applied":false')
    elif damage == "tail":
        lines = first.rings_file.read_text().splitlines(keepends=True)
        first.rings_file.write_text("".join(lines[:4]))
    elif damage == "header":
        second.header_file.write_text(second.header_file.read_text().replace("node", "other"))
    else:
        first.rings_file.unlink()
    columns, rings = both(by_columns, run_line, run)
    assert columns["state"] == "damaged"
    assert columns == rings


@pytest.mark.parametrize(("ring", "first"), [("another", 7), ("the same", 8)])
def test_an_attempt_that_does_not_follow_is_damaged_with_the_same_words(two_attempts, by_columns, ring, first):
    run = two_attempts
    parent = run_records.parent(run.checkpoints()[0])
    if ring == "another":
        parent = parent.model_copy(update={"ring": run.attempts()[0].ring_log.first().digest})
    shutil.rmtree(run.attempts()[1].path)
    lay_attempt(Project(run.path.parents[1]), run, 2, range(first, first + 4), parent)
    columns, rings = both(by_columns, run_line, run)
    assert columns["state"] == "damaged"
    assert columns == rings


def test_a_damage_off_the_path_is_no_concern_of_the_path(two_attempts, by_columns):
    edited(two_attempts.attempts()[0].rings_file, 7, '"applied":true', '"applied":false')
    columns, rings = both(by_columns, run_line, two_attempts)
    assert columns["problem"] == ""
    assert columns == rings


def test_series_follow_the_path_and_leave_the_abandoned_steps_apart(two_attempts):
    segments, _ = segments_left(two_attempts)
    path = PathColumns.of_run(segments)
    rings = list(two_attempts.path_rings())
    found = path.history("train/loss")
    assert found.steps.tolist() == [ring.step for ring in rings]
    assert found.values.tolist() == [ring.loss for ring in rings]
    assert path.histories(["train/loss"], after=8)["train/loss"].steps.tolist() == [r.step for r in rings if r.step > 8]
    chart = path.chart("train/loss", 3)
    assert len(chart) == 3
    assert chart.count.sum() == len(rings)
    assert (chart.minimum.min(), chart.maximum.max()) == (min(r.loss for r in rings), max(r.loss for r in rings))
    assert [path.digest(ring.step) for ring in rings] == [ring.digest for ring in rings]
    assert path.newest(9) == rings[-9:]
    assert path.newest(1000) == rings
    abandoned = AttemptColumns(two_attempts.attempts()[0]).history("train/loss")
    assert abandoned.steps.tolist() == list(range(1, 10))


def test_columns_are_no_part_of_what_is_verified_or_published(two_attempts, by_columns, tmp_path):
    run, project = two_attempts, Project(tmp_path / "project")
    before = verify_paths(project)
    by_columns(run_line, run)
    assert (run.attempts()[0].path / "columns").is_dir()
    after = verify_paths(project)
    assert (after.checked, after.findings, after.notes) == (before.checked, before.findings, before.notes)
    extract_run(run, run.checkpoints()[-1], tmp_path / "published")
    files = sorted(tmp_path.joinpath("published").rglob("*"))
    line = by_columns(run_line, RunDirectory(tmp_path / "published"))
    assert line["step"] == run.checkpoints()[-1].step
    assert sorted(tmp_path.joinpath("published").rglob("*")) == files
    assert not [path for path in files if path.name == "columns"]


def grown(run, steps, spikes):
    """A third attempt, from the root, with made-up losses; returns the writer."""
    folder = run.path / "attempts" / "0003"
    folder.mkdir()
    digest = run_records.header(run.resolved, 3).write(folder / "header.json")
    with RingWriter(folder / "rings.jsonl", Ring, digest) as writer:
        for step in range(1, steps + 1):
            loss = 9.0 if step in spikes else 2 + math.sin(step) / 100
            yield writer.append(**run_records.ring_values(step, (step, step + 1), 16, loss=loss))


def test_alarms_are_judged_on_from_where_they_were_left(two_attempts, by_columns, monkeypatch):
    run, judged, seen = two_attempts, stored_alarms.judged, []

    def count(judge, segments, rings):
        rows = list(rings)
        seen.append((rows[0].step, rows[-1].step))
        return judged(judge, segments, rows)

    monkeypatch.setattr(stored_alarms, "judged", count)
    for ring in grown(run, 300, {100, 180, 290}):
        if ring.step in {150, 151, 300}:
            for _ in range(2):
                assert by_columns(run_page, run)["spikes"] == by_columns(run_page, run, 1 << 60)["spikes"]
    assert seen == [(1, 150), (151, 151), (152, 300)]
    assert [alarm["step"] for alarm in by_columns(run_page, run)["spikes"] if alarm["rule"] == "spike"] == [
        100,
        180,
        290,
    ]


@pytest.mark.parametrize("change", ["damaged", "missing", "other state", "other ring", "other rules"])
def test_kept_alarms_that_do_not_fit_are_judged_again(two_attempts, by_columns, monkeypatch, change):
    run = two_attempts
    list(grown(run, 200, {100}))
    expected = by_columns(run_page, run)["spikes"]
    assert expected
    file = run.path / "attempts/0003/columns/alarms.json"
    text = file.read_text().partition("\n")[2]
    if change == "damaged":
        file.write_text(file.read_text().replace('"step": 100', '"step": 101'))
    elif change == "missing":
        file.unlink()
    elif change == "other rules":
        monkeypatch.setattr(stored_alarms, "_code", lambda: "another")
    else:
        kept = json.loads(text)
        kept |= {"state": {}} if change == "other state" else {"ring": "sha256:0", "alarms": []}
        text = json.dumps(kept)
        file.write_text(f"{stored_alarms.digest_bytes(text.encode())}\n{text}")
    assert by_columns(run_page, run)["spikes"] == expected
    assert expected == json.loads(json.dumps([a.to_dict() for a in judge_all(run)]))


def judge_all(run):
    judge = judge_of(run)
    return [alarm for ring in path_left(run).rings for alarm in judge.update(ring)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 400))
def test_a_judge_goes_on_from_its_state_as_if_it_had_never_stopped(seed, cut):
    chance = random.Random(seed)
    level = 6.0
    rows = []
    for step in range(1, 401):
        level *= chance.choice((0.98, 1.0, 1.0, 1.02, 1.0 if chance.random() > 0.01 else 0.3))
        loss = chance.choice((level, level, level * chance.uniform(0.9, 1.1), level * 5 if step % 97 == 0 else level))
        loss = chance.choice((math.nan, math.inf, 0.0)) if chance.random() < 0.01 else loss
        rows.append(stored_alarms._Row(step, chance.random() > 0.1, loss, chance.lognormvariate(0, 2), 1e-3))
    whole, first, second = (RingAlarms(SpikeRule(window=64), math.log(320)) for _ in range(3))
    expected = [str(alarm) for row in rows for alarm in whole.update(row)]
    found = [str(alarm) for row in rows[:cut] for alarm in first.update(row)]
    set_judge_state(second, json.loads(json.dumps(judge_state(first))))
    assert found + [str(alarm) for row in rows[cut:] for alarm in second.update(row)] == expected
    assert json.dumps(judge_state(second)) == json.dumps(judge_state(whole))
