"""What a run's journal says of promotions, for MLflow: the newest checkpoint of each alias."""

from treering.runlog.directory import RunDirectory
from treering.runlog.folders import RunFolder
from treering.runlog.journal import Promoted
from treering.runlog.recorded_directory import RecordedRunDirectory


def promotions_of(run: RunFolder) -> dict[str, Promoted]:
    """The newest promotion of each alias in a run's journal.

    Raises:
        EvidenceError: the journal was changed.
    """
    if not isinstance(run, RunDirectory | RecordedRunDirectory):
        return {}
    entries = [line.entry for line in run.journal.lines()]
    return {entry.alias: entry for entry in entries if isinstance(entry, Promoted)}
