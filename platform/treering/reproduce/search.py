"""The trials of a search for causes: the divergent steps, trained again with one thing after the other as recorded."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from treering.collect.code import is_installed
from treering.errors import TrainingError, UserError
from treering.foreign import say
from treering.project import Project
from treering.reproduce.candidates import Candidate, Outcome, Switch
from treering.reproduce.sources import HERE
from treering.reproduce.trial import Conditions, Stretch, Trial, bases_on_path, newest_base, train_again
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring

_COMPARED: Final = ("loss", "grad_norm", "batch_digest", "applied", "learning_rate", "validation")
_START_S: Final = 15.0
"""About what starting the trainer takes: imports of torch and DeepSpeed, and the model."""

_LONG_S: Final = 600.0
"""Trials that were to begin at a checkpoint begin earlier only where these steps took no longer."""

Bits = dict[int, tuple[str, ...]]


@dataclass
class Search:
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
    _trained: list[Switch] = field(default_factory=list)
    _original: Bits = field(default_factory=dict)
    _doubt: str = ""

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
        for number, run in enumerate(("first", "second")):
            if border := self._crossed(number):
                self.unnamed.append(self._restart(run, border).found("untested", f"{reason} without the restart"))

    def run(self) -> None:
        """Does the trials until the steps come out as in the first training."""
        try:
            control = self._control()
            unseen, shared = "", self._shared()
            if _bits(control.rings) == self._original and not self._begins_shared(shared):
                unseen = self._bound(shared)
                if not unseen:  # the runs may have parted before the checkpoint, in what no number shows
                    self.stretch = replace(self.stretch, base=shared)
                    control = self._control()
        except TrainingError as error:
            self.untested(f"the steps could not be trained here ({error}); needs a trial")
            return
        ran = control.header
        pairs = (("code", self.header.code, ran.code), ("environment", self.header.environment, ran.environment))
        other = " and ".join(text for text, mine, its in pairs if mine["digest"] != its["digest"])
        if other and not self._is_second(control):
            self._doubt = f"; but these trials did not have the {other} of the second run"
        self._doubt += unseen and (
            f"; but the runs may have parted before step {self.stretch.first}, in what no number shows, and {unseen}"
        )
        if _bits(control.rings) == self._original:
            self._without_change()
        elif not self._single() and not self._combined():
            self._unnamed(control)

    def _control(self) -> Trial:
        """Trains the steps under the conditions of the second training.

        Raises:
            TrainingError: the training ended early.
        """
        self._announce()
        self._original = _bits(_rings(self.stretch.run, self.stretch.first, self.stretch.last))
        return self._train("the conditions of the second training", self.present)

    def _is_second(self, control: Trial) -> bool:
        """Whether the steps under the conditions of the second training came out as in it."""
        return _bits(_rings(self.second, self.stretch.first, self.stretch.last)) == _bits(control.rings)

    def _shared(self) -> CheckpointDirectory | None:
        """The newest checkpoint before the step that both runs have; None where they share none.

        A reproduction begins with a copy of a checkpoint, whose digest no other training gives: it holds a clock.
        """
        digests = {each.digest for each in self.second.checkpoints() if each.has_manifest}
        bases = bases_on_path(self.stretch.run)
        steps = [step for step, each in bases.items() if step < self.step and each.digest in digests]
        return bases[max(steps)] if steps else None

    def _begins_shared(self, shared: CheckpointDirectory | None) -> bool:
        """Whether the trials begin where the runs are surely the same: at their start, or in what one has of the other.

        Args:
            shared: the newest checkpoint that both have.
        """
        base = self.stretch.base
        return base is None or (shared is not None and shared.step >= base.step)

    def _bound(self, base: CheckpointDirectory | None) -> str:
        """Why trials cannot begin at a checkpoint, or at the start of the runs; empty where they can."""
        run, stretch = self.stretch.run, replace(self.stretch, base=base)
        for each in (run, self.second):
            for before, segment in itertools.pairwise(each.path_to(own=True)):
                end = before.last_step or 0
                if segment.attempt.header.changed and (0 if base is None else stretch.first) <= end < self.step:
                    return f"run {each.id} went on under other conditions after step {end}"
        try:
            newest_base(run, stretch.first)
        except UserError as error:
            return str(error)
        seconds = sum(ring.time_s["step"] for ring in _rings(run, stretch.first, stretch.last))
        return f"all steps before took {seconds:,.0f} s" if seconds > _LONG_S else ""

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
        same += self._doubt
        for each in self.switches:
            self._note(each, "untested" if self._doubt else "not_cause", same)
        outcome: Outcome = "untested" if self._doubt else "cause"
        if self.config is not None:
            self.config = self.config.found(outcome, f"with the recorded config {same}")
        elif border := self._crossed(1):
            self.unnamed.append(self._restart("second", border).found(outcome, f"without the restart {same}"))
        elif not self._doubt:
            text = "the second training did not repeat itself: an operation without a fixed order, or a fault"
            self.unnamed.append(Candidate("nondeterminism", text, "cause", same))

    def _single(self) -> bool:
        """Goes back in one thing at a time; whether one of them makes the steps equal."""
        for each in self.switches:
            equal = self._equal(each)
            if equal:
                text = f"with {each.tested} alone steps {self._steps} are equal to the last bit"
                self._conclude(each, "cause", text)
                self._is_config_part([each])
                return True
            if equal is not None:
                self._trained.append(each)
                self._conclude(each, "not_cause", f"with {each.tested} steps {self._steps} still differ")
        return False

    def _conclude(self, switch: Switch, outcome: Outcome, evidence: str) -> None:
        """Notes what trials proved; they prove nothing where they had other code or packages than the second run."""
        self._note(switch, "untested" if self._doubt else outcome, evidence + self._doubt)

    def _combined(self) -> bool:
        """Goes back in everything, then leaves out one thing after the other; whether steps come out equal."""
        able = self._trained
        if len(able) < 2 or not self._equal_with(able, "everything that can be as recorded"):
            return False
        parts, unknown = list(able), []
        for each in able:
            rest = [other for other in parts if other is not each]
            equal = self._equal_with(rest, f"everything but {each.tested}") if rest else False
            if equal is None:
                unknown.append(each)
            elif equal:
                parts = rest
        together = " and ".join(each.tested for each in parts)
        for each in parts:
            if each in unknown:
                text = f"with {together} steps {self._steps} are equal; without {each.tested} they could not be trained"
                self._note(each, "untested", text)
            else:
                self._conclude(each, "part", f"only with {together} steps {self._steps} are equal to the last bit")
        self._is_config_part(parts)
        return True

    def _is_config_part(self, parts: Sequence[Switch]) -> None:
        """Whether other settings are needed too: the second config under the recorded conditions."""
        if self.config is None or self._doubt:
            return
        last = self.stretch.last
        try:
            stretch = Stretch(self.second, newest_base(self.second, self.step - 1), last)
            conditions = self._back_in(self.switches)
            other = self._train("the config of the second training, all else as recorded", conditions, stretch)
        except (TrainingError, UserError) as error:
            self.config = self.config.found("untested", f"with this config the steps could not be trained: {error}")
            return
        if _bits(other.rings) == _bits(_rings(self.stretch.run, stretch.first, last)):
            self.config = self.config.found("not_cause", "with this config, and all else as recorded, nothing differs")
            return
        self.config = self.config.found(
            "part", f"with the recorded config and conditions steps {self._steps} are equal"
        )
        for each in parts:
            if self.outcome(each).outcome == "cause":
                self._note(each, "part", self.outcome(each).evidence)

    def _unnamed(self, control: Trial) -> None:
        """No change on record explains the difference: a restart, a change that nothing recorded, or no fixed order.

        Proven only where every change on record was tested, and the trial ran under the second training's conditions.
        """
        proven = not self._doubt and all(self.outcome(each).outcome == "not_cause" for each in self.found)
        second = self._is_second(control)
        if self.config is None and not second:
            text = "two trainings under the same conditions differ: an operation without a fixed order"
            found = Candidate("nondeterminism", text, "untested", "")
            evidence = f"steps {self._steps} came out otherwise in each of three trainings{self._doubt}"
            ends = [each.last_step or 0 for each in self.second.path_to()]
            if any(self.stretch.first <= end < self.stretch.last for end in ends):
                proven, evidence = False, f"{evidence}; but the second run was restarted between these steps"
        elif border := self._crossed(0):
            found = self._restart("first", border)
            whose = "the second run" if second else "neither run"
            evidence = f"trained without the restart, steps {self._steps} are those of {whose}{self._doubt}"
            proven = proven and second
        elif proven and self.config is None:
            text = "the first training does not follow from its record: a change that nothing recorded, or a fault"
            evidence = f"trained again, steps {self._steps} are those of the second run, and no record names a change"
            self.unnamed.append(Candidate("unrecorded", text, "untested", evidence))
            return
        else:
            return
        self.unnamed.append(found.found("cause" if proven else "untested", evidence))

    def _crossed(self, run: int) -> int | None:
        """The border of a run's attempts right before the divergence, where the trials go over it without a restart."""
        border = self.borders[run]
        return border if border is not None and self.stretch.first <= border else None

    @property
    def _steps(self) -> str:
        return f"{self.stretch.first} to {self.stretch.last}"

    def _restart(self, run: str, border: int) -> Candidate:
        return Candidate("restart", f"restart of the {run} run after step {border}: a state was lost", "untested", "")

    def _back_in(self, switches: Sequence[Switch]) -> Conditions:
        conditions = self.present
        for each in switches:
            conditions = each.applied(conditions)
        if conditions.python != self.present.python and conditions.sources is None and not is_installed(HERE):
            conditions = replace(conditions, sources=HERE)  # another Python has no Treering installed, or another one
        return conditions

    def _equal_with(self, switches: Sequence[Switch], what: str) -> bool | None:
        """Whether the steps are equal with some things as recorded; None where they could not be trained."""
        try:
            return _bits(self._train(what, self._back_in(switches)).rings) == self._original
        except TrainingError:
            return None

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
