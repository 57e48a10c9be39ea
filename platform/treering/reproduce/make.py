"""Makes a run of Treering's trainer again, beside the original: `runs/<id>/reproductions/0001/`.

    reproduction.json    what is made again, the plan, the comparison, the verdict
    project/             the corpora by the names that the blend gives them, as links; removed at the end
    source-1/            the recorded code as a git worktree; removed at the end
    environment-1/       the recorded versions as a virtual environment, with --environment
    runs/<id>/           the new run

Every part is made once: an interrupted reproduction goes on by the same call.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Literal

from treering.collect.code import is_installed
from treering.collect.devices import node_devices
from treering.config.canonical import canonical_json, parse_json
from treering.errors import EvidenceError
from treering.foreign import say
from treering.project import Project
from treering.reproduce.causes import find_causes
from treering.reproduce.difference import compare_runs, complete
from treering.reproduce.environment import make_environment, recorded_variables
from treering.reproduce.plan import Plan, PlannedSteps
from treering.reproduce.sources import HERE, check_out_verified, remove
from treering.reproduce.trial import THREADS_VARIABLE, Conditions, Stretch, train_again
from treering.reproduce.verdict import Verdict, judge
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.lock import acquire
from treering.runlog.records import AttemptHeader
from treering.runlog.reproductions import REPRODUCTIONS, Reproduction, ReproductionFolder, reproductions_of


def begin(run: AnyRun, digest: str, plan: Plan, *, recorded_python: bool, present_code: bool) -> ReproductionFolder:
    """The folder of a reproduction: an unfinished one with the same plan goes on, else a new one begins.

    Args:
        run: the run that is made again.
        digest: its identity.
        plan: what will be done.
        recorded_python: whether a virtual environment is made from the recorded versions.
        present_code: whether the code that is here trains, whatever code is on record.

    Raises:
        RunLockedError: another process begins one at this moment.
    """
    # Two calls must not take the same number.
    lock = acquire(run.path / REPRODUCTIONS / "lock", "begins a reproduction of this run")
    try:
        return _begin(run, digest, plan, recorded_python=recorded_python, present_code=present_code)
    finally:
        os.close(lock)


def _begin(run: AnyRun, digest: str, plan: Plan, *, recorded_python: bool, present_code: bool) -> ReproductionFolder:
    code: Literal["present", "recorded"] = "present" if present_code else "recorded"
    environment = "recorded" if recorded_python else "present"
    wanted = (digest, plan.first_step, plan.last_step, plan.from_step, environment, code)
    earlier = reproductions_of(run)
    for folder in reversed(earlier):
        try:
            record = folder.record
        except EvidenceError:
            continue
        asked = (record.run, record.first_step, record.last_step, record.from_step, record.environment, record.code)
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
        code=code,
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
    lock = acquire(folder.lock, "makes this reproduction")
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def rebuilt(
    folder: ReproductionFolder, planned: Sequence[PlannedSteps], *, recorded_python: bool, present_code: bool
) -> Iterator[list[tuple[Conditions, Conditions]]]:
    """Code, Python and variables of each stretch of steps; worktrees are removed at the end.

    Yields what trains, and what is on record as far as it is here; the same unless the code that is here trains.

    Args:
        folder: of the reproduction, from `begin`.
        planned: the stretches.
        recorded_python: whether a virtual environment is made from the recorded versions.
        present_code: whether the code that is here trains, whatever code is on record.

    Raises:
        EvidenceError: the code cannot be rebuilt.
        UserError: the recorded environment cannot be made.
    """
    with ExitStack() as stack:
        found = []
        for number, steps in enumerate(planned, start=1):
            code, environment = steps.sources, steps.segment.attempt.header.environment
            sources = python = None
            if code.repository is not None:
                sources = folder.path / f"source-{number}"
                stack.callback(remove, code.repository, sources)
                check_out_verified(code, sources)
            if recorded_python:
                own = sources is None and (is_installed(HERE) or code.installed)
                python = make_environment(environment, folder.environment(number), treering=own)
                sources = sources or (None if own else HERE)
            variables = _variables(steps.segment.attempt.header)
            recorded = Conditions(sources=sources, python=python, variables=variables)
            here = HERE if python is not None else None
            found.append((replace(recorded, sources=here) if present_code else recorded, recorded))
        yield found


def make_again(
    run: RunDirectory,
    project: Project,
    folder: ReproductionFolder,
    base: CheckpointDirectory | None,
    steps: Iterable[tuple[PlannedSteps, tuple[Conditions, Conditions]]],
) -> RunDirectory:
    """Trains the steps of a plan in a reproduction's folder.

    Args:
        run: the original.
        project: whose corpora are read, from `project_view`.
        folder: of the reproduction, from `begin`.
        base: the checkpoint of the original to start from, None for the start of the recipe.
        steps: what to train, in order, each stretch with what `rebuilt` made for it.

    Returns:
        The new run.

    Raises:
        EvidenceError: the checkpoint does not hold.
        TrainingError: the training failed.
    """
    folder.runs.mkdir(exist_ok=True)
    for planned, (conditions, _recorded) in steps:
        say(f"reproduce: steps {planned.first:,} to {planned.last:,} in layout {planned.segment.attempt.header.layout}")
        stretch = Stretch(run, base, planned.last)
        train_again(stretch, conditions, project=project.root, folder=folder.runs, as_recorded=True)
    return RunDirectory(folder.runs / run.resolved.run_id)


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
    steps: Sequence[tuple[PlannedSteps, tuple[Conditions, Conditions]]] = (),
    *,
    view: Project | None = None,
    trials: bool = True,
) -> Reproduction:
    """Compares the new run with the original, searches the cause of a difference, and writes what came out.

    What differs is written before the search starts, which trains: a stop of the search loses no comparison.

    Args:
        run: the original.
        again: the new run.
        folder: of the reproduction.
        project: whose runs show what seeds do.
        steps: of a run of Treering's trainer, what was trained, and with which code, Python and variables.
        view: where the corpora are, from `project_view`; None: in the project.
        trials: whether candidate causes are tested by training the divergent steps again.

    Raises:
        EvidenceError: the record of the reproduction was changed.
    """
    record, view = folder.record, view or project
    found = compare_runs(run, again, range(record.first_step, record.last_step + 1), view)
    # The checkpoint that the new run began with is a copy.
    found = complete(found, run, again, project, range(record.from_step + 1, record.last_step + 1))
    identical = None if found.state == "unknown" else found.state == "identical"
    record = record.model_copy(
        update={
            "comparison": parse_json(canonical_json(found.to_json()).encode()),  # NaN by its name
            "identical": identical,
        }
    )
    search = None
    if isinstance(run, RunDirectory) and isinstance(again, RunDirectory):
        _with_verdict(record, judge(found)).write(folder.file)
        reached = [conditions for planned, conditions in steps if planned.last >= (found.first_step or 0)]
        present, recorded = next(iter(reached), (None, None))
        search = find_causes(found, run, again, project=view, present=present, recorded=recorded, trials=trials)
    record = _with_verdict(record.model_copy(update={"ended_at": time.time()}), judge(found, search))
    record.write(folder.file)
    return record


def _with_verdict(record: Reproduction, verdict: Verdict) -> Reproduction:
    return record.model_copy(update={"verdict": verdict.to_json(), "sentence": verdict.sentence})
