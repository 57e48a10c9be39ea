"""Which rank this process is, and how the other ranks find the attempt that rank 0 has begun."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from treering.collect.launcher import rank_variables
from treering.errors import EvidenceError, TrainingError, UserError
from treering.files import read_text
from treering.runlog.lock import is_held
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory

WAIT_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of this process among those that report samples.

    Attributes:
        rank: number of the process, from 0; rank 0 reports the metrics.
        world_size: how many processes there are.
    """

    rank: int
    world_size: int

    @classmethod
    def of(cls, rank: int | None, world_size: int | None, environ: Mapping[str, str] = os.environ) -> Self:
        """The rank as given, else as the launcher (torchrun, DeepSpeed, srun, mpirun) says, else 0 of 1.

        Raises:
            UserError: only one of the two was given, or the rank is not below the world size.
        """
        if (rank is None) is not (world_size is None):
            raise UserError("treering.start: found one of rank and world_size, expected both or neither")
        if rank is None or world_size is None:
            variables = {**environ, **rank_variables(environ)}
            rank, world_size = int(variables.get("RANK", "0")), int(variables.get("WORLD_SIZE", "1"))
        if not 0 <= rank < world_size:
            raise UserError(f"treering.start: found rank {rank} of world_size {world_size}, expected a rank below it")
        return cls(rank, world_size)


def announce(lock: int, attempt: int) -> None:
    """Writes into the file whose lock rank 0 holds that the header of an attempt is complete.

    Args:
        lock: descriptor of the lock, from `treering.runlog.lock.acquire`.
        attempt: number of the attempt.
    """
    os.pwrite(lock, f"{os.getpid()}\nattempt {attempt}\n".encode(), 0)


def await_attempt(run: RecordedRunDirectory, rank: Rank, seconds: float = WAIT_SECONDS) -> RecordedAttempt:
    """The attempt that rank 0 has begun, for another rank.

    Args:
        run: the run.
        rank: of this process.
        seconds: how long to wait for rank 0.

    Raises:
        TrainingError: rank 0 did not begin an attempt in time.
        UserError: rank 0 counts with another world size.
        EvidenceError: the attempt's header was changed.
    """
    deadline = time.monotonic() + seconds
    while True:
        number = _announced(run.lock)
        if number is not None:
            break
        if time.monotonic() > deadline:
            raise TrainingError(
                f"{run.path}: rank {rank.rank} of {rank.world_size} waited {seconds:.0f} s, and rank 0 has not begun "
                "an attempt; rank 0 must call treering.start with the same experiment and config, in the same folder"
            )
        time.sleep(_POLL_SECONDS)
    attempt = RecordedAttempt(run.attempt_folder(number))
    if attempt.header.world_size != rank.world_size:
        raise UserError(
            f"treering.start: rank {rank.rank} counts {rank.world_size} ranks, rank 0 counts "
            f"{attempt.header.world_size}; give every rank the same world_size"
        )
    return attempt


def _announced(lock: Path) -> int | None:
    """The attempt that the holder of a lock has announced; None where nobody holds the lock or none is announced.

    Raises:
        EvidenceError: the file cannot be read.
    """
    if not is_held(lock):
        return None
    try:
        lines = read_text(lock, encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{lock}: cannot be read ({error})", file=lock) from error
    if len(lines) < 2 or not lines[1].startswith("attempt "):
        return None
    return int(lines[1].removeprefix("attempt "))
