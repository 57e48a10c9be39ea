"""Makes a run of Treering's trainer again, beside the original: `runs/<id>/reproductions/0001/`.

    reproduction.json    what is made again, the plan, the comparison, the verdict
    project/             the corpora by the names that the blend gives them, as links
    source-1/            the recorded code as a git worktree, removed at the end
    environment/         the recorded versions as a virtual environment, with --environment
    runs/<id>/           the new run

Every part is made once: an interrupted reproduction goes on by the same call.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from treering.collect.devices import node_devices
from treering.config.canonical import canonical_json, parse_json
from treering.errors import EvidenceError
from treering.foreign import say
from treering.project import Project
from treering.reproduce.causes import find_causes
from treering.reproduce.difference import compare_runs
from treering.reproduce.environment import make_environment, recorded_variables
from treering.reproduce.places import corpus_folders
from treering.reproduce.plan import Plan, PlannedSteps
from treering.reproduce.sources import check_out_verified, remove
from treering.reproduce.trial import THREADS_VARIABLE, Conditions, Stretch, train_again
from treering.reproduce.verdict import judge
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.lock import acquire
from treering.runlog.records import AttemptHeader
from treering.runlog.reproductions import REPRODUCTIONS, Reproduction, ReproductionFolder, reproductions_of


def begin(run: AnyRun, digest: str, plan: Plan, *, recorded_python: bool) -> ReproductionFolder:
    """The folder of a reproduction: an unfinished one with the same plan goes on, else a new one begins.

    Args:
        run: the run that is made again.
        digest: its identity.
        plan: what will be done.
        recorded_python: whether a virtual environment is made from the recorded versions.
    """
    environment = "recorded" if recorded_python else "present"
    wanted = (digest, plan.first_step, plan.last_step, plan.from_step, environment)
    earlier = reproductions_of(run)
    for folder in reversed(earlier):
        try:
            record = folder.record
        except EvidenceError:
            continue
        asked = (record.run, record.first_step, record.last_step, record.from_step, record.environment)
        if record.ended_at is None and asked == wanted:
            return folder
    number = earlier[-1].number + 1 if earlier else 1
    folder = ReproductionFolder(run.path / REPRODUCTIONS / f"{number:04d}")
    folder.path.mkdir(parents=True)
    Reproduction(
        run=digest,
        started_at=time.time(),
        ended_at=None,
        first_step=plan.first_step,
        last_step=plan.last_step,
        from_step=plan.from_step,
        environment=environment,
        plan=plan.to_json(),
        comparison=None,
        verdict=None,
        identical=None,
        sentence="",
    ).write(folder.file)
    return folder


@contextmanager
def held(folder: ReproductionFolder) -> Iterator[None]:
    """Holds a reproduction: two processes must not make the same one.

    Raises:
        RunLockedError: another process makes it.
    """
    lock = acquire(folder.path / "lock")
    try:
        yield
    finally:
        os.close(lock)


def make_again(
    run: RunDirectory,
    project: Project,
    folder: ReproductionFolder,
    planned: Sequence[PlannedSteps],
    base: CheckpointDirectory | None,
    *,
    recorded_python: bool,
) -> RunDirectory:
    """Trains the steps of a plan in a reproduction's folder.

    Args:
        run: the original.
        project: where its corpora are.
        folder: of the reproduction, from `begin`.
        planned: what to train, in order.
        base: the checkpoint of the original to start from, None for the start of the recipe.
        recorded_python: whether a virtual environment is made from the recorded versions.

    Returns:
        The new run.

    Raises:
        EvidenceError: code or checkpoint cannot be rebuilt.
        UserError: the recorded environment cannot be made.
        TrainingError: the training failed.
    """
    folder.runs.mkdir(exist_ok=True)
    here = _project_view(run, project, folder.path / "project")
    for number, steps in enumerate(planned, start=1):
        header = steps.segment.attempt.header
        python = make_environment(header.environment, folder.path / "environment") if recorded_python else None
        with _sources(steps, folder.path / f"source-{number}") as sources:
            say(f"reproduce: steps {steps.first:,} to {steps.last:,} in layout {header.layout}")
            conditions = Conditions(sources=sources, python=python, variables=_variables(header))
            stretch = Stretch(run, base, steps.last)
            train_again(stretch, conditions, project=here.root, folder=folder.runs, as_recorded=True)
    shutil.rmtree(here.root)  # links alone
    return RunDirectory(folder.runs / run.resolved.run_id)


@contextmanager
def _sources(stretch: PlannedSteps, target: Path) -> Iterator[Path | None]:
    """The root of the code for a stretch, None for the code that is here; a worktree is removed at the end."""
    repository = stretch.sources.repository
    if repository is None:
        yield None
        return
    check_out_verified(stretch.sources, target)
    try:
        yield target
    finally:
        remove(repository, target)


def _variables(header: AttemptHeader) -> dict[str, str | None]:
    """The recorded variables, the kind of device, and on processors the recorded number of threads."""
    found = recorded_variables(header.environment)
    if header.layout.device == "cpu":
        found["DS_ACCELERATOR"] = "cpu"
        threads = header.environment.get("threads_per_rank")
        found |= {} if threads is None else {THREADS_VARIABLE: str(threads)}
    elif found.get("DS_ACCELERATOR") == "cuda" and not any(each.kind == "cuda" for each in node_devices()):
        found["DS_ACCELERATOR"] = None
    return found


def conclude(
    run: AnyRun,
    again: AnyRun,
    folder: ReproductionFolder,
    project: Project,
    *,
    present: Conditions | None = None,
    trials: bool = True,
) -> Reproduction:
    """Compares the new run with the original, searches the cause of a difference, and writes what came out.

    Args:
        run: the original.
        again: the new run.
        folder: of the reproduction.
        project: where the corpora are.
        present: source tree, Python and variables of the new run; default those of this process.
        trials: whether candidate causes are tested by training the divergent steps again.

    Raises:
        EvidenceError: the record of the reproduction was changed.
    """
    record = folder.record
    found = compare_runs(run, again, range(record.first_step, record.last_step + 1), project)
    identical = None if found.state == "unknown" else found.state == "identical"
    search = None
    if isinstance(run, RunDirectory) and isinstance(again, RunDirectory):
        search = find_causes(found, run, again, project=project, present=present, trials=trials)
    verdict = judge(found, search)
    record = record.model_copy(
        update={
            "ended_at": time.time(),
            "comparison": parse_json(canonical_json(found.to_json()).encode()),  # NaN by its name
            "verdict": verdict.to_json(),
            "identical": identical,
            "sentence": verdict.sentence,
        }
    )
    record.write(folder.file)
    return record


def _project_view(run: RunDirectory, project: Project, root: Path) -> Project:
    """A project with the run's corpora under the names of its blend, as links, wherever they are."""
    view = Project(root)
    folders = {view.corpus(name): path for name, path in corpus_folders(run, project).items()}
    heldout = project.corpus("x", "heldout").parent
    if heldout.is_dir():
        folders |= {view.corpus(path.name, "heldout"): path for path in heldout.iterdir()}
    for link, path in folders.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve(), target_is_directory=True)
    return view
