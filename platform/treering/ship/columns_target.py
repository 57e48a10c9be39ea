"""The columns beside the rings, as a projection that is rebuilt. Nothing ships them: every reader extends them."""

from collections.abc import Iterator
from itertools import chain

from treering.runlog.columns.attempt import Attempt, AttemptColumns
from treering.runlog.columns.compare import columns_difference
from treering.runlog.columns.ranks import columned
from treering.runlog.folders import RunFolder
from treering.ship.shipper import source_of
from treering.ship.target import Difference


class ColumnsTarget:
    """The columns of all attempts of a run."""

    name = "columns"
    place = "attempts/*/columns"

    def shipper(self, run: RunFolder) -> None:
        """No shipper."""

    def difference(self, run: RunFolder) -> Difference | None:
        """The first difference between the columns and those that the rings give.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        behind = None
        for each in _columned(run):
            if found := columns_difference(each):
                if not found[1]:
                    return Difference(*found)
                behind = behind or Difference(*found)
        return behind

    def rebuild(self, run: RunFolder) -> str:
        """Builds the columns again.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        for each in _columned(run):
            AttemptColumns(each).rebuild()
        return ""


def _columned(run: RunFolder) -> Iterator[Attempt]:
    return chain.from_iterable(columned(attempt) for attempt in source_of(run).attempts())
