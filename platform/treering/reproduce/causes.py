"""Finds why a second training has other numbers than the first: trains the divergent steps again, one change at a time.

A trial begins at a checkpoint of the first run before the divergence, under the conditions of the second training. It
goes back to what the first training had in one thing: code, environment, variables, kernels, deterministic mode or
layout. Where the steps come out as in the first run to the last bit, that thing is the cause. Where they do under the
conditions of the second training, the runs may have parted before the checkpoint, in what no number shows: the trials
then begin at the newest checkpoint that both runs have, or at the start.
Data causes need no training (`data_causes`).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from treering.collect.code import code_difference, is_installed
from treering.errors import RunLockedError, UserError
from treering.project import Project
from treering.reproduce.candidates import (
    Candidate,
    condition_candidates,
    conditions_of,
    config_candidate,
)
from treering.reproduce.data_causes import data_candidates
from treering.reproduce.difference import RunDifference
from treering.reproduce.environment import made_before
from treering.reproduce.search import Search
from treering.reproduce.sources import HERE, present_code, recorded_tree
from treering.reproduce.trial import Conditions, Stretch, bases_on_path, newest_base
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.lock import acquire
from treering.runlog.records import AttemptHeader
from treering.runlog.reproductions import reproductions_of

_AFTER: Final = 2
"""Steps after the divergence that a trial trains too: another change may show only after an update of the weights."""


@dataclass(frozen=True, slots=True)
class CauseSearch:
    """The candidates for a difference, in order, each with the outcome of its test.

    Attributes:
        step: the first step that differs.
        candidates: what changed by the records, data first; last what no record names.
        trials: how many trainings tested them.
        steps: first and last step of each of these trainings; None without one.
    """

    step: int
    candidates: tuple[Candidate, ...]
    trials: int
    steps: tuple[int, int] | None

    @property
    def causes(self) -> tuple[Candidate, ...]:
        """The cause, or the parts of a combination that is."""
        return tuple(each for each in self.candidates if each.outcome in {"cause", "part"})

    @property
    def sentence(self) -> str:
        """The cause in a sentence, or the candidates that are left, in order."""
        if self.causes:
            joined = " together with ".join(each.text for each in self.causes)
            return f"Cause: {joined} ({self.causes[0].evidence})."
        left = [f"{each.text} ({each.evidence})" for each in self.candidates if each.outcome == "untested"]
        if left:
            return f"No cause is proven; candidates in order: {'; '.join(left)}."
        return "No cause was found: no candidate makes the steps equal."

    def to_json(self) -> dict[str, Any]:
        """The search as JSON values."""
        return {**asdict(self), "causes": [asdict(each) for each in self.causes], "sentence": self.sentence}


def find_causes(
    difference: RunDifference,
    first: RunDirectory,
    second: RunDirectory,
    *,
    project: Project,
    present: Conditions | None = None,
    recorded: Conditions | None = None,
    trials: bool = True,
) -> CauseSearch | None:
    """Names and tests what may have made two trainings different.

    Args:
        difference: of the two runs.
        first: the first training, such as the original.
        second: the second training, such as its reproduction.
        project: where the corpora are.
        present: source tree, Python and variables of the second training; default this installation.
        recorded: source tree and Python of the first training, where they are available; its code is looked for, and
            an environment that an earlier reproduction made.
        trials: whether to train; else every candidate that needs a trial stays untested.

    Returns:
        The search; None where nothing differs.

    Raises:
        EvidenceError: a record on the path does not hold.
    """
    step = difference.first_step
    if step is None:
        return None
    if difference.state == "data":
        return CauseSearch(step, tuple(data_candidates(first, second, step, project)), 0, None)
    stretch = Stretch(first, None, _last(difference, first, second, step))
    headers = [stretch.header(step), Stretch(second, None, step).header(step)]
    with (
        _python_of_first(first, headers[0], recorded or Conditions()) as given,
        _code_of_first(headers, given, project) as original,
    ):
        found = tuple(condition_candidates(headers[0], headers[1], original, difference.code))
        search = Search(
            step=step,
            stretch=stretch,
            second=second,
            project=project,
            header=headers[1],
            present=conditions_of(headers[1], present or Conditions()),
            found=found,
            config=config_candidate(difference.config),
            borders=[_border(run, step) for run in (first, second)],
        )
        if not trials:
            search.untested("needs a trial")
        else:
            try:
                search.stretch = replace(stretch, base=_base(first, step, headers[0], search.borders[0]))
            except UserError as error:
                search.untested(f"{error}; needs a trial")
            else:
                search.run()
    ordered = [search.outcome(each) for each in found]
    candidates = [*([search.config] if search.config else []), *ordered, *search.unnamed]
    done = (search.stretch.first, search.stretch.last) if search.trials else None
    return CauseSearch(step, tuple(candidates), search.trials, done)


def search_causes(difference: RunDifference, first: AnyRun, second: AnyRun, project: Project) -> CauseSearch | None:
    """The causes between any two runs, each trained with its recorded code where that is available.

    Args:
        difference: of the two runs.
        first: the first training.
        second: the second training.
        project: where the corpora are.

    Returns:
        The search; None where nothing differs.

    Raises:
        UserError: another trainer's run cannot be trained again in part.
        EvidenceError: a record on the path does not hold.
    """
    if not isinstance(first, RunDirectory) or not isinstance(second, RunDirectory):
        raise UserError(
            f"run {first.id} or {second.id} is of another trainer, expected two runs of Treering's trainer, whose "
            "steps can be trained again; `treering diff-runs` without --causes compares them"
        )
    if difference.first_step is None:
        return None
    header = Stretch(second, None, difference.first_step).header(difference.first_step)
    with recorded_tree(header.code, (HERE, project.root)) as tree:
        return find_causes(difference, first, second, project=project, present=Conditions(sources=tree))


@contextmanager
def _python_of_first(first: RunDirectory, header: AttemptHeader, given: Conditions) -> Iterator[Conditions]:
    """The recorded Python too, where an earlier reproduction of the run made it; held, so that `gc` leaves it.

    A reproduction's environment of an installed Treering holds the recorded Treering too: of another version it would
    change packages and code at once.
    """
    installed = is_installed(HERE)
    if given.python is not None or (installed and code_difference(header.code, present_code())):
        yield given
        return
    for folder in reversed(reproductions_of(first)):
        python = made_before(header.environment, folder.environments, treering=installed)
        if python is None:
            continue
        try:
            lock = acquire(folder.lock, "uses the environment of this reproduction")
        except (RunLockedError, OSError):  # it is made or deleted at this moment, or is not ours
            continue
        try:
            if python.exists():
                yield replace(given, python=python)
                return
        finally:
            os.close(lock)
    yield given


@contextmanager
def _code_of_first(headers: Sequence[AttemptHeader], given: Conditions, project: Project) -> Iterator[Conditions]:
    """What of the first training is available, with its code in a temporary tree where the codes differ."""
    first, second = headers
    if given.sources is not None or not code_difference(first.code, second.code):
        yield given
        return
    with recorded_tree(first.code, (HERE, project.root)) as tree:
        yield replace(given, sources=tree)


def _base(run: RunDirectory, step: int, header: AttemptHeader, border: int | None) -> CheckpointDirectory | None:
    """Where trials begin: a changed update shows in the step after it, so at least one step before the divergence.

    A border of attempts right before the divergence is crossed without a restart, unless the attempt behind it was
    started under other conditions.

    Raises:
        EvidenceError: a record on the path does not hold.
        UserError: no checkpoint is left to begin at.
    """
    if border and header.changed and border in (bases := bases_on_path(run)):
        return bases[border]
    return newest_base(run, min(step - 1, border or step))


def _last(difference: RunDifference, first: RunDirectory, second: RunDirectory, step: int) -> int:
    """The last step of the trials: within the attempt of the first run, before other data, and in both runs.

    Raises:
        EvidenceError: a record on the path does not hold.
    """
    ends = [[each.end() for each in run.path_to()] for run in (first, second)]
    data = difference.first_data_step
    return min(
        step + _AFTER, next(end for end in ends[0] if end >= step), ends[1][-1], data - 1 if data else step + _AFTER
    )


def _border(run: RunDirectory, step: int) -> int | None:
    """The newest border of attempts right before a step: what is lost at it shows in the next step or the one after."""
    ends = [each.last_step for each in run.path_to() if each.last_step is not None]
    return max((end for end in ends if step - 2 <= end < step), default=None)
