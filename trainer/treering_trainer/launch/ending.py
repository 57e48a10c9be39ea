"""Records how an attempt ended whose ranks did not all finish; called by the launcher of the ranks.

A rank that was killed or is stuck cannot report anything, and the other ranks know only that it no longer answers.
"""

import signal
from contextlib import suppress
from pathlib import Path

from treering.ending import EXIT_INTERRUPTED, EXIT_RESTART
from treering.files import read_text
from treering_trainer.launch.job import write_end, write_incident
from treering_trainer.monitor.processes import (
    EXIT_CONTACT_LOST,
    RankFailedError,
    Ranks,
    RankStuckError,
    describe,
)


def record_failure(ranks: Ranks, attempt: Path) -> int | None:
    """Records an attempt that ended badly: its end, and an incident where the cause came from outside.

    Args:
        ranks: after `Ranks.watch`.
        attempt: the attempt's directory; if it does not exist yet, nothing is recorded.

    Returns:
        None if all ranks finished, else 75 or 130: a signal of the user or the time limit ended them.

    Raises:
        RankStuckError: a rank gave no sign for too long.
        RankFailedError: a rank was killed or failed.
    """
    if ranks.stuck is not None:
        stuck = RankStuckError(ranks.stuck, attempt / "logs")
        with suppress(OSError):  # a full disk must not hide what happened
            write_end(attempt, "interrupted", str(stuck))
            alone = ranks.stuck.ranks[0] if len(ranks.stuck.ranks) == 1 else None
            write_incident(attempt, "rank_stuck", str(ranks.stuck), alone)
        raise stuck
    culprit = ranks.culprit()
    if culprit is not None and not ranks.stopped_by(culprit):
        reason, log = read_reason(attempt, culprit.rank), log_file(attempt, culprit.rank)
        failed = RankFailedError(culprit, log if log.exists() else None, reason)
        with suppress(OSError):
            if culprit.code < 0:
                write_end(attempt, "interrupted", str(failed))
                write_incident(attempt, "rank_killed", describe(culprit), culprit.rank)
            elif culprit.code == EXIT_CONTACT_LOST:
                write_end(attempt, "interrupted", str(failed))
                write_incident(attempt, "contact_lost", reason, culprit.rank)
            else:  # a rank's own error is recorded as the attempt's end, not as an incident
                write_end(attempt, "failed", str(failed))
        raise failed
    if culprit is None and not any(end.code == EXIT_RESTART for end in ranks.ended):
        return None
    write_end(attempt, "interrupted", "ended by a second signal")
    return EXIT_INTERRUPTED if ranks.stop_signal == signal.SIGINT else EXIT_RESTART


def log_file(attempt: Path, rank: int) -> Path:
    """The file with everything that a rank prints."""
    return attempt / "logs" / f"rank-{rank}.log"


def reason_file(attempt: Path, rank: int) -> Path:
    """The file in which a rank writes, in one line, why it failed."""
    return log_file(attempt, rank).with_suffix(".error")


def read_reason(attempt: Path, rank: int) -> str:
    """Why a rank failed, empty if the rank wrote nothing."""
    path = reason_file(attempt, rank)
    return read_text(path) if path.exists() else ""
