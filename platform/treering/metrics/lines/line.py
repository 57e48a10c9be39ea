"""What a list says of a run: `RunLine`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, Self

from treering.errors import EvidenceError
from treering.metrics.lines.attention import Level, level_of
from treering.metrics.state import State
from treering.runlog.journal import Noted

LineState = Literal[State, "diverging", "damaged"]

STATES: Final[tuple[LineState, ...]] = (
    "running", "stalled", "diverging", "finished", "interrupted", "failed", "broken", "damaged", "empty",
)  # fmt: skip
"""The states of a line: those of `metrics.state`; `diverging`, see `metrics.lines.diverging`; and `damaged` where the
run's evidence does not hold and no process trains it."""

_NO_JSON: Final = {"notes", "problems", "missing", "now", "ended_at", "checkpoint_at", "mirrored_at"}


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in a list, as of one moment.

    Numbers that are not known are None; a loss may be NaN.

    Attributes:
        id: the run's id in short.
        folder: name of the run's folder.
        now: the moment, Unix seconds.
        experiment: the name that people gave it; empty where the config cannot be read.
        recorded: whether another trainer reported the run.
        state: see `STATES`.
        reason: why the run needs attention, in a sentence; empty where it does not.
        reason_step: the step to look at for that reason; None where there is none.
        stall: why the run counts as stalled, and which ranks are silent; empty where it does not.
        step: newest step on the path, 0 before the first.
        num_steps: steps of the whole schedule; None where the trainer reports no schedule.
        consumed_tokens: up to and with that step; None where they are not known.
        all_ranks: whether these are the tokens of all ranks; else of rank 0 alone.
        train_tokens: tokens of the whole schedule.
        remaining_s: time of the steps to go, at the pace of the newest ones; None where the run does not move.
        loss: of the newest step, nats a token for runs of Treering's trainer.
        loss_curve: the loss in a few points, see `curve_of`.
        validation_loss: newest one on the path.
        grad_norm: of the newest step, before clipping.
        tokens_per_second: of the newest step.
        mfu: median over the newest steps, 0 to 1; None where the devices' peak is not known.
        devices: how many the newest attempt has.
        device: their kind, such as `NVIDIA H200`.
        attempts: process starts.
        checkpoints: complete ones on disk.
        checkpoint_step: newest complete checkpoint, 0 before the first.
        checkpoint_at: when it was written.
        checkpoint_every: steps from one save to the next; None where it is not known.
        at_risk_steps: steps that a crash now would cost.
        at_risk_s: the compute time of those steps.
        incidents: of all attempts.
        alarms: how many alarms each rule of health raised on the path; rules without one are left out.
        last_alarm_step: step of the newest alarm, None without one.
        ended_at: end of the newest step, None before the first.
        overrides: what was set beside the experiment's file.
        tags: of the run.
        notes: of the run, oldest first.
        archived: whether a person archived the run, so that lists leave it out.
        mirror: where a mirrored run is from, and what of it may be missing here; empty for a run that was trained here.
        mirrored_at: when a mirrored run was copied last.
        problems: what of the evidence does not hold.
        missing: what of the path before the run's own steps is missing; empty where it is whole.
        reproduction: the newest reproduction with its verdict; None without any.
    """

    id: str
    folder: str
    now: float
    experiment: str = ""
    recorded: bool = False
    state: LineState = "damaged"
    reason: str = ""
    reason_step: int | None = None
    stall: str = ""
    step: int = 0
    num_steps: int | None = None
    consumed_tokens: int | None = None
    all_ranks: bool = True
    train_tokens: int | None = None
    remaining_s: float | None = None
    loss: float | None = None
    loss_curve: tuple[float, ...] = ()
    validation_loss: float | None = None
    grad_norm: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    devices: int | None = None
    device: str = ""
    attempts: int = 0
    checkpoints: int = 0
    checkpoint_step: int = 0
    checkpoint_at: float | None = None
    checkpoint_every: int | None = None
    at_risk_steps: int = 0
    at_risk_s: float = 0.0
    incidents: int = 0
    alarms: Mapping[str, int] = field(default_factory=dict)
    last_alarm_step: int | None = None
    ended_at: float | None = None
    overrides: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    notes: tuple[Noted, ...] = ()
    archived: bool = False
    mirror: str = ""
    mirrored_at: float | None = None
    problems: tuple[EvidenceError, ...] = ()
    missing: str = ""
    reproduction: Mapping[str, Any] | None = None

    @property
    def alive(self) -> bool:
        """Whether processes train it, so that a list should look again by itself."""
        return self.state in {"running", "stalled", "diverging"}

    @property
    def level(self) -> Level:
        """How much attention it needs."""
        return level_of(self)

    @property
    def age_s(self) -> float | None:
        """Seconds since the newest step ended."""
        return None if self.ended_at is None else self.now - self.ended_at

    @property
    def checkpoint_age_s(self) -> float | None:
        """Seconds since the newest checkpoint was written."""
        return None if self.checkpoint_at is None else self.now - self.checkpoint_at

    @property
    def mirror_age_s(self) -> float | None:
        """Seconds since a mirrored run was copied."""
        return None if self.mirrored_at is None else self.now - self.mirrored_at

    @property
    def progress(self) -> float | None:
        """The share of the schedule's tokens that was read; None without a schedule."""
        if not self.train_tokens or self.consumed_tokens is None:
            return None
        return self.consumed_tokens / self.train_tokens

    @property
    def problem(self) -> str:
        """Why the log does not hold, or what of the path is missing; empty where it is whole."""
        return str(self.problems[0]) if self.problems else self.missing

    def with_problems(self, problems: Sequence[EvidenceError]) -> Self:
        """The line with more of the evidence that does not hold; each fault counts once."""
        found = {str(error): error for error in (*self.problems, *problems)}
        state = "damaged" if found and not self.alive else self.state
        return replace(self, problems=tuple(found.values()), state=state)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values: ages in place of moments, the first problem in words."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NO_JSON}
        values["consumed_tokens"] = self.consumed_tokens if self.all_ranks else None
        ages = {"age_s": self.age_s, "checkpoint_age_s": self.checkpoint_age_s}
        return {**values, **ages, "attention": self.level.name, "problem": self.problem}
