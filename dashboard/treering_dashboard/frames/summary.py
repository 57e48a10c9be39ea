"""One line about a run: its state, its progress, the age of its last step, the cost of a crash now."""

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from treering.errors import EvidenceError
from treering.metrics import state as run_state
from treering.runlog.directory import RunDirectory
from treering.runlog.records import CheckpointManifest
from treering_dashboard.frames.rings import RunFrames

State = Literal[run_state.State, "damaged"]
"""A run's state; `damaged` is the dashboard's own: the run's evidence does not hold, whatever its processes do."""

STATES: Final[tuple[State, ...]] = (
    "running", "stalled", "finished", "interrupted", "failed", "broken", "damaged", "empty",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What the runs table and the state line show.

    Attributes:
        id: name of the run's folder.
        experiment: the question it belongs to, empty where the config cannot be read.
        state: see `State`.
        reason: how the last attempt ended, in its own words; of a stalled run, since when and which ranks are silent.
        step: last step on the path, 0 before the first.
        num_steps: steps of the whole schedule, 0 where unknown.
        tokens: consumed tokens.
        train_tokens: tokens of the whole schedule.
        loss: of the last step.
        validation_loss: newest held-out loss.
        tokens_per_second: of the last step.
        step_age_s: since the last step ended.
        checkpoint_step: newest complete checkpoint, 0 before the first.
        checkpoint_age_s: since it was written, NaN before the first.
        at_risk_steps: steps that a crash now would cost.
        at_risk_s: the compute time of those steps, seconds.
        remaining_s: compute time of the steps to go at the pace of the last ones; NaN where unknown or stalled.
        attempts: process starts that left a header.
        incidents: number of incidents of all attempts.
        alarms: how many each rule of health raised on the path, in words; empty where none did.
        overrides: what was set beside the experiment's file.
        problems: what of the evidence does not hold.
        missing: what of the path before the run's own steps is missing; empty where it is whole.
    """

    id: str
    experiment: str
    state: State
    reason: str
    step: int
    num_steps: int
    tokens: int
    train_tokens: int
    loss: float
    validation_loss: float
    tokens_per_second: float
    step_age_s: float
    checkpoint_step: int
    checkpoint_age_s: float
    at_risk_steps: int
    at_risk_s: float
    remaining_s: float
    attempts: int
    incidents: int
    alarms: str
    overrides: tuple[str, ...]
    problems: tuple[EvidenceError, ...]
    missing: str

    @property
    def alive(self) -> bool:
        """Whether the page should look again by itself."""
        return self.state in ("running", "stalled")


def summarize(run: RunDirectory, frames: RunFrames, now: float | None = None) -> RunSummary:
    """Reads the small records of a run beside its frames; broken evidence goes to `problems` and is never raised."""
    now = time.time() if now is None else now
    problems = list(frames.problems)
    experiment, num_steps, train_tokens = "", 0, 0
    overrides: tuple[str, ...] = ()
    try:
        resolved = run.resolved
        experiment, num_steps = resolved.experiment, resolved.schedule.num_steps
        train_tokens = resolved.consumed_tokens(num_steps)
        overrides = resolved.overrides
    except EvidenceError as error:
        problems.append(error)
    manifests = read_manifests(run, problems)
    state, reason = _state(run, problems, now)
    path = frames.path
    raised = Counter(alarm.rule for alarm in frames.alarms)
    step = int(path["step"].iloc[-1]) if len(path) else 0
    saved = max((manifest.step for manifest in manifests if manifest.step <= step), default=0)
    unsaved = path[path["step"] > saved]
    recent = path["time_step"].tail(20) if "time_step" in path and len(path) else None
    blend_losses = frames.validation[frames.validation["corpus"] == ""]["loss"]
    return RunSummary(
        id=run.path.name,
        experiment=experiment,
        state=state,
        reason=reason,
        step=step,
        num_steps=num_steps,
        tokens=int(path["tokens"].iloc[-1]) if len(path) else 0,
        train_tokens=train_tokens,
        loss=float(path["train_loss"].iloc[-1]) if len(path) else math.nan,
        validation_loss=float(blend_losses.iloc[-1]) if len(blend_losses) else math.nan,
        tokens_per_second=float(path["speed_tokens_per_second"].iloc[-1]) if len(path) else math.nan,
        step_age_s=now - float(path["ended_at"].iloc[-1]) if len(path) else math.nan,
        checkpoint_step=saved,
        checkpoint_age_s=now - max(m.created_at for m in manifests if m.step == saved) if saved else math.nan,
        at_risk_steps=len(unsaved),
        at_risk_s=float(unsaved["time_step"].sum()) if "time_step" in unsaved else 0.0,
        remaining_s=math.nan
        if recent is None or not num_steps or state == "stalled"
        else float(recent.median()) * (num_steps - step),
        attempts=len(run.attempts()),
        incidents=len(frames.incidents),
        alarms=", ".join(f"{number:,} {rule}" for rule, number in raised.items()),
        overrides=overrides,
        problems=tuple(problems),
        missing=frames.missing,
    )


def read_manifests(run: RunDirectory, problems: list[EvidenceError]) -> list[CheckpointManifest]:
    """The manifests that hold; the errors of the others go to `problems`."""
    manifests = []
    for checkpoint in run.checkpoints():
        try:
            manifests.append(checkpoint.manifest)
        except EvidenceError as error:
            problems.append(error)
    return manifests


def _state(run: RunDirectory, problems: list[EvidenceError], now: float) -> tuple[State, str]:
    try:
        found = run_state.condition(run, now)
        attempts = run.attempts()
        end = attempts[-1].end if attempts else None
    except EvidenceError as error:
        problems.append(error)
        return "damaged", ""
    if found.state in ("running", "stalled"):
        return found.state, found.stall
    if problems:
        return "damaged", ""
    return found.state, end.reason if end else ""
