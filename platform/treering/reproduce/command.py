"""Makes a run of another trainer again: its recorded command, in a copy of its working directory, recorded beside.

The copy has the tracked files of the recorded commit with the recorded diff, or without git the files as they are, and
what git does not track (`working_copy`). Left out are the folders of runs and checkpoints: the command must not find
them, and must not write over them.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from treering.collect.code import is_installed, run_git
from treering.config.canonical import digest_bytes, digest_file, short
from treering.errors import EvidenceError, TrainingError, UserError
from treering.files import read_text, write_durably
from treering.foreign import say
from treering.record.start import RUNS_VARIABLE
from treering.redact import HIDDEN
from treering.reproduce.environment import environment_items, make_environment, recorded_variables
from treering.reproduce.items import CLOSE_NUMBERS, Item
from treering.reproduce.plan import Plan, spent_on
from treering.reproduce.sources import HERE, has_commit, remove
from treering.reproduce.trial import STANDARD_ERROR
from treering.reproduce.working_copy import WorkingCopy, in_copy, outside
from treering.runlog.find import find_recorded_runs
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.recorded_records import RecordedHeader
from treering.runlog.reproductions import ReproductionFolder

_PROGRAMS: Final = frozenset({"PATH", "VIRTUAL_ENV"})
"""Variables that name programs: those that are here are used, not copies."""


@dataclass(frozen=True)
class Command:
    """A recorded command and where it ran.

    Attributes:
        header: of the run's first attempt.
        folder: its working directory.
        repository: root of the git repository around it; None where the files are taken as they are.
        outputs: the folders that the command wrote.
        since: when the first process of the run began, Unix seconds; None where the record does not say.
    """

    header: RecordedHeader
    folder: Path
    repository: Path | None
    outputs: tuple[Path, ...]
    since: float | None

    @property
    def root(self) -> Path:
        """The folder that is copied: the repository's, else the working directory."""
        return self.repository or self.folder

    @cached_property
    def copy(self) -> WorkingCopy:
        """How the folder is copied; folders of checkpoints are left out whole: a trainer looks there for the newest.

        Made once, since it keeps which folders have changed: large folders of data are walked once.
        """
        left_out = {*self.outputs, *(each.parent for each in self.outputs[1:])} - {self.root, self.folder}
        left_out |= {each.resolve() for each in left_out}
        code = self.header.code
        commit = "" if self.repository is None else str(code["commit"])
        diff = str(code.get("diff") or "")
        return WorkingCopy(self.root, self.folder, commit, diff, self.since, frozenset(left_out))


def plan_command(
    run: RecordedRunDirectory, steps: range | None, *, recorded_python: bool, trusted: bool, present_code: bool = False
) -> tuple[Plan, Command]:
    """Plans to run a recorded command again.

    Args:
        run: the run.
        steps: the steps to compare; None: all.
        recorded_python: whether a virtual environment is made from the recorded versions.
        trusted: whether the user trusts a command that was not recorded on this machine.
        present_code: whether the code runs as it is now, whatever code is on record.

    Raises:
        UserError: the run has no such steps.
        EvidenceError: a record of the run does not hold.
    """
    path = run.path_to_end()
    last = max((each.end() for each in path), default=0)
    if not last:
        raise UserError(f"{run.path}: the run has no step, expected a run that reported its steps")
    wanted = range(1, last + 1) if steps is None else steps
    if wanted.stop > last + 1:
        raise UserError(f"--steps: found {wanted.start}:{wanted.stop - 1}, expected steps of run {run.id}, 1 to {last}")
    header = path[0].attempt.header
    folder = Path(header.folder) if header.folder else run.path.absolute().parent.parent
    code, repository = _code_item(header, folder)
    if present_code and repository is not None:
        code, repository = replace(code, state="other", reason="by --present-code the files run as they are now"), None
    command = Command(header, folder, repository, _outputs(run, folder), _since(run))
    items = (
        *command_items(run, command, trusted=trusted),
        code,
        *write_items(command),
        *environment_items(header.environment, "", recorded_python=recorded_python),
        _data_item(header),
    )
    spent = spent_on(((each.attempt, each.end()) for each in path), 1, last)
    return Plan(run.id, wanted.start, wanted.stop - 1, 0, *spent, items), command


def _since(run: RecordedRunDirectory) -> float | None:
    """The earliest time at which a process of the run may have written a file."""
    times = [each.header.writes_since for each in run.attempts()]
    known = [each for each in times if each is not None]
    return min(known) if len(known) == len(times) else None


def _outputs(run: RecordedRunDirectory, folder: Path) -> tuple[Path, ...]:
    """The folder of the runs, or the run's own where the runs are in the working directory, and its checkpoints."""
    own = run.path.absolute()
    found = [own if own.parent == folder else own.parent, *(Path(each.path) for each in run.checkpoints())]
    return tuple(dict.fromkeys(found))


def command_items(run: RecordedRunDirectory, command: Command, *, trusted: bool) -> Iterator[Item]:
    """Whether the command can and may be run again.

    Args:
        run: whose command it is.
        command: the command.
        trusted: whether the user trusts a command that was not recorded on this machine.
    """
    header, folder = command.header, command.folder
    text = " ".join(header.command)
    if reason := _impossible(run, command):
        yield Item("command", text, "cannot", *reason, stops=True)
    elif header.host != socket.gethostname() and not trusted:
        yield Item(
            "command", text, "cannot", f"it was recorded on {header.host}, not on this machine: it is another's code",
            "read the command and its code, then give --trust", stops=True,
        )  # fmt: skip
    else:
        said = "" if header.folder else "; an older record, which does not name the working directory"
        yield Item("command", text, "same", f"runs in a copy of {folder}{said}")


def _impossible(run: RecordedRunDirectory, command: Command) -> tuple[str, str] | None:
    """Why the command cannot be run again, and what helps; None where it can."""
    header, folder = command.header, command.folder
    by_hand = f"run it yourself with {RUNS_VARIABLE}=DIR, then `treering diff-runs {run.id} DIR/ID`"
    if any(HIDDEN in word for word in header.command):
        return "the command holds a password, which the record hides", by_hand
    config = run.record.config
    if config.get("command") == list(header.command):
        return "`treering record` watched it, and its --metrics are not in the record", by_hand
    if header.world_size > 1:
        return f"{header.world_size} ranks were started by a launcher, the record has the command of one", by_hand
    if not folder.is_dir():
        return f"its working directory {folder} is missing", "bring the folder back to its place"
    reason = _writes_outside(command)
    return (reason, by_hand) if reason else None


def _writes_outside(command: Command) -> str:
    """What outside the copy the command would write over, in words; empty where nothing is known."""
    for each in command.outputs[1:]:
        if not each.is_relative_to(command.root):
            return f"it wrote checkpoint {each}, outside {command.root}: run again, it would overwrite it"
    copy = command.copy
    for each in _named_outside(command):
        if copy.since is None:
            return f"it names {each}, outside {command.root}; this older record does not say when its process began"
        if copy.changed(each):
            return f"it names {each}, outside {command.root}, changed since the run began: it may write there again"
    return ""


def _named_outside(command: Command) -> list[Path]:
    """The files and folders outside the copy that the command names, but for its script."""
    script = (command.folder / str(command.header.code.get("script") or "")).resolve()
    return [each for each in outside(command.header.command[1:], command.root) if each != script]


def write_items(command: Command) -> Iterator[Item]:
    """The places outside the copy that the command could write into."""
    if not command.folder.is_dir():
        return
    unchanged = "nothing in them changed since the run began, but the command could write into them"
    if linked := command.copy.linked:
        yield Item("command", "linked folders", "unknown", f"{', '.join(linked)}, links to the original's: {unchanged}")
    if named := _named_outside(command):
        yield Item("command", "paths outside the copy", "unknown", f"{', '.join(map(str, named))}: {unchanged}")


def _code_item(header: RecordedHeader, folder: Path) -> tuple[Item, Path | None]:
    """Whether the code of the command can be had, and the repository to take it from."""
    code = header.code
    commit, script = code.get("commit"), code.get("script")
    place = folder / script if script else folder
    top = run_git(place.parent if script else folder, "rev-parse", "--show-toplevel") if folder.is_dir() else None
    repository = Path(top.strip()) if top and folder.is_relative_to(top.strip()) else None
    if commit and repository is not None and has_commit(repository, commit):
        diff = code.get("diff")
        if diff is not None and (not diff or digest_bytes(diff.encode()) == code.get("diff_digest")):
            with_diff = "the recorded diff" if diff else "no diff"
            return Item("code", f"commit {short(commit)}", "rebuilt", f"with {with_diff}, in a worktree"), repository
        why = "is too large for the record" if diff is None else "holds a password, which the record hides"
        return _present(code, place, f"its diff {why}"), None
    if commit:
        return _present(code, place, f"commit {short(commit)} is in no repository here"), None
    return _present(code, place, "no commit is recorded"), None


def _present(code: Mapping[str, Any], place: Path, why: str) -> Item:
    """The code as it is now, by the digest of its script."""
    name = f"script {code.get('script') or 'of an interactive session'}"
    if code.get("script") is None:
        return Item("code", name, "cannot", f"{why}, and no script", "", stops=True)
    if not place.is_file():
        return Item("code", name, "cannot", f"{why}, and {place} is missing", "bring the script back", stops=True)
    if digest_file(place) == code.get("script_digest"):
        return Item("code", name, "same", f"{why}; the script has the recorded digest, what it imports is not recorded")
    return Item("code", name, "cannot", f"{why}, and the script has changed", "restore the script", CLOSE_NUMBERS)


def _data_item(header: RecordedHeader) -> Item:
    if header.data is not None:
        return Item("data", "blend", "same", "the command reads the corpora by digest")
    return Item("data", "what the command reads", "unknown", "not recorded: the digests of the batches are compared")


def run_again(command: Command, folder: ReproductionFolder, *, recorded_python: bool) -> RecordedRunDirectory:
    """Runs the command in a copy of its working directory; the run is recorded in the reproduction's folder.

    Args:
        command: of the plan.
        folder: of the reproduction.
        recorded_python: whether a virtual environment is made from the recorded versions.

    Returns:
        The new run.

    Raises:
        TrainingError: the command failed.
        EvidenceError: the code cannot be rebuilt, or the command recorded no run.
        UserError: the recorded environment cannot be made.
    """
    earlier = find_recorded_runs(folder.runs)
    if earlier and earlier[-1].state() == "finished":  # an interrupted call had come so far
        return earlier[-1]
    header = command.header
    work = folder.path.absolute() / "work"
    made = folder.path / ".work-is-made"
    _make_copy(command.copy, work, made, folder.runs)
    python = None
    if recorded_python:
        python = make_environment(header.environment, folder.environment(1), treering=is_installed(HERE))
    words = [in_copy(word, command.root, work) for word in header.command]
    words[0] = _program(header, python)
    variables = {
        name: value if value is None or name in _PROGRAMS else in_copy(value, command.root, work)
        for name, value in {**os.environ, **recorded_variables(header.environment)}.items()
    }
    place = work / command.folder.relative_to(command.root)
    variables |= {RUNS_VARIABLE: str(folder.runs.absolute()), "PWD": str(place)}
    if python is not None and not is_installed(HERE):  # the code that records
        before = variables.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([str(HERE / "platform"), *([before] if before else [])])
    say(f"reproduce: {' '.join(header.command)}")
    done = subprocess.run(
        words,
        cwd=place,
        env={name: value for name, value in variables.items() if value is not None},
        stdout=STANDARD_ERROR,
        check=False,
    )
    if done.returncode:
        raise TrainingError(f"{work}: the recorded command ended with exit code {done.returncode}; its output is above")
    found = find_recorded_runs(folder.runs)
    if not found:
        raise EvidenceError(
            f"{work}: the command recorded no run, expected a call of treering.start; was it run from another folder?",
            file=work,
        )
    made.unlink()  # first: a call that is stopped here must not leave it to a copy that is half removed
    remove(command.root, work)
    return found[-1]


def _make_copy(copy: WorkingCopy, work: Path, made: Path, runs: Path) -> None:
    """Makes the copy, unless an interrupted call made one of the same files, in which the command goes on.

    Args:
        copy: how it is made.
        work: its place.
        made: the file that says of which files it was made.
        runs: where the command is recorded; what it did in a copy of other files is removed.
    """
    stamp = copy.stamp()
    if made.exists() and read_text(made) == stamp:
        return
    made.unlink(missing_ok=True)
    shutil.rmtree(runs, ignore_errors=True)
    copy.make(work)
    write_durably(made, stamp)


def _program(header: RecordedHeader, python: Path | None) -> str:
    """The program of the command; for a Python that is not here, this one."""
    program = header.command[0]
    if not Path(program).name.startswith("python"):
        return program
    if python is not None:
        return str(python)
    recorded = str(header.environment.get("system", {}).get("executable", ""))
    return next((each for each in (recorded, shutil.which(program)) if each and Path(each).exists()), sys.executable)
