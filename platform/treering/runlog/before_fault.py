"""What is left of the path of a run whose log does not hold: the rings before the first fault of each attempt.

Lists and pages show these numbers and name the faults; an audit does not use them.
"""

from bisect import bisect_right
from collections.abc import Iterator

from treering.errors import EvidenceError
from treering.runlog.ancestry import PathSegment, broken_seam, path_left, segments_left
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.folders import HEADER_FILE
from treering.runlog.ring import RINGS_FILE, Ring


def headless_attempts(run: RunDirectory) -> Iterator[EvidenceError]:
    """An error for each file of rings without a header beside it."""
    for rings in sorted(run.attempts_folder.glob(f"*/{RINGS_FILE}*")):
        header = rings.parent / HEADER_FILE
        if not header.exists():
            text = f"{rings}: there is no {HEADER_FILE} beside it, so the run of these rings is unknown"
            yield EvidenceError(text, file=header, found="no file", expected="the header of the attempt")


def rings_before_fault(
    run: RunDirectory, problems: list[EvidenceError]
) -> tuple[list[PathSegment], list[list[Ring]], str]:
    """The segments of the path, the rings of each up to the first fault, and what is missing before them.

    Args:
        run: the run.
        problems: gets what does not hold.
    """
    try:
        path = path_left(run)
    except EvidenceError:  # the fault is in the run itself: the rings before it are shown
        segments, missing = _segments(run, problems)
        return segments, _path_rings(segments, problems, whole=not missing), missing
    return list(path.segments), _split(list(path.segments), list(path.rings)), path.missing


def attempt_before_fault(attempt: AttemptDirectory, last_step: int | None) -> Iterator[Ring]:
    """The rings of an attempt before its first fault, up to a step; None: all."""
    try:
        for ring in attempt.rings():
            if last_step is not None and ring.step > last_step:
                return
            yield ring
    except EvidenceError:
        return


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


def _split(segments: list[PathSegment], rings: list[Ring]) -> list[list[Ring]]:
    """The rings of each segment of a complete path."""
    steps = [ring.step for ring in rings]
    ends = [
        bisect_right(steps, segment.last_step) if segment.last_step is not None else len(steps) for segment in segments
    ]
    return [rings[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _path_rings(segments: list[PathSegment], problems: list[EvidenceError], *, whole: bool) -> list[list[Ring]]:
    """Rings of each segment up to the first fault."""
    parts: list[list[Ring]] = []
    last: Ring | None = None
    for segment in segments:
        rings: list[Ring] = []
        try:
            broken = broken_seam(segment.attempt, last)
            if broken and (whole or last is not None):
                problems.append(EvidenceError(broken, file=segment.attempt.path / HEADER_FILE))
            rings.extend(segment.rings())
        except EvidenceError as error:
            problems.append(error)
            rings = rings or list(attempt_before_fault(segment.attempt, segment.last_step))
        parts.append(rings)
        last = rings[-1] if rings else last
    return parts
