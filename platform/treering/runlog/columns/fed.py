"""What each step of a run was fed, as arrays: sample range and digest of the batch.

The columns verify the chain of the rings once, when they are extended. Then the fields are read from the lines in bulk.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.ring import Ring
from treering.runlog.ring_file import open_rings

_READ_BYTES: Final = 32 << 20
_BLOCK_BYTES: Final = 2 << 20
"""What a thread of Arrow parses at once; a longer line is an error, and no ring is nearly as long."""
_COUNTS: Final = ("step", "sample_start", "sample_end")
_DIGEST: Final = "batch_digest"
_SCHEMA: Final = pa.schema([*((name, pa.int64()) for name in _COUNTS), (_DIGEST, pa.string())])

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fed:
    """What the steps of a path were fed.

    Attributes:
        steps: step of each ring.
        starts: first sample of the step; 0 where another trainer does not say.
        ends: one past the last sample; 0 where another trainer does not say.
        digests: digest of the batch as an Arrow array of texts; null where another trainer does not say.
    """

    steps: Integers
    starts: Integers
    ends: Integers
    digests: Any

    def __len__(self) -> int:
        return len(self.steps)

    def within(self, steps: range | None) -> "Fed":
        """What the steps of a range were fed; of all steps without a range."""
        if steps is None:
            return self
        start, end = (int(each) for each in np.searchsorted(self.steps, [steps.start, steps.stop]))
        return Fed(
            self.steps[start:end], self.starts[start:end], self.ends[start:end], self.digests.slice(start, end - start)
        )

    @classmethod
    def of_rings(cls, rings: Iterable[Ring]) -> "Fed":
        """The same of rings that were read one by one."""
        rows = [(ring.step, ring.sample_start, ring.sample_end, ring.batch_digest) for ring in rings]
        columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
        steps, starts, ends = (np.array(each, np.int64) for each in columns[:3])
        return cls(steps, starts, ends, pa.array(columns[3], pa.string()))


def fed_of(run: AnyRun) -> Fed:
    """What the steps on the path of a run were fed; of another trainer's run, what rank 0 reports.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    if isinstance(run, RunDirectory):
        path = PathColumns.of_run(run.path_to())
    else:
        path = PathColumns.of_recorded(run.path_to_end())
    return fed_along(path)


def fed_along(path: PathColumns) -> Fed:
    """What the steps of a path were fed, by its columns.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    parts = [_SCHEMA.empty_table()]
    for columns, last_step in path.stretches:
        for table in _tables(columns):
            steps = table["step"].to_numpy()
            parts.append(
                table if last_step is None else table.slice(0, int(np.searchsorted(steps, last_step, "right")))
            )
    whole = pa.concat_tables(parts).combine_chunks()
    steps, starts, ends = (whole[name].fill_null(0).to_numpy() for name in _COUNTS)
    return Fed(steps, starts, ends, whole[_DIGEST].combine_chunks())


def _tables(columns: Any) -> Iterator[Any]:
    """The fields of the rings that the columns hold, in blocks of whole lines."""
    left = columns.head().place.offset
    with open_rings(columns.rings_file) as file:
        rest = b""
        while left and (data := file.read(min(left, _READ_BYTES))):
            left -= len(data)
            rest += data
            whole = rest.rfind(b"\n") + 1
            if whole:
                yield pa.json.read_json(
                    pa.BufferReader(rest[:whole]),
                    read_options=pa.json.ReadOptions(block_size=_BLOCK_BYTES),
                    parse_options=pa.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"),
                )
                rest = rest[whole:]
