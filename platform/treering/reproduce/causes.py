"""Finds why a second training has other numbers than the first: trains the divergent steps again, one change at a time.

A trial begins at a checkpoint of the first run before the divergence, under the conditions of the second training. It
goes back to what the first training had in one thing: code, environment, variables, kernels or layout. Where the steps
come out as in the first run to the last bit, that thing is the cause. Data causes need no training (`data_causes`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from treering.errors import TrainingError, UserError
from treering.foreign import say
from treering.project import Project
from treering.reproduce.candidates import (
    Candidate,
    Outcome,
    Switch,
    condition_candidates,
    conditions_of,
    config_candidate,
)
from treering.reproduce.data_causes import data_candidates
from treering.reproduce.difference import RunDifference
from treering.reproduce.trial import Conditions, Stretch, Trial, bases_on_path, newest_base, train_again
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring

_COMPARED: Final = ("loss", "grad_norm", "batch_digest", "applied", "learning_rate", "validation")
_START_S: Final = 15.0
"""About what starting the trainer takes: imports of torch and DeepSpeed, and the model."""

_AFTER: Final = 2
"""Steps after the divergence that a trial trains too: another change may show only after an update of the weights."""

Bits = dict[int, tuple[str, ...]]


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
        recorded: source tree and Python of the first training, where they are available.
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
    found = list(condition_candidates(headers[0], headers[1], recorded or Conditions()))
    search = _Search(
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
    ends = [[each.last_step or each.attempt.last_step() for each in run.path_to()] for run in (first, second)]
    data = difference.first_data_step
    return min(
        step + _AFTER, next(end for end in ends[0] if end >= step), ends[1][-1], data - 1 if data else step + _AFTER
    )


def _border(run: RunDirectory, step: int) -> int | None:
    """The newest border of attempts right before a step: what is lost at it shows in the next step or the one after."""
    ends = [each.last_step for each in run.path_to() if each.last_step is not None]
    return max((end for end in ends if step - 2 <= end < step), default=None)


@dataclass
class _Search:
    """The trials of one search.

    Attributes:
        step: the first step that differs.
        stretch: the steps, from before the divergence.
        second: the second training.
        project: where the corpora are.
        header: of the attempt of the second training that did the step.
        present: conditions of the second training.
        found: what differs between the two attempts.
        config: the settings that differ, if any.
        borders: for each training the border of attempts right before the divergence.
        trials: how many trainings were done.
        unnamed: candidates that are no change on record.
    """

    step: int
    stretch: Stretch
    second: RunDirectory
    project: Project
    header: AttemptHeader
    present: Conditions
    found: Sequence[Switch | Candidate]
    config: Candidate | None
    borders: Sequence[int | None]
    trials: int = 0
    unnamed: list[Candidate] = field(default_factory=list)
    _outcomes: dict[int, Candidate] = field(default_factory=dict)
    _original: Bits = field(default_factory=dict)

    @property
    def switches(self) -> list[Switch]:
        """The candidates that a trial can test."""
        return [each for each in self.found if isinstance(each, Switch)]

    def outcome(self, found: Switch | Candidate) -> Candidate:
        """A candidate with the outcome of its test, if there was one."""
        if isinstance(found, Candidate):
            return found
        return self._outcomes.get(id(found), found.candidate)

    def untested(self, reason: str) -> None:
        """Notes of every candidate that a trial would test it."""
        for each in self.switches:
            self._note(each, "untested", f"{reason} with {each.tested}")
        for run, border in zip(("first", "second"), self.borders, strict=True):
            if border:
                self.unnamed.append(self._restart(run, border).found("untested", f"{reason} without the restart"))

    def run(self) -> None:
        """Does the trials until the steps come out as in the first training."""
        self._announce()
        self._original = _bits(_rings(self.stretch.run, self.stretch.first, self.stretch.last))
        try:
            control = self._train("the conditions of the second training", self.present)
        except TrainingError as error:
            self.untested(f"the steps could not be trained here ({error}); needs a trial")
            return
        if _bits(control.rings) == self._original:
            self._without_change()
        elif not self._single() and not self._combined():
            self._unnamed(control)

    def _announce(self) -> None:
        """Says what the trials cost before they start."""
        seconds = sum(ring.time_s["step"] for ring in _rings(self.stretch.run, self.stretch.first, self.stretch.last))
        count = len(self.switches)
        most = 1 + count + (1 + count if count > 1 else 0) + (1 if self.config and count else 0)
        say(
            f"causes: up to {most} trials, each trains steps {self._steps} again from {self.stretch.beginning}, about "
            f"{_START_S + seconds:.0f} s each; Ctrl-C leaves both runs unchanged"
        )

    def _train(self, what: str, conditions: Conditions, stretch: Stretch | None = None) -> Trial:
        """Trains the steps under conditions.

        Raises:
            TrainingError: the training ended early.
        """
        self.trials += 1
        say(f"causes: trial {self.trials}: {what}")
        return train_again(stretch or self.stretch, conditions, project=self.project.root, validation=True)

    def _without_change(self) -> None:
        """The control came out as the first training: no condition of the second one is the cause."""
        same = f"trained again under the conditions of the second run, steps {self._steps} are those of the first run"
        for each in self.switches:
            self._note(each, "not_cause", same)
        if self.config is not None:
            self.config = self.config.found("cause", f"with the recorded config {same}")
        elif border := self.borders[1]:
            self.unnamed.append(self._restart("second", border).found("cause", f"without the restart {same}"))
        else:
            text = "the second training did not repeat itself: an operation without a fixed order, or a fault"
            self.unnamed.append(Candidate("nondeterminism", text, "cause", same))

    def _single(self) -> bool:
        """Goes back in one thing at a time; whether one of them is the cause."""
        for each in self.switches:
            equal = self._equal(each)
            if equal:
                self._note(each, "cause", f"with {each.tested} alone steps {self._steps} are equal to the last bit")
                self._is_config_part([each])
                return True
            if equal is not None:
                self._note(each, "not_cause", f"with {each.tested} steps {self._steps} still differ")
        return False

    def _combined(self) -> bool:
        """Goes back in everything, then leaves out one thing after the other; whether a combination is the cause."""
        able = [each for each in self.switches if self.outcome(each).outcome != "untested"]
        if len(able) < 2 or not self._equal_with(able, "everything that can be as recorded"):
            return False
        parts = list(able)
        for each in able:
            rest = [other for other in parts if other is not each]
            if rest and self._equal_with(rest, f"everything but {each.tested}"):
                parts = rest
        together = " and ".join(each.tested for each in parts)
        for each in parts:
            self._note(each, "part", f"only with {together} steps {self._steps} are equal to the last bit")
        self._is_config_part(parts)
        return True

    def _is_config_part(self, parts: Sequence[Switch]) -> None:
        """Whether other settings are needed too: the second config under the recorded conditions."""
        if self.config is None:
            return
        last = self.stretch.last
        try:
            stretch = Stretch(self.second, newest_base(self.second, self.step - 1), last)
            conditions = self._back_in(self.switches)
            other = self._train("the config of the second training, all else as recorded", conditions, stretch)
        except (TrainingError, UserError):
            return
        if _bits(other.rings) == _bits(_rings(self.stretch.run, stretch.first, last)):
            self.config = self.config.found("not_cause", "with this config, and all else as recorded, nothing differs")
            return
        self.config = self.config.found(
            "part", f"with the recorded config and conditions steps {self._steps} are equal"
        )
        for each in parts:
            self._note(each, "part", self.outcome(each).evidence)

    def _unnamed(self, control: Trial) -> None:
        """No change on record explains the difference: a restart, a change that nothing recorded, or no fixed order.

        Proven only where every change on record was tested, and the trial ran under the second training's conditions.
        """
        ran = control.header
        left = [text for text, mine, its in (
            ("code", self.header.code, ran.code), ("environment", self.header.environment, ran.environment),
        ) if mine["digest"] != its["digest"]]  # fmt: skip
        doubt = f"; {' and '.join(left)} here are not those of the second run" if left else ""
        proven = not doubt and all(self.outcome(each).outcome == "not_cause" for each in self.found)
        second = _bits(_rings(self.second, self.stretch.first, self.stretch.last))
        if self.config is None and _bits(control.rings) != second:
            text = "two trainings under the same conditions differ: an operation without a fixed order"
            found = Candidate("nondeterminism", text, "untested", "")
            evidence = f"steps {self._steps} came out otherwise in each of three trainings{doubt}"
        elif border := self.borders[0]:
            found = self._restart("first", border)
            evidence = f"trained without the restart, steps {self._steps} are those of the second run{doubt}"
        elif proven and self.config is None:
            text = "the first training does not follow from its record: a change that nothing recorded, or a fault"
            evidence = f"trained again, steps {self._steps} are those of the second run, and no record names a change"
            self.unnamed.append(Candidate("unrecorded", text, "untested", evidence))
            return
        else:
            return
        self.unnamed.append(found.found("cause" if proven else "untested", evidence))

    @property
    def _steps(self) -> str:
        return f"{self.stretch.first} to {self.stretch.last}"

    def _restart(self, run: str, border: int) -> Candidate:
        return Candidate("restart", f"restart of the {run} run after step {border}: a state was lost", "untested", "")

    def _back_in(self, switches: Sequence[Switch]) -> Conditions:
        conditions = self.present
        for each in switches:
            conditions = each.applied(conditions)
        return conditions

    def _equal_with(self, switches: Sequence[Switch], what: str) -> bool:
        try:
            return _bits(self._train(what, self._back_in(switches)).rings) == self._original
        except TrainingError:
            return False

    def _equal(self, switch: Switch) -> bool | None:
        """Whether the steps are equal with one thing as recorded; None where they could not be trained."""
        try:
            return _bits(self._train(switch.tested, self._back_in([switch])).rings) == self._original
        except TrainingError as error:
            self._note(switch, "untested", f"the steps could not be trained with {switch.tested}: {error}")
            return None

    def _note(self, switch: Switch, outcome: Outcome, evidence: str) -> None:
        self._outcomes[id(switch)] = self.outcome(switch).found(outcome, evidence)


def _rings(run: RunDirectory, first: int, last: int) -> Iterator[Ring]:
    """The rings of some steps of a run's path.

    Raises:
        EvidenceError: a ring or a seam does not hold.
    """
    for ring in run.path_rings():
        if ring.step > last:
            return
        if ring.step >= first:
            yield ring


def _bits(rings: Iterable[Ring]) -> Bits:
    """What of each ring must be equal to the last bit; as texts, in which two NaN are equal."""
    return {ring.step: tuple(repr(getattr(ring, name)) for name in _COMPARED) for ring in rings}
