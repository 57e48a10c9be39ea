"""A run that a plain loop recorded, made again by its recorded command."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import reporting_trainer
import versioned_project

from treering.errors import TrainingError, UserError
from treering.reproduce.command import command_items, plan_command, run_again, write_items
from treering.reproduce.working_copy import in_copy
from treering.runlog.find import find_recorded_runs
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.reproductions import ReproductionFolder, reproductions_of

pytestmark = pytest.mark.slow

SETTINGS = json.dumps({"steps": 12, "samples": 40, "every": 5})
LOOP = """
import sys, json
from pathlib import Path
import treering
run = treering.start("beside", config={})
offset = json.loads(Path("offset.json").read_text())
for step in range(run.last_step + 1, 7):
    run.step(loss=1 / step, tokens=[[step, step + (offset if step > 3 else 0), 3]])
    if step % 2 == 0:
        Path("weights.bin").write_bytes(bytes([step] * 8))
        run.checkpoint("weights.bin")
Path("large.bin").write_bytes(bytes([offset]) * (17 << 20))
run.finish()
"""


def trained(root: Path, *command):
    """Runs a command in a folder; the one run that it recorded."""
    subprocess.run([sys.executable, *command], cwd=root, check=True, capture_output=True)
    return find_recorded_runs(root / "runs")[-1]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A loop in a repository, changed since the commit when it ran, and changed again afterwards."""
    root = tmp_path_factory.mktemp("loop") / "loop"
    root.mkdir()
    script = root / "train.py"
    shutil.copy(reporting_trainer.__file__, script)
    (root / ".gitignore").write_text("runs/\nckpt/\n")
    versioned_project.git(root, "init", "-q")
    versioned_project.git(root, "add", "-A")
    versioned_project.git(root, "commit", "-qm", "loop")
    script.write_text(script.read_text().replace("50_000, 17", "50_000, 18"))
    run = trained(root, "train.py", SETTINGS)
    script.write_text(script.read_text().replace("50_000, 18", "50_000, 19"))
    return root, run


def test_the_recorded_code_runs_beside_the_original(repository, monkeypatch, treering):
    root, run = repository
    monkeypatch.chdir(root)
    written = {path: path.stat().st_mtime_ns for path in (root / "ckpt").rglob("*")}
    code, out, err = treering("reproduce", run.id)
    assert code == 0, out + err
    assert "Identical to the last bit over 12 steps: the same data, and every recorded number." in out
    assert {path: path.stat().st_mtime_ns for path in (root / "ckpt").rglob("*")} == written
    assert len(find_recorded_runs(root / "runs")) == 1
    (folder,) = reproductions_of(run)
    (again,) = find_recorded_runs(folder.runs)
    assert again.id == run.id
    assert not (folder.path / "work").exists()
    assert folder.record.plan["items"][1]["state"] == "rebuilt"


def test_a_command_that_reads_other_data_now(tmp_path, monkeypatch, treering):
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "offset.json").write_text("1")
    run = trained(tmp_path, "train.py")
    (tmp_path / "offset.json").write_text("2")
    monkeypatch.chdir(tmp_path)
    code, out, _ = treering("reproduce", run.id, "--json")
    document = json.loads(out)
    assert (code, document["identical"]) == (6, False)
    assert document["sentence"].startswith("The data differ from step 4")
    assert document["plan"]["items"][1]["reason"].startswith("no commit is recorded; the script has the recorded")
    assert (tmp_path / "weights.bin").read_bytes() == bytes([6] * 8)
    assert (tmp_path / "large.bin").read_bytes()[:1] == b"\1"


def test_a_command_that_stops_early_is_not_identical(tmp_path, monkeypatch, treering):
    (tmp_path / "train.py").write_text(LOOP.replace("run.last_step + 1, 7", "1, int(Path('steps').read_text()) + 1"))
    (tmp_path / "offset.json").write_text("1")
    (tmp_path / "steps").write_text("6")
    run = trained(tmp_path, "train.py")
    (tmp_path / "steps").write_text("3")
    monkeypatch.chdir(tmp_path)
    code, out, _ = treering("reproduce", run.id)
    assert code == 3
    assert (
        "Whether the runs are the same is not known: one of them ends before steps 4 to 6. Nothing differs in the 3 "
        "steps before."
    ) in " ".join(out.split())
    (tmp_path / "steps").write_text("6")
    code, out, _ = treering("reproduce", run.id)
    assert code == 0, out


def planned(root, run):
    _, command = plan_command(run, None, recorded_python=False, trusted=False)
    folder = ReproductionFolder(root / "again/0001")
    folder.path.mkdir(parents=True)
    return command, folder


def test_a_run_beside_its_script_is_left_out_of_the_copy(tmp_path):
    root = tmp_path / "loop"
    root.mkdir()
    (root / "train.py").write_text(LOOP)
    (root / "offset.json").write_text("1")
    run = trained(root, "train.py")
    beside = RecordedRunDirectory(run.path.rename(root / run.path.name))
    _, command = plan_command(beside, None, recorded_python=False, trusted=False)
    names = {each.name.parts[0] for each in command.copy.parts()}
    assert "train.py" in names
    assert run.path.name not in names


def test_files_that_changed_after_an_interrupted_call_are_copied_anew(tmp_path):
    """The first call runs a changed loop, which fails at step 3; the user restores it, as the plan says."""
    root = tmp_path / "loop"
    root.mkdir()
    (root / "train.py").write_text(LOOP)
    (root / "offset.json").write_text("1")
    command, folder = planned(tmp_path, trained(root, "train.py"))
    (root / "train.py").write_text(LOOP.replace("1 / step", "1 / (3 - step)"))
    with pytest.raises(TrainingError, match="the recorded command ended with exit code 1"):
        run_again(command, folder, recorded_python=False)
    assert (folder.path / "work/train.py").exists()
    (root / "train.py").write_text(LOOP)
    again = run_again(command, folder, recorded_python=False)
    assert [ring.metrics["loss"] for ring in again.attempts()[-1].rings()] == [1 / step for step in range(1, 7)]
    assert len(again.attempts()) == 1


def test_an_interrupted_call_goes_on_in_its_copy(tmp_path):
    root = tmp_path / "loop"
    root.mkdir()
    indent = "\n        "
    failing = f"if step == 5 and not Path('stopped').exists():{indent}Path('stopped').touch(){indent}sys.exit(1)\n    "
    (root / "train.py").write_text(LOOP.replace("run.step(", f"{failing}run.step("))
    (root / "offset.json").write_text("1")
    (root / "stopped").touch()
    command, folder = planned(tmp_path, trained(root, "train.py"))
    (root / "stopped").unlink()
    with pytest.raises(TrainingError, match="the recorded command ended with exit code 1"):
        run_again(command, folder, recorded_python=False)
    again = run_again(command, folder, recorded_python=False)
    assert [each.end() for each in again.path_to_end()] == [4, 6]


def test_a_stop_while_the_copy_is_removed(tmp_path, monkeypatch):
    """A loop that never calls `finish` runs again, in a new copy."""
    root = tmp_path / "loop"
    root.mkdir()
    (root / "train.py").write_text(LOOP.replace("run.finish()", ""))
    (root / "offset.json").write_text("1")
    command, folder = planned(tmp_path, trained(root, "train.py"))

    def stopped(_root, work):
        (work / "train.py").unlink()
        raise KeyboardInterrupt("by the test")

    with monkeypatch.context() as stopping:
        stopping.setattr("treering.reproduce.command.remove", stopped)
        with pytest.raises(KeyboardInterrupt, match="by the test"):
            run_again(command, folder, recorded_python=False)
    assert run_again(command, folder, recorded_python=False).path_to_end()[-1].end() == 6
    assert not (folder.path / "work").exists()


@pytest.mark.parametrize(
    ("changes", "reason", "remedy"),
    [
        ({"command": ["python", "train.py", "--token=***"]}, "the command holds a password", "TREERING_RECORD_IN=DIR"),
        ({"world_size": 2}, "2 ranks were started by a launcher", "TREERING_RECORD_IN=DIR"),
        ({"folder": "/gone/from/here"}, "its working directory /gone/from/here is missing", "bring the folder back"),
        ({"host": "another-node"}, "it was recorded on another-node, not on this machine", "then give --trust"),
    ],
)
def test_commands_that_are_not_run(repository, changes, reason, remedy):
    _, run = repository
    _, command = plan_command(run, None, recorded_python=False, trusted=False)
    header = command.header.model_copy(update=changes)
    changed = replace(command, header=header, folder=Path(header.folder))
    (item,) = command_items(run, changed, trusted=False)
    assert (item.state, item.stops) == ("cannot", True)
    assert reason in item.reason
    assert remedy in item.remedy
    trusted = [each.state for each in command_items(run, changed, trusted=True)]
    assert trusted == ["same" if "host" in changes else "cannot"]


def test_a_command_that_names_a_place_outside_its_folder(repository, tmp_path):
    _, run = repository
    _, command = plan_command(run, None, recorded_python=False, trusted=False)
    changed = command.header.model_copy(update={"command": ["python", "train.py", f"--out={tmp_path}"]})
    (item,) = command_items(run, replace(command, header=changed), trusted=False)
    assert (item.state, item.stops) == ("cannot", True)
    assert f"it names {tmp_path}, outside {command.root}, changed since the run began" in item.reason
    later = replace(command, header=changed, since=time.time() + 60)
    assert [each.state for each in command_items(run, later, trusted=False)] == ["same"]
    (item,) = write_items(later)
    assert (item.name, item.state) == ("paths outside the copy", "unknown")
    assert item.reason.startswith(f"{tmp_path}: nothing in them changed")


def test_a_command_that_writes_again_does_not_reach_the_results_of_the_first(tmp_path, monkeypatch, treering):
    root = tmp_path / "loop"
    (root / "out").mkdir(parents=True)
    (root / "train.py").write_text(
        LOOP.replace('Path("large.bin")', 'Path(os.environ["PWD"], "out/large.bin")').replace("import sys", "import os")
    )
    (root / "offset.json").write_text("1")
    monkeypatch.setenv("PWD", str(root))
    run = trained(root, "train.py")
    (root / "offset.json").write_text("2")
    monkeypatch.chdir(root)
    code, _, err = treering("reproduce", run.id)
    assert code == 6, err
    assert (root / "out/large.bin").read_bytes()[:1] == b"\1"


def test_what_changed_since_the_process_began_may_be_its_own(repository):
    """The process reads and writes before it calls `treering.start`."""
    _, run = repository
    (attempt,) = run.attempts()
    _, command = plan_command(run, None, recorded_python=False, trusted=False)
    assert command.since == attempt.header.process_started_at
    assert 0 < attempt.header.started_at - command.since < 60


def test_an_older_record_does_not_say_when_its_process_began(tmp_path):
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop/train.py").write_text(LOOP)
    (tmp_path / "loop/offset.json").write_text("1")
    run = trained(tmp_path / "loop", "train.py", f"--out={tmp_path}")
    (attempt,) = run.attempts()
    older = attempt.header.model_copy(update={"process_started_at": None})
    assert "process_started_at" not in older.model_dump()
    attempt.header_file.unlink()
    older.write(attempt.header_file)
    plan, command = plan_command(RecordedRunDirectory(run.path), None, recorded_python=False, trusted=False)
    assert command.since is None
    assert plan.items[0].state == "cannot"
    assert plan.items[0].reason.startswith(f"it names {tmp_path}, outside {tmp_path}/loop; this older record does not")


def test_folders_that_are_linked_are_named(repository):
    root, run = repository
    (root / "data").mkdir(exist_ok=True)
    (root / "data/tokens").write_text("1")
    _, command = plan_command(run, None, recorded_python=False, trusted=False)
    (item,) = write_items(replace(command, since=time.time() + 60))
    assert (item.name, item.state) == ("linked folders", "unknown")
    assert item.reason.startswith("data, links to the original's: nothing in them changed since the run began")


def test_only_the_folder_itself_is_named_anew():
    root, work = Path("/home/a/proj"), Path("/copy")
    words = ("/home/a/proj", "--data=/home/a/proj/x:/home/a/proj", "/home/a/proj-data/x", "/mnt/home/a/proj", "proj")
    assert [in_copy(word, root, work) for word in words] == [
        "/copy", "--data=/copy/x:/copy", "/home/a/proj-data/x", "/mnt/home/a/proj", "proj"
    ]  # fmt: skip


def test_steps_that_were_not_reported(repository):
    with pytest.raises(UserError, match=r"--steps: found 3:13, expected steps of run \w+, 1 to 12"):
        plan_command(repository[1], range(3, 14), recorded_python=False, trusted=False)


def test_the_files_as_they_are_now_and_no_checkpoint(repository, monkeypatch, treering):
    """The script reads other samples now: 19 tokens instead of 18."""
    root, run = repository
    monkeypatch.chdir(root)
    code, out, err = treering("reproduce", run.id, "--present-code", "--json")
    document = json.loads(out)
    assert (code, document["code"]) == (6, "present"), err
    assert document["sentence"].startswith("The data differ from step 1")
    code, _, err = treering("reproduce", run.id, "--from-checkpoint", "5")
    assert (code, "a run of another trainer, expected one of Treering's" in err) == (2, True)
