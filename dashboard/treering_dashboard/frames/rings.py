"""A run's rings as a frame: one row a step, with every x that a chart may be drawn over.

Reads what the trainer wrote, straight from the run log. Evidence that does not hold ends the rows where it breaks and
goes to `problems`: a page shows the rows before the fault, and names the fault.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from treering.errors import EvidenceError
from treering.metrics.alarms import Alarm
from treering.metrics.efficiency import efficiency
from treering.metrics.flops import ModelShape
from treering.metrics.path_alarms import judge_of, judged
from treering.metrics.spikes import RingAlarms
from treering.runlog.ancestry import PathSegment, broken_seam, path_left, segments_left
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.folders import HEADER_FILE
from treering.runlog.incidents import Incident
from treering.runlog.metric_catalog import ring_metrics
from treering.runlog.ring import RINGS_FILE, Ring

FACTS: Final = ("segment", "attempt", "step", "samples", "tokens", "wall_s", "process_s", "ended_at")
"""Columns that place a ring on its path; all other columns are metrics, named by `column`."""


def column(key: str) -> str:
    """Column of a key of the metric catalog; charts cannot name a field with a slash or a dot without escapes."""
    return key.replace("/", "_").replace(".", "_")


@dataclass(frozen=True, slots=True)
class Restart:
    """The point from which an attempt continued.

    Attributes:
        step: first step of the attempt.
        attempt: its number.
        origin: how the attempt began, as its header names it.
        replaced_steps: steps of the attempt before it that were repeated.
    """

    step: int
    attempt: int
    origin: str
    replaced_steps: int


@dataclass(frozen=True, slots=True)
class Read:
    """Which data a step read; meanings as in a ring."""

    step: int
    sample_start: int
    sample_end: int
    batch_digest: str


@dataclass(frozen=True, slots=True)
class RunFrames:
    """What the run pages draw.

    Attributes:
        path: one row for each ring on the path, in order of steps.
        replaced: rings after the point to which a restart returned: recorded, off the path.
        validation: one row for each held-out measurement and corpus (`corpus` empty: the blend), with the same x's.
        reads: what each ring on the path read.
        alarms: what the rules of health found on the path, in order of steps.
        restarts: the points of the path at which a new attempt began.
        incidents: events outside the metrics of all attempts, those off the path too, each with its attempt's number.
        problems: the evidence that does not hold; one fault may be in it twice.
        missing: what is missing of the path before the run's own steps, as text; empty if the path is complete.
        flops_formula: name of the FLOPs formula of the newest ring.
    """

    path: pd.DataFrame
    replaced: pd.DataFrame
    validation: pd.DataFrame
    reads: tuple[Read, ...]
    alarms: tuple[Alarm, ...]
    restarts: tuple[Restart, ...]
    incidents: tuple[tuple[int, Incident], ...]
    problems: tuple[EvidenceError, ...]
    missing: str
    flops_formula: str | None

    def last(self, num_steps: int) -> "RunFrames":
        """The same for the newest steps alone, so that they are downsampled less."""
        first = int(self.path["step"].iloc[-1]) - num_steps + 1 if len(self.path) else 0
        return replace(
            self,
            path=self.path[self.path["step"] >= first].reset_index(drop=True),
            replaced=self.replaced[self.replaced["step"] >= first].reset_index(drop=True),
            validation=self.validation[self.validation["step"] >= first].reset_index(drop=True),
            alarms=tuple(alarm for alarm in self.alarms if alarm.step >= first),
            restarts=tuple(restart for restart in self.restarts if restart.step >= first),
            incidents=tuple(each for each in self.incidents if each[1].step >= first),
        )

    @property
    def num_steps(self) -> int:
        """Steps on the path that hold."""
        return len(self.path)


def read_run(run: RunDirectory) -> RunFrames:
    """Reads all rings of a run; broken evidence goes to `problems` and is never raised."""
    problems = list(_headless_attempts(run))
    try:
        path = path_left(run)
    except EvidenceError:  # the fault is in the run itself: the rings before it are shown
        segments, missing = _segments(run, problems)
        rings, lengths = _path_rings(segments, problems, whole=not missing)
    else:
        segments, missing, rings = list(path.segments), path.missing, list(path.rings)
        lengths = _lengths(segments, rings)
    frame = _frame(rings, segments, lengths)
    return RunFrames(
        path=frame,
        replaced=_replaced(run, segments, frame),
        validation=_validation(rings, frame),
        reads=tuple(Read(ring.step, ring.sample_start, ring.sample_end, ring.batch_digest) for ring in rings),
        alarms=tuple(judged(_judge(run), segments, rings)),
        restarts=tuple(_restarts(segments)),
        incidents=tuple(_incidents(run, problems)),
        problems=tuple(problems),
        missing=missing,
        flops_formula=rings[-1].flops_formula if rings else None,
    )


def _headless_attempts(run: RunDirectory) -> Iterator[EvidenceError]:
    """An error for each file of rings without a header beside it."""
    for rings in sorted(run.attempts_folder.glob(f"*/{RINGS_FILE}")):
        header = rings.parent / HEADER_FILE
        if not header.exists():
            text = f"{rings}: there is no {HEADER_FILE} beside it, so the run of these rings is unknown"
            yield EvidenceError(text, file=header, found="no file", expected="the header of the attempt")


def _segments(run: RunDirectory, problems: list[EvidenceError]) -> tuple[list[PathSegment], str]:
    """The path to the newest ring and what is missing before it; if it is broken, every attempt whose header holds."""
    try:
        return segments_left(run)
    except EvidenceError as error:
        problems.append(error)
    segments = []
    for attempt in run.attempts():
        try:
            attempt.header  # noqa: B018 - reading checks it
        except EvidenceError as error:
            problems.append(error)
            continue
        segments.append(PathSegment(run, attempt, None))
    return segments, ""


def _lengths(segments: list[PathSegment], rings: list[Ring]) -> list[int]:
    """The number of rings of each segment of a complete path."""
    steps = [ring.step for ring in rings]
    ends = [
        bisect_right(steps, segment.last_step) if segment.last_step is not None else len(steps) for segment in segments
    ]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def _path_rings(
    segments: list[PathSegment], problems: list[EvidenceError], *, whole: bool
) -> tuple[list[Ring], list[int]]:
    """Rings of all segments up to the first fault, and the number of each segment's."""
    rings: list[Ring] = []
    lengths: list[int] = []
    for segment in segments:
        before = len(rings)
        try:
            broken = broken_seam(segment.attempt, rings[-1] if rings else None)
            if broken and (whole or before > 0):
                problems.append(EvidenceError(broken, file=segment.attempt.path / HEADER_FILE))
            rings.extend(segment.rings())
        except EvidenceError as error:
            problems.append(error)
            if len(rings) == before:
                rings.extend(_rings_before_fault(segment.attempt, segment.last_step))
        lengths.append(len(rings) - before)
    return rings, lengths


def _rings_before_fault(attempt: AttemptDirectory, last_step: int | None) -> Iterator[Ring]:
    """The rings of an attempt before its first fault."""
    try:
        for ring in attempt.rings():
            if last_step is not None and ring.step > last_step:
                return
            yield ring
    except EvidenceError:
        return


def _frame(rings: list[Ring], segments: list[PathSegment], lengths: list[int]) -> pd.DataFrame:
    """Rows of the path; wall clock counts from the first attempt's start, process time is the sum of step times."""
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    attempts = np.repeat(np.array([segment.attempt.number for segment in segments], dtype=np.int64), lengths)
    start = segments[0].attempt.header.started_at if segments else 0.0
    step_s = np.array([ring.time_s.get("step", 0.0) for ring in rings], dtype=np.float64)
    ended = np.array([ring.ended_at for ring in rings], dtype=np.float64)
    facts: dict[str, Any] = {
        "segment": numbers,
        "attempt": attempts,
        "step": [ring.step for ring in rings],
        "samples": [ring.consumed_samples for ring in rings],
        "tokens": [ring.consumed_tokens for ring in rings],
        "wall_s": ended - start,
        "process_s": np.cumsum(step_s),
        "ended_at": ended,
    }
    return pd.DataFrame({**facts, **_metric_columns(rings, _shares(rings, segments, lengths))})


def _shares(rings: list[Ring], segments: list[PathSegment], lengths: list[int]) -> Iterator[dict[str, float]]:
    """The metrics that `efficiency` computes for each ring; none if the run's config does not hold."""
    following = iter(rings)
    for segment, length in zip(segments, lengths, strict=True):
        own = islice(following, length)
        try:
            resolved, header = segment.run.resolved, segment.attempt.header
        except EvidenceError:
            yield from ({} for _ in own)
            continue
        shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
        for ring in own:
            yield dict(efficiency(ring, header, shape).metrics())


def _metric_columns(rings: Iterable[Ring], shares: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """All metrics of the rings except held-out losses, and their shares; NaN where a ring lacks one."""
    rows = [
        {column(key): value for key, value in (ring_metrics(ring) | own).items() if not key.startswith("validation/")}
        for ring, own in zip(rings, shares, strict=True)
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, math.nan) for row in rows] for name in names}


def _replaced(run: RunDirectory, segments: list[PathSegment], path: pd.DataFrame) -> pd.DataFrame:
    """Rings of this run's attempts after the point to which a restart returned."""
    last_on_path = {segment.attempt.number: segment.last_step for segment in segments if segment.run.path == run.path}
    frames = []
    for attempt in run.attempts():
        last = last_on_path.get(attempt.number, 0)
        if last is None:
            continue
        try:
            start = attempt.header.started_at
        except EvidenceError:
            continue
        rings = [ring for ring in _rings_before_fault(attempt, None) if ring.step > last]
        if rings:
            frames.append(_frame(rings, [PathSegment(run, attempt, None)], [len(rings)]).assign(segment=attempt.number))
            frames[-1]["wall_s"] += start - segments[0].attempt.header.started_at if segments else 0.0
            frames[-1]["process_s"] += path.loc[path["step"] == last, "process_s"].sum()
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(FACTS))


def _validation(rings: list[Ring], frame: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for index, ring in enumerate(rings):
        if ring.validation is not None:
            rows.append((index, "", ring.validation["loss"]))
            rows.extend((index, corpus, loss) for corpus, loss in ring.validation["by_corpus"].items())
    measured = pd.DataFrame(rows, columns=["row", "corpus", "loss"])
    where = frame.loc[measured["row"].to_list(), list(FACTS)].reset_index(drop=True)
    return pd.concat([where, measured[["corpus", "loss"]]], axis=1)


def _judge(run: RunDirectory) -> RingAlarms:
    try:
        return judge_of(run)
    except EvidenceError:
        return RingAlarms()


def _incidents(run: RunDirectory, problems: list[EvidenceError]) -> list[tuple[int, Incident]]:
    found = []
    for attempt in run.attempts():
        try:
            found += [(attempt.number, incident) for incident in attempt.incidents()]
        except EvidenceError as error:
            problems.append(error)
    return found


def _restarts(segments: list[PathSegment]) -> Iterator[Restart]:
    for before, segment in pairwise(segments):
        header = segment.attempt.header
        last = before.last_step or 0
        # Steps of another run after the step from which this run starts were not repeated.
        own = before.run.path == segment.run.path
        done = max((ring.step for ring in _rings_before_fault(before.attempt, None)), default=last) if own else last
        yield Restart(last + 1, header.attempt, header.origin, max(0, done - last))
