"""What a plan says of code, environment, data and devices, with the message of each thing that cannot be had."""

import json
import os
import platform
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import recorded_project
import versioned_project

from treering.collect.code import code_record, collect_code, run_git
from treering.config.canonical import digest_json
from treering.errors import EvidenceError, NotFoundError, RunLockedError, UserError
from treering.project import Project
from treering.reproduce import environment, make, places, plan, sources
from treering.runlog.copied import look
from treering.runlog.find import find_runs
from treering.runlog.lock import acquire

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return recorded_project.unpack("journals", tmp_path_factory.mktemp("journals"))


@pytest.fixture
def project(template, tmp_path):
    return Project(shutil.copytree(template, tmp_path / "project"))


@pytest.fixture
def run(project):
    return find_runs(project.runs)[0]


def planned(run, project, steps=None, from_checkpoint=None, *, recorded_python=False):
    return plan.plan_own_run(run, project, steps, from_checkpoint, recorded_python=recorded_python)


def items(found, part):
    return {each.name: each for each in found.items if each.part == part}


def test_a_commit_that_no_repository_has(run, project):
    found, stretches, base = planned(run, project)
    code = items(found, "code")[next(iter(items(found, "code")))]
    assert code.name.startswith("code of attempt 1 (")
    assert code.state == "cannot"
    assert "is in no repository here" in code.reason
    assert code.remedy.startswith("`git fetch` in the clone")
    assert code.comparable.startswith("the data order and the digests of the batches")
    assert not code.stops
    assert base is None
    assert (found.first_step, found.last_step) == (1, stretches[-1].last)
    assert (stretches[0].first, stretches[0].sources.repository) == (1, None)


def test_a_corpus_that_changed_and_one_that_is_under_another_name(run, project):
    assert items(planned(run, project)[0], "data")["corpora"].reason == (
        "letters, numbers: data/corpora/train has the recorded digests"
    )
    shutil.move(project.corpus("letters"), project.corpus("moved"))
    shutil.rmtree(project.corpus("numbers"))
    found = items(planned(run, project)[0], "data")
    assert found["corpus letters"].state == "same"
    assert str(project.corpus("moved")) in found["corpus letters"].reason
    assert (found["corpus numbers"].state, found["corpus numbers"].stops) == ("cannot", True)
    assert "is not at hand" in found["corpus numbers"].reason
    assert found["corpus numbers"].remedy.startswith("`treering find sha256:")


def test_another_package_and_another_device(run):
    header = run.attempts()[0].header
    packages = {"packages": {**header.environment["packages"], "torch": "2.12.9"}}
    numeric = {"numeric_packages": {**header.environment["numeric_packages"], "torch": "2.12.9"}}
    devices = {"devices": [{"kind": "cuda", "name": "A100", "driver": "535"}], "device_kinds": ["A100"]}
    recorded = {**header.environment, **packages, **numeric, **devices}
    found = {each.name: each for each in environment.environment_items(recorded, "")}
    assert (found["package torch"].state, found["package torch"].remedy) == ("cannot", "--environment")
    assert found["package torch"].reason.startswith("recorded 2.12.9, here ")
    assert found["device A100"].state == found["driver"].state == "cannot"
    rebuilt = {each.name: each for each in environment.environment_items(recorded, "", recorded_python=True)}
    assert (rebuilt["package torch"].state, rebuilt["device A100"].state) == ("rebuilt", "cannot")
    header = header.model_copy(update={"layout": header.layout.model_copy(update={"device": "cuda"})})
    (needed,) = places.device_items(header, "")
    assert (needed.state, needed.stops) == ("cannot", False)
    assert "this machine has none: the ranks run on its processors" in needed.reason
    assert {each.state for each in places.kernel_items(header, "")} == {"cannot"}


def test_steps_and_checkpoints_that_the_run_does_not_have(run, project):
    last = planned(run, project)[0].last_step
    steps = [each.step for each in run.checkpoints()]
    with pytest.raises(UserError, match=rf"--steps: found 3:{last + 1}, expected steps of run {run.id}: 1 to {last}"):
        planned(run, project, range(3, last + 2))
    with pytest.raises(NotFoundError, match=r"--from-checkpoint: found 3, expected the step of one on the path of run"):
        planned(run, project, None, 3)
    found, _, base = planned(run, project, range(last, last + 1))
    assert (base.step, found.from_step, found.first_step) == (steps[-2], steps[-2], steps[-2] + 1)
    for file in base.manifest.files:
        (base.path / file.path).unlink()
    before = planned(run, project, range(last, last + 1))[2]
    assert before is None or before.step < base.step


def test_a_running_run_is_refused(run):
    lock = acquire(run.lock)
    with pytest.raises(RunLockedError, match=r"the run is running, expected a run that ended"):
        plan.check_can_begin(run)
    del lock


def test_the_rest_of_a_reproduction_is_not_copied_to_a_store(run):
    folder = run.path / "reproductions" / "0001"
    (folder / "runs" / run.id).mkdir(parents=True)
    for name in ("reproduction.json", "project.json", f"runs/{run.id}/resolved.json"):
        (folder / name).write_text("{}")
    names = [each.name for each in look(run.path) if each.name.startswith("reproductions")]
    assert names == ["reproductions/0001/reproduction.json"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The sources in a repository of their own, with a change that is not committed."""
    root = tmp_path_factory.mktemp("clone") / "clone"
    for path in ("trainer", "platform"):
        shutil.copytree(ROOT / path, root / path, ignore=shutil.ignore_patterns("__pycache__"))
    versioned_project.git(root, "init", "-q")
    versioned_project.git(root, "add", "-A")
    versioned_project.git(root, "commit", "-qm", "sources")
    changed = root / "platform/treering/config/schedule.py"
    changed.write_text(changed.read_text() + "\n\nCHANGED = 1\n")
    return root


@pytest.mark.slow
def test_code_is_rebuilt_from_commit_and_diff(clone, tmp_path):
    code = collect_code(clone)
    found = sources.find_sources(code, [tmp_path, clone])
    assert (found.same, found.repository) == (True, clone)
    assert found.reason.startswith("the code that is here differs (platform/treering/config/schedule.py); commit ")
    target = tmp_path / "source"
    sources.check_out_verified(found, target)
    assert code_record(target)["digest"] == code["digest"] != sources.present_code()["digest"]
    sources.remove(clone, target)
    assert not target.exists()
    listed = subprocess.run(["git", "worktree", "list"], cwd=clone, capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == 1


@pytest.mark.slow
def test_code_that_comes_out_otherwise_is_refused(clone, tmp_path):
    code = collect_code(clone)
    other = {**code, "digest": digest_json("other"), "sources": {**code["sources"], "trainer/gone.py": "sha256:0"}}
    with pytest.raises(EvidenceError, match=r"gives other code than the record \(trainer/gone\.py\)"):
        sources.check_out_verified(sources.find_sources(other, [clone]), tmp_path / "source")
    with pytest.raises(EvidenceError, match=r"git apply failed"):
        sources.check_out(clone, code["commit"], code["diff"].replace("@@", "@", 1), tmp_path / "s")
    assert not (tmp_path / "s").exists()
    torn = sources.find_sources({**code, "diff": code["diff"][:-20]}, [clone])
    assert (torn.same, "does not have its digest" in torn.reason) == (False, True)
    installed = sources.find_sources({**code, "commit": None, "digest": digest_json("x")}, [clone])
    assert "names no commit: an installed version trained" in installed.reason


def wheel(folder, name, version):
    """A wheel without code."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_an_environment_is_made_from_the_recorded_versions(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    wheel(tmp_path / "wheels", "torch", "1.2.3")
    wheel(tmp_path / "wheels", "beside", "0.1")
    wheel(tmp_path / "wheels", "beside", "0.2")
    recorded = {
        "python": {"implementation": "CPython", "version": platform.python_version()},
        "packages": {"torch": "1.2.3", "beside": "0.1", "treering": "9", "pip": "1"},
    }
    python = environment.make_environment(recorded, tmp_path / "made")
    code = "import torch, beside; print(torch.VERSION, beside.VERSION)"
    assert subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout == "1.2.3 0.1\n"
    made = python.stat().st_mtime_ns
    assert environment.make_environment(recorded, tmp_path / "made").stat().st_mtime_ns == made  # not made again
    recorded["packages"]["gone"] = "7"
    with pytest.raises(UserError, match=r"found no wheel of gone==7 for this machine.*PIP_FIND_LINKS=DIR"):
        environment.make_environment(recorded, tmp_path / "made")
    recorded["python"]["version"] = "3.7.1"
    with pytest.raises(UserError, match=r"found no Python 3\.7\.1 here, expected the recorded one: python3\.7 in PATH"):
        environment.make_environment(recorded, tmp_path / "made")


def test_a_dry_run_prints_the_plan_and_says_by_its_code_what_cannot_be_had(run, project, monkeypatch, treering):
    monkeypatch.chdir(project.root)
    code, out, _ = treering("reproduce", run.id, "--dry-run")
    assert code == 3
    assert max(map(len, out.splitlines())) <= 100
    assert "code        cannot   code of attempt 1 (" in out
    assert " Without it the data order and the digests of the batches; losses as far as" in " ".join(out.split())
    assert "when it was recorded, " in out
    assert not (run.path / "reproductions").exists()
    shutil.rmtree(project.corpora)
    code, out, _ = treering("reproduce", run.id, "--json")
    document = json.loads(out)
    stops = {each["name"]: each["stops"] for each in document["items"] if each["part"] == "data"}
    assert (code, [name for name in stops if stops[name]]) == (3, ["corpus letters", "corpus numbers"])
    assert [name for name in stops if not stops[name]] == ["held-out corpus letters", "held-out corpus numbers"]
    assert document["device_hours"] * 3600 >= document["seconds"] > 0


def test_a_held_out_corpus_whose_loss_would_not_be_measured_is_named(run, project):
    shutil.rmtree(project.corpus("numbers", "heldout"))
    missing = items(planned(run, project)[0], "data")["held-out corpus numbers"]
    assert (missing.state, missing.comparable, missing.stops) == ("cannot", "everything but its held-out losses", False)
    assert missing.reason == f"{project.corpus('numbers', 'heldout')} is missing"


def test_nothing_outside_a_reproduction_is_removed(run, project, tmp_path):
    """The folder of the new project was changed to lead to a folder of the user's."""
    victim = tmp_path / "home/train/letters"
    victim.mkdir(parents=True)
    (tmp_path / "view/data").mkdir(parents=True)
    (tmp_path / "view/data/corpora").symlink_to(tmp_path / "home")
    with (
        pytest.raises(EvidenceError, match="leads out of the reproduction's own folder, expected a place inside"),
        places.project_view(run, project, tmp_path / "view"),
    ):
        pass
    assert victim.is_dir()


def test_two_calls_at_once_begin_one_reproduction(run, project):
    found, _, _ = planned(run, project)
    digest = run.resolved.recipe.digest
    lock = acquire(run.path / "reproductions/lock")
    with pytest.raises(RunLockedError, match="reproductions: another process"):
        make.begin(run, digest, found, recorded_python=False, present_code=False)
    os.close(lock)
    folders = [make.begin(run, digest, found, recorded_python=False, present_code=False).number for _ in range(2)]
    assert folders == [1, 1]


def test_a_commit_is_named_by_its_whole_id():
    head = run_git(ROOT, "rev-parse", "HEAD").strip()
    assert [sources.has_commit(ROOT, each) for each in (head, "HEAD", head[:12], "--help", f"{head}\n")] == [
        True, False, False, False, False
    ]  # fmt: skip
