"""How an attempt ended whose ranks did not all reach its end: judged and put on record by their launcher.

A rank that was killed or is stuck can say nothing, and the others know only that it no longer answers.
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
    """Puts a bad end on record: the attempt's last word, and an incident where the cause came from outside.

    Args:
        ranks: after their watch.
        attempt: the attempt's directory; where there is none yet nothing is recorded.

    Returns:
        None if all ranks reached the end, else 75 or 130: a signal of the user or the time limit ended them.

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
            else:  # a rank's own error is no incident: the attempt's end says it
                write_end(attempt, "failed", str(failed))
        raise failed
    if culprit is None and not any(end.code == EXIT_RESTART for end in ranks.ended):
        return None
    write_end(attempt, "interrupted", "ended by a second signal")
    return EXIT_INTERRUPTED if ranks.stop_signal == signal.SIGINT else EXIT_RESTART


def log_file(attempt: Path, rank: int) -> Path:
    """Where everything goes that a rank prints."""
    return attempt / "logs" / f"rank-{rank}.log"


def reason_file(attempt: Path, rank: int) -> Path:
    """Where a rank says in one line why it failed."""
    return log_file(attempt, rank).with_suffix(".error")


def read_reason(attempt: Path, rank: int) -> str:
    """Why a rank failed, empty if it said nothing."""
    path = reason_file(attempt, rank)
    return read_text(path) if path.exists() else ""
