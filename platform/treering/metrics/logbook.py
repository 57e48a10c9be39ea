"""The logbook of a run: what happened to it, oldest first, with what each event cost.

Read from headers, ends, incidents, journals, telemetry and the times of the rings. What cannot be read is named.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.metrics.lost_work import AttemptTimes, Loss, losses, silences
from treering.metrics.path_summary import summary_of_path
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyAttempt, AnyRun
from treering.runlog.journal import (
    Archived,
    CheckpointRemoved,
    CheckpointSaved,
    CheckpointSetAside,
    Entry,
    Evaluated,
    Noted,
    Promoted,
    Scored,
    Tagged,
)
from treering.runlog.metric_catalog import describe
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory

Kind = Literal["start", "end", "incident", "device", "stall", "alarm", "checkpoint", "evaluation", "note"]
ROUTINE: Final = frozenset({"checkpoint", "evaluation"})
"""Kinds that are left out of a short logbook: they are as planned."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        at: Unix seconds.
        kind: what it is about.
        title: in a few words.
        text: as the record says it; may be foreign.
        step: the last step before it; None where it is of no step.
        attempt: number of the attempt; None where it is of the run.
        lost: what the end of an attempt cost; None for all others.
    """

    at: float
    kind: Kind
    title: str
    text: str = ""
    step: int | None = None
    attempt: int | None = None
    lost: Loss | None = None


@dataclass(frozen=True, slots=True)
class Logbook:
    """What happened to a run.

    Attributes:
        run: the run's id.
        experiment: its name.
        events: oldest first.
        began: Unix seconds of the first start, None before it.
        until: of the newest step or end.
        lost: steps, training time and time without training of all restarts together.
        missing: what could not be read, in sentences.
        attempts: when the steps of each attempt ended.
    """

    run: str
    experiment: str
    events: tuple[Event, ...] = ()
    began: float | None = None
    until: float | None = None
    lost: tuple[Loss, ...] = ()
    missing: tuple[str, ...] = ()
    attempts: tuple[AttemptTimes, ...] = ()

    @property
    def lost_steps(self) -> int:
        """Steps that were done again."""
        return sum(each.steps for each in self.lost)

    @property
    def lost_s(self) -> float:
        """Seconds for which they had been trained."""
        return sum(each.seconds for each in self.lost)

    @property
    def down_s(self) -> float:
        """Seconds between attempts."""
        return sum(each.down_s for each in self.lost)

    @property
    def lost_device_hours(self) -> float:
        """Device-hours of the steps that were done again, and of the time between attempts."""
        return sum(each.device_hours for each in self.lost)

    def short(self) -> list[Event]:
        """The events without routine."""
        return [event for event in self.events if event.kind not in ROUTINE]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "run": self.run,
            "experiment": self.experiment,
            "events": [asdict(event) for event in self.events],
            "began": self.began,
            "until": self.until,
            "missing": list(self.missing),
            "lost_steps": self.lost_steps,
            "lost_s": self.lost_s,
            "down_s": self.down_s,
            "lost_device_hours": self.lost_device_hours,
        }


def logbook(run: AnyRun) -> Logbook:
    """The logbook of a run; a record that does not hold is named, and the rest is read."""
    missing: list[str] = []
    attempts: list[AnyAttempt] = [*run.attempts()]
    times = {each.number: found for each in attempts if (found := _times(each, missing)) is not None}
    lost = losses(list(times.values()))
    running = run.state() == "running"
    events: list[Event] = []
    for attempt in attempts:
        last = attempt is attempts[-1]
        events += _attempt(
            attempt, times.get(attempt.number), lost.get(attempt.number), missing, alive=running and last
        )
    if isinstance(run, RunDirectory):
        events += _alarms(run, times, missing)
    events += _journals(run, missing)
    began = min((each.started_at for each in times.values()), default=None)
    until = max((each.last_at for each in times.values()), default=None)
    ends = [event.at for event in events if event.kind == "end"]
    return Logbook(
        run.path.name,
        _experiment(run, missing),
        tuple(sorted(events, key=lambda event: event.at)),
        began,
        time.time() if running else max([until, *ends]) if until is not None else None,
        tuple(lost.values()),
        tuple(missing),
        tuple(times.values()),
    )


def _times(attempt: AnyAttempt, missing: list[str]) -> AttemptTimes | None:
    try:
        return AttemptTimes.of(attempt)
    except EvidenceError as error:
        missing.append(str(error))
        return None


def _experiment(run: AnyRun, missing: list[str]) -> str:
    try:
        return run.resolved.experiment if isinstance(run, RunDirectory) else run.record.experiment
    except EvidenceError as error:
        missing.append(str(error))
        return ""


def _attempt(
    attempt: AnyAttempt, times: AttemptTimes | None, lost: Loss | None, missing: list[str], *, alive: bool
) -> Iterator[Event]:
    """Start, end, incidents, device errors and silences of an attempt."""
    number = attempt.number
    try:
        yield _start(attempt)
        yield from _incidents(attempt)
        end = attempt.end
    except EvidenceError as error:
        missing.append(str(error))
        return
    for xid in (events := attempt.telemetry.events()).xids:
        where = f"device {xid.device} of {events.hosts.get(xid.node, f'node {xid.node}')}"
        yield Event(xid.at, "device", f"XID {xid.code}", where, attempt=number)
    for each in silences(times) if times is not None else ():
        text = f"no step for {each.seconds:,.0f} s, a step took {each.usual:,.3g} s before"
        yield Event(each.began, "stall", "no step", text, each.after, number)
    step = int(times.steps[-1]) if times is not None and len(times.steps) else 0
    if end is not None:
        yield Event(end.ended_at, "end", f"attempt {number} {end.status}", end.reason, end.step, number, lost)
    elif not alive and times is not None:
        text = "its processes died without a record of their end"
        yield Event(times.last_at, "end", f"attempt {number} broke off", text, step, number, lost)


def _start(attempt: AnyAttempt) -> Event:
    if isinstance(attempt, RecordedAttempt):
        header, after = attempt.header, attempt.header.resumed_step
        where = f"on {header.host}, {header.world_size:,} ranks"
        title = (
            f"attempt {attempt.number} resumes after step {after:,}" if after else f"attempt {attempt.number} starts"
        )
        return Event(header.started_at, "start", title, where, after, attempt.number)
    own = attempt.header
    text = f"on {own.host}, TPxPPxDP {own.layout}, code {short(str(own.code.get('digest', '')), 12)}"
    if own.parent is not None:
        other = "" if own.parent.run == own.run else f" of run {short(own.parent.run, 16)}"
        title = f"attempt {attempt.number} resumes after step {own.parent.step:,}{other}"
    else:
        title = f"attempt {attempt.number} starts{' over' if own.origin == 'restart' else ''}"
    changed = f"; changed: {'; '.join(own.changed)}" if own.changed else ""
    return Event(own.started_at, "start", title, text + changed, own.parent.step if own.parent else 0, attempt.number)


def _incidents(attempt: AnyAttempt) -> Iterator[Event]:
    if isinstance(attempt, AttemptDirectory):
        for each in attempt.incidents():
            where = f" (on {each.host})" if each.host else ""
            yield Event(each.at, "incident", each.title, each.text + where, each.step, attempt.number)


def _alarms(run: RunDirectory, times: dict[int, AttemptTimes], missing: list[str]) -> list[Event]:
    """The alarms on the run's path, at the time of their step."""
    try:
        path = summary_of_path(run)
    except EvidenceError as error:
        missing.append(f"alarms: {error}")
        return []
    own = [each for each in path.segments if each.run.path == run.path and each.attempt.number in times]
    found = []
    for alarm in path.alarms:
        of = next((each for each in own if each.last_step is None or alarm.step <= each.last_step), None)
        when = times[of.attempt.number] if of is not None else None
        if when is None or not len(when.steps) or alarm.step < when.steps[0]:
            continue  # of the run that this one starts from
        text = f"{alarm.value:.4g} against {alarm.background:.4g}"
        title = f"{alarm.rule} of the {describe(alarm.metric).title.lower()}"
        found.append(Event(when.at(alarm.step), "alarm", title, text, alarm.step, when.number))
    return found


def _journals(run: AnyRun, missing: list[str]) -> Iterator[Event]:
    journals = ["journal"] if isinstance(run, RecordedRunDirectory) else ["journal", "evaluation_journal"]
    for name in journals:
        try:
            entries: Iterable[Entry] = [line.entry for line in getattr(run, name).lines()]
        except EvidenceError as error:
            missing.append(str(error))
            continue
        for entry in entries:
            event = _entry(entry)
            if event is not None:
                yield event
    if isinstance(run, RecordedRunDirectory):
        try:
            for each in run.checkpoints():
                yield Event(each.created_at, "checkpoint", "checkpoint saved", each.path, each.step, each.attempt)
        except EvidenceError as error:
            missing.append(str(error))


def _entry(entry: Entry) -> Event | None:
    found: Event | None = None
    match entry:
        case CheckpointSaved(found=False):
            found = Event(entry.at, "checkpoint", "checkpoint saved", "", entry.step, entry.attempt)
        case CheckpointRemoved():
            found = Event(entry.at, "checkpoint", "checkpoint removed", entry.reason, entry.step)
        case CheckpointSetAside():
            found = Event(entry.at, "checkpoint", "checkpoint set aside", f"to {entry.folder}", entry.step)
        case Evaluated(found=False):
            found = Event(entry.at, "evaluation", "evaluated", ", ".join(sorted(entry.tasks)), entry.step)
        case Scored():
            scores = ", ".join(f"{name} {value:.4g}" for name, value in entry.metrics.items())
            found = Event(entry.at, "evaluation", f"score of {entry.task}", scores, entry.step)
        case Noted():
            found = Event(entry.at, "note", f"note of {entry.by}", entry.text)
        case Tagged():
            tags = [*(f"+{tag}" for tag in entry.added), *(f"-{tag}" for tag in entry.removed)]
            found = Event(entry.at, "note", f"tags of {entry.by}", " ".join(tags))
        case Promoted():
            found = Event(entry.at, "note", f"{entry.alias} by {entry.by}", f"level {entry.level}", entry.step)
        case Archived():
            found = Event(entry.at, "note", f"{'archived' if entry.archived else 'listed again'} by {entry.by}")
    return found
