"""The line of any run: the one function that lists, pages and JSON ask."""

import time
from dataclasses import replace

from treering.metrics.lines.line import RunLine
from treering.metrics.lines.own import own_line
from treering.metrics.lines.recorded import recorded_line
from treering.metrics.path_summary import PathSummary
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.reproductions import newest_reproduction_line


def run_line(run: AnyRun, *, now: float | None = None, path: PathSummary | None = None) -> RunLine:
    """One run in a line.

    A config or log that does not hold is a state, not an error: one damaged run must not hide the others.

    Args:
        run: the run.
        now: Unix seconds; default the clock's.
        path: the summary of the path of a run of Treering's trainer, if it has been read already.
    """
    now = time.time() if now is None else now
    line = own_line(run, now, path) if isinstance(run, RunDirectory) else recorded_line(run, now)
    return replace(line, reproduction=newest_reproduction_line(run))
