"""One line about a run: its state, its progress, the age of its last step, the cost of a crash now."""

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from treering.errors import EvidenceError
from treering.metrics import state as run_state
from treering.runlog.directory import RunDirectory
from treering.runlog.find import run_is_archived
from treering.runlog.journal import Noted, notes_and_tags
from treering.runlog.mirror import Mirror
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.records import CheckpointManifest
from treering_dashboard.frames.rings import RunFrames

AnyRun = RunDirectory | RecordedRunDirectory

State = Literal[run_state.State, "damaged"]
"""A run's state; `damaged` is the dashboard's own: the run's evidence does not hold, whatever its processes do."""

STATES: Final[tuple[State, ...]] = (
    "running", "stalled", "finished", "interrupted", "failed", "broken", "damaged", "empty",
)  # fmt: skip

_RECENT: Final = 20
"""Steps whose median time gives the time that remains."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What the runs table and the state line show.

    Attributes:
        id: name of the run's folder.
        experiment: the question it belongs to, empty where the config cannot be read.
        recorded: whether another trainer reported the run.
        state: see `State`.
        reason: how the last attempt ended, in its own words; of a stalled run, since when and which ranks are silent.
        step: last step on the path, 0 before the first.
        num_steps: steps of the whole schedule, 0 where unknown.
        tokens: consumed tokens, NaN where the trainer does not report them.
        all_ranks: whether these are the tokens of all ranks; else of rank 0 alone.
        train_tokens: tokens of the whole schedule, 0 where unknown.
        loss: newest loss.
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
        tags: of the run.
        notes: of the run, oldest first.
        archived: whether a person archived the run, so that lists leave it out.
        mirror: of a mirrored run, where it is from, how old it is and what may be missing; empty for other runs.
        mirror_age_s: since a mirrored run was last copied, NaN for other runs.
        problems: what of the evidence does not hold.
        missing: what of the path before the run's own steps is missing; empty where it is whole.
    """

    id: str
    experiment: str
    recorded: bool
    state: State
    reason: str
    step: int
    num_steps: int
    tokens: float
    all_ranks: bool
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
    tags: tuple[str, ...]
    notes: tuple[Noted, ...]
    archived: bool
    mirror: str
    mirror_age_s: float
    problems: tuple[EvidenceError, ...]
    missing: str

    @property
    def alive(self) -> bool:
        """Whether the page should look again by itself."""
        return self.state in ("running", "stalled")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run is to do, as far as its records tell."""

    experiment: str = ""
    num_steps: int = 0
    train_tokens: int = 0
    overrides: tuple[str, ...] = ()


def summarize(run: AnyRun, frames: RunFrames, now: float | None = None) -> RunSummary:
    """Reads the small records of a run beside its frames; broken evidence goes to `problems` and is never raised."""
    now = time.time() if now is None else now
    problems = list(frames.problems)
    plan = _plan(run, problems)
    saved = _saved(run, problems)
    notes, tags = _notes(run, problems)
    state, reason = _state(run, problems, now)
    mirror = _mirror(run)
    path = frames.path
    raised = Counter(alarm.rule for alarm in frames.alarms)
    rows, step = len(path), path.last_step
    checkpoint = max((at for at in saved if at <= step), default=0)
    speeds = ("speed/tokens_per_second", "speed/reported_tokens_per_second")
    return RunSummary(
        id=run.path.name,
        experiment=plan.experiment,
        recorded=frames.recorded,
        state=state,
        reason=reason,
        step=step,
        num_steps=plan.num_steps,
        tokens=float(path.fact("tokens")[-1]) if rows and path.has_tokens else math.nan,
        all_ranks=frames.all_ranks,
        train_tokens=plan.train_tokens,
        loss=path.latest("train/loss"),
        validation_loss=path.latest("validation/loss"),
        tokens_per_second=next((path.latest(key) for key in speeds if key in path), math.nan),
        step_age_s=now - float(path.fact("ended_at")[-1]) if rows else math.nan,
        checkpoint_step=checkpoint,
        checkpoint_age_s=now - saved[checkpoint] if checkpoint else math.nan,
        at_risk_steps=int((path.fact("step") > checkpoint).sum()),
        at_risk_s=float(path.fact("process_s")[-1]) - path.until(checkpoint)("process_s") if rows else 0.0,
        remaining_s=_remaining(frames, plan, state),
        attempts=len(run.attempts()),
        incidents=len(frames.incidents),
        alarms=", ".join(f"{number:,} {rule}" for rule, number in raised.items()),
        overrides=plan.overrides,
        tags=tuple(tags),
        notes=tuple(notes),
        archived=run_is_archived(run),
        mirror=run.mirror_doubt,
        mirror_age_s=now - mirror.written_at if mirror else math.nan,
        problems=tuple(problems),
        missing=frames.missing,
    )


def _plan(run: AnyRun, problems: list[EvidenceError]) -> _Plan:
    try:
        if isinstance(run, RecordedRunDirectory):
            return _Plan(run.record.experiment)
        resolved = run.resolved
    except EvidenceError as error:
        problems.append(error)
        return _Plan()
    num_steps = resolved.schedule.num_steps
    return _Plan(resolved.experiment, num_steps, resolved.consumed_tokens(num_steps), resolved.overrides)


def _remaining(frames: RunFrames, plan: _Plan, state: State) -> float:
    """Compute time of the steps to go at the pace of the last ones, NaN where it is not known."""
    path = frames.path
    if not plan.num_steps or state == "stalled" or not len(path):
        return math.nan
    recent = path.last(_RECENT).series("time/step").values
    return float(np.median(recent)) * (plan.num_steps - path.last_step)


def _saved(run: AnyRun, problems: list[EvidenceError]) -> dict[int, float]:
    """When the checkpoint of each step was written, Unix seconds; of a recorded run, those on its path."""
    if not isinstance(run, RecordedRunDirectory):
        return {manifest.step: manifest.created_at for manifest in read_manifests(run, problems)}
    try:
        return {each.step: each.created_at for each in run.checkpoints_on(run.path_to_end())}
    except EvidenceError as error:
        problems.append(error)
        return {}


def read_manifests(run: RunDirectory, problems: list[EvidenceError]) -> list[CheckpointManifest]:
    """The manifests that hold; the errors of the others go to `problems`."""
    manifests = []
    for checkpoint in run.checkpoints():
        try:
            manifests.append(checkpoint.manifest)
        except EvidenceError as error:
            problems.append(error)
    return manifests


def _mirror(run: AnyRun) -> Mirror | None:
    try:
        return run.mirror
    except EvidenceError:  # `mirror_doubt` says so
        return None


def _notes(run: AnyRun, problems: list[EvidenceError]) -> tuple[list[Noted], list[str]]:
    try:
        return notes_and_tags(line.entry for line in run.journal.lines())
    except EvidenceError as error:
        if not problems:  # of a run whose record does not hold, the journal cannot be read either
            problems.append(error)
        return [], []


def _state(run: AnyRun, problems: list[EvidenceError], now: float) -> tuple[State, str]:
    try:
        state: run_state.State = run.state()
        stall = ""
        if isinstance(run, RunDirectory):
            found = run_state.condition(run, now)
            state, stall = found.state, found.stall
        attempts = run.attempts()
        end = attempts[-1].end if attempts else None
    except EvidenceError as error:
        problems.append(error)
        return "damaged", ""
    if state in ("running", "stalled"):
        return state, stall
    if problems:
        return "damaged", ""
    return state, end.reason if end else ""
