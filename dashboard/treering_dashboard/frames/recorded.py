"""What the run pages draw of a run that another trainer reported."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from treering.errors import EvidenceError
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.blocks import rows_of
from treering.runlog.columns.ranks import RankedColumns, columns_of_path
from treering.runlog.metric_catalog import METRICS, Metric, described
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory, RecordedSegment
from treering.runlog.recorded_ring import RecordedRing
from treering_dashboard.frames.curves import Curves
from treering_dashboard.frames.rings import Restart, RunFrames
from treering_dashboard.frames.shares import report_speed, report_time
from treering_dashboard.frames.sources import ColumnSource, RowSource
from treering_dashboard.frames.stretch import Compute, Stretch

Source = ColumnSource | RowSource


def read_recorded(run: RecordedRunDirectory) -> RunFrames:
    """Reads a run; broken evidence goes to `problems` and is never raised."""
    problems: list[EvidenceError] = []
    segments = _segments(run, problems)
    stretches: list[Stretch] = []
    names: dict[str, None] = {}
    replaced = []
    ends: dict[int, int] = {}
    on_path = {segment.attempt.number: segment.last_step for segment in segments}
    all_ranks = _report_all_ranks(segments)
    for attempt in run.attempts():
        try:
            started_at = attempt.header.started_at
        except EvidenceError as error:
            problems.append(error)
            continue
        source, ends[attempt.number] = _source(attempt, problems, all_ranks=all_ranks)
        names |= dict.fromkeys(source.names())
        whole = Stretch(len(stretches), attempt.number, source, ends[attempt.number], 0, started_at)
        if attempt.number in on_path:
            last = on_path[attempt.number]
            stretches.append(whole if last is None else replace(whole, last_step=min(last, whole.last_step)))
        last = on_path.get(attempt.number, 0)
        if last is not None and whole.last_step > last:
            replaced.append((replace(whole, number=attempt.number, after=last), last or attempt.header.resumed_step))
    metrics: dict[str, tuple[str, Metric]] = {metric.key: (name, metric) for name, metric in described(names).items()}
    computed: dict[str, Compute] = {}
    if "time/step" not in metrics:
        computed["time/report"] = report_time
    if "speed/tokens_per_second" not in metrics and all_ranks:
        computed["speed/reported_tokens_per_second"] = report_speed
    metrics |= {key: (key, METRICS[key]) for key in computed}
    begin = stretches[0].started_at if stretches else 0.0
    path = Curves(tuple(replace(each, computed=computed) for each in stretches), metrics, cumulative=False, begin=begin)
    lost = tuple(replace(each, computed=computed, offset=path.until(last)) for each, last in replaced)
    return RunFrames(
        path=path,
        replaced=Curves(lost, metrics, cumulative=False, begin=begin),
        restarts=tuple(_restarts(segments, ends)),
        problems=tuple(problems),
        recorded=True,
        all_ranks=all_ranks,
    )


def _report_all_ranks(segments: list[RecordedSegment]) -> bool:
    """Whether the tokens of a path are those of all ranks; else they are drawn of rank 0 alone."""
    try:
        return columns_of_path([(segment.attempt, segment.last_step) for segment in segments])[1]
    except EvidenceError:
        return all(_is_alone(segment.attempt) for segment in segments)


def _is_alone(attempt: RecordedAttempt) -> bool:
    """Whether one process alone reports; an attempt whose header does not hold is not drawn."""
    try:
        return attempt.header.world_size == 1
    except EvidenceError:
        return True


def _segments(run: RecordedRunDirectory, problems: list[EvidenceError]) -> list[RecordedSegment]:
    """The path; if it is broken, every attempt whose header holds."""
    try:
        run.record  # noqa: B018 - reading checks it
    except EvidenceError as error:
        problems.append(error)
    try:
        return run.path_to_end()
    except EvidenceError as error:
        problems.append(error)
        return [RecordedSegment(attempt, None) for attempt in run.attempts()]


def _source(attempt: RecordedAttempt, problems: list[EvidenceError], *, all_ranks: bool) -> tuple[Source, int]:
    """The rows of an attempt, before its first fault, and the last step that they hold."""
    try:
        columns = RankedColumns(attempt) if all_ranks else AttemptColumns(attempt)
        return ColumnSource(columns), columns.head().last_step
    except EvidenceError as error:
        problems.append(error)
        rings = list(_before_fault(attempt))
        return RowSource(rows_of(rings, range(len(rings)))), rings[-1].step if rings else 0


def _before_fault(attempt: RecordedAttempt) -> Iterator[RecordedRing]:
    try:
        yield from attempt.rings()
    except EvidenceError:
        return


def _restarts(segments: list[RecordedSegment], ends: dict[int, int]) -> Iterator[Restart]:
    for before, segment in pairwise(segments):
        last = before.last_step or 0
        lost = max(0, ends.get(before.attempt.number, last) - last)
        yield Restart(last + 1, segment.attempt.number, "resume", lost)
