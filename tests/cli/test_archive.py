"""`treering archive`: lists leave a run out, its rings are compressed, and everything still answers."""

import json

import pytest

import treering as api
from treering.runlog.recorded_directory import RecordedRunDirectory


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for rate in (0.1, 0.2):
        with api.start("demo", config={"lr": rate}) as run:
            for step in range(1, 5):
                run.step(loss=1 / step, tokens=[[step, 1], [step, 2]])
        found.append(RecordedRunDirectory(run.path))
    return found


def ids(treering, *words):
    code, out, _ = treering("runs", "--json", *words)
    assert code == 0
    return {each["id"]: each["archived"] for each in json.loads(out)}


def test_an_archived_run_is_left_out_until_it_is_listed_again(runs, treering):
    first, second = (run.id for run in runs)
    before = treering("show", first, "--full", "--json")[1]
    code, out, _ = treering("archive", first, "--json")
    answer = json.loads(out)
    assert (code, answer["archived"], answer["left"], len(answer["compressed"])) == (0, True, [], 1)
    assert answer["compressed"][0]["bytes"] < answer["compressed"][0]["bytes_before"]
    assert ids(treering) == {second: False}
    assert ids(treering, "--all") == {first: True, second: False}
    text = treering("runs")[1]
    assert "1 archived run not listed; `treering runs --all` lists all runs" in text
    assert first[:8] not in text

    after = json.loads(treering("show", first, "--full", "--json")[1])
    assert after["metrics"] == json.loads(before)["metrics"]
    assert json.loads(treering("audit", first, "--json")[1])["level"] == "recorded"
    assert treering("diff", first, second)[0] == 0

    assert treering("archive", first)[0] == 0  # again: nothing is left to do
    assert len([line for line in runs[0].journal.lines() if line.entry.kind == "archived"]) == 1
    assert treering("archive", first, "--undo")[0] == 0
    assert ids(treering) == {first: False, second: False}
    assert [line.entry.archived for line in runs[0].journal.lines() if line.entry.kind == "archived"] == [True, False]
    assert runs[0].attempts()[0].rings_file.name == "rings.jsonl.zst"


@pytest.mark.usefixtures("runs")
def test_a_running_run_is_refused(treering):
    run = api.start("demo", config={"lr": 0.3})
    run.step(loss=1.0)
    code, _, err = treering("archive", run.id)
    run.finish()
    assert (code, "the run is running; archive it after its end" in err) == (2, True)
    assert (run.path / "attempts/0001/rings.jsonl").exists()


@pytest.mark.usefixtures("runs")
def test_an_unknown_run_is_refused(treering):
    assert treering("archive", "ffff")[0] == 2
