"""A run that is made again from its record: identical to the last bit, and the original as it was."""

import json
import shutil
import signal

import pytest
import versioned_project

from treering.audit.inventory import verify_paths
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering.runlog.reproductions import reproductions_of

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


@pytest.fixture(scope="module")
def killed_twice(zygote, project, tmp_path_factory):
    """A run in a repository whose code is not the code that is here; killed after steps 6 and 10."""
    root = shutil.copytree(zygote.sources, tmp_path_factory.mktemp("clone") / "clone")
    versioned_project.git(root, "init", "-q")
    versioned_project.git(root, "add", "trainer", "platform")
    versioned_project.git(root, "commit", "-qm", "sources")
    changed = root / "platform/treering/config/schedule.py"
    changed.write_text(changed.read_text() + "\n\nCHANGED = 1\n")
    here = Project(shutil.copytree(project.root, root / "work"))
    for step in (6, 10):
        zygote.train(
            here, here.runs, "--no-publish", code_root=root, expect=-signal.SIGKILL, kill_after_ring={"step": step}
        )
    zygote.train(here, here.runs, "--no-publish", code_root=root)
    (run,) = find_runs(here.runs)
    assert [each.header.origin for each in run.attempts()] == ["start", "resume", "resume"]
    return here, run


@pytest.fixture(scope="module")
def plain(zygote, project, tmp_path_factory):
    """A run of the code that is here."""
    here = Project(shutil.copytree(project.root, tmp_path_factory.mktemp("plain") / "project"))
    zygote.train(here, here.runs, "--no-publish")
    return here, find_runs(here.runs)[0]


def content(run):
    """Every file of a run but for its reproductions, with its time."""
    files = [path for path in run.path.rglob("*") if path.is_file() and "reproductions" not in path.parts]
    return {path: path.stat().st_mtime_ns for path in files if path.name != "lock" and "columns" not in path.parts}


def test_a_run_that_was_killed_twice_is_identical_by_its_rebuilt_code(killed_twice, monkeypatch, treering):
    here, run = killed_twice
    monkeypatch.chdir(here.root)
    before = content(run)
    code, out, err = treering("reproduce", run.id)
    assert code == 0, out + err
    assert "Identical to the last bit over 15 steps: the same data, and every recorded number" in out
    assert "The weights and the optimizer's state after step 15 are equal." in " ".join(out.split())
    assert content(run) == before
    (folder,) = reproductions_of(run)
    again = RunDirectory(folder.runs / run.id)
    assert again.attempts()[0].header.code["digest"] == run.attempts()[0].header.code["digest"]
    assert again.attempts()[0].header.code["commit"] == run.attempts()[0].header.code["commit"]
    assert [each.name for each in folder.path.iterdir() if each.name.startswith("source")] == []
    record = folder.record
    assert (record.identical, record.first_step, record.last_step, record.from_step) == (True, 1, 15, 0)
    states = {each["part"]: each["state"] for each in record.plan["items"]}
    assert (states["code"], states["data"]) == ("rebuilt", "same")
    assert [each.path.parent for each in find_runs(here.runs)] == [here.runs]


@pytest.mark.usefixtures("trials")
def test_some_steps_from_the_checkpoint_before_them(plain, monkeypatch, treering):
    here, run = plain
    monkeypatch.chdir(here.root)
    code, out, err = treering("reproduce", run.id, "--steps", "14:14", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["first_step"], document["last_step"], document["from_step"]) == (13, 14, 12)
    assert document["comparison"]["numbers"]["compared_steps"] == 2
    assert document["sentence"].endswith("No weights were compared.")
    assert document["identical"]


def test_an_update_that_no_later_loss_shows_is_seen_in_the_weights(plain, trials, monkeypatch, treering):
    here, run = plain
    monkeypatch.chdir(here.root)
    trials.faults = {"secret_rate": {"step": 12}}
    code, out, err = treering("reproduce", run.id, "--steps", "12:12", "--json")
    document = json.loads(out)
    assert (code, document["identical"], document["comparison"]["numbers"]["first_step"]) == (6, False, None), err
    assert "Every recorded number of 4 steps is equal to the last bit. Of " in document["sentence"]
    assert "weights after step 12, " in document["sentence"]


def test_a_reproduction_that_was_killed_goes_on(plain, trials, monkeypatch, treering):
    here, run = plain
    monkeypatch.chdir(here.root)
    before = len(reproductions_of(run))
    trials.faults = {"kill_after_ring": {"step": 7}}
    code, _, err = treering("reproduce", run.id, "--from-checkpoint", "4")
    assert code == 5
    assert "could not be trained again" in err
    folder = reproductions_of(run)[-1]
    assert (folder.record.ended_at, folder.record.identical) == (None, None)
    assert (folder.path / "project").is_dir()
    assert verify_paths(here, [run.path]).findings == ()
    code, out, _ = treering("show", run.id)
    assert f"reproduced  not compared yet (steps 5 to 15); the same command goes on (reproduction {before + 1}" in out
    trials.faults = {}
    code, out, err = treering("reproduce", run.id, "--from-checkpoint", "4")
    assert code == 0, out + err
    assert len(reproductions_of(run)) == before + 1
    assert folder.record.identical
    assert "reproduced  Identical to the last bit over 11 steps" in treering("show", run.id)[1]


def test_other_numbers_of_the_code_that_is_here_are_traced_to_the_code(killed_twice, trials, monkeypatch, treering):
    """The code that is here trains one step at twice the rate; the recorded code, in a worktree, does not."""
    here, run = killed_twice
    monkeypatch.chdir(here.root)
    code, out, _ = treering("reproduce", run.id, "--present-code", "--dry-run")
    assert code == 0
    assert "code        other    code (" in out
    trials.faults = {"secret_rate": {"step": 9}}
    code, out, err = treering("reproduce", run.id, "--present-code", "--json", "--steps", "9:12")
    document = json.loads(out)
    assert code == 6, err
    assert (document["code"], document["from_step"], document["verdict"]["first_step"]) == ("present", 8, 10)
    (cause,) = document["verdict"]["causes"]["causes"]
    assert cause["text"] == "code: constant treering.config.schedule.CHANGED removed"
    assert "with the recorded code alone steps 5 to 12 are equal to the last bit" in document["sentence"]
    trials.started.clear()
    code, out, _ = treering("reproduce", run.id, "--present-code", "--json", "--steps", "9:12", "--no-causes")
    verdict = json.loads(out)["verdict"]
    assert (code, verdict["causes"]["trials"], verdict["causes"]["causes"]) == (6, 0, [])
    assert [each["outcome"] for each in verdict["causes"]["candidates"] if each["kind"] == "code"] == ["untested"]
    assert len(trials.started) == 1
