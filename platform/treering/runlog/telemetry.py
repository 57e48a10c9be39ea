"""The telemetry files of an attempt, `telemetry/rank-N.jsonl`: one row a reading, read from the end.

`treering.collect.telemetry` writes them.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from treering.files import open_regular

STEP_METRICS: Final = ("rank/step", "rank/compute", "rank/communication", "rank/tflops")


def newest_rows(path: Path, max_bytes: int) -> Iterator[dict[str, Any]]:
    """The complete rows in the last `max_bytes` of a rank's telemetry; a file that is missing has none.

    A row without a time or without values is left out, and so is a torn last line.
    """
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines[1 if size > max_bytes else 0 : -1]:
        try:
            row = json.loads(line)
            float(row["time"])
            row["values"].items()
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        yield row
