"""Finds a rank that is stuck: alive, but without a heartbeat for too long, while the other ranks wait for it.

This works whatever a rank is stuck in: a collective, a read from a dead file server, a lock.

The watchdog names the rank that is stopped, else the one with the fewest heartbeats; among equals one that waits in no
collective, then one that waits for a device; else, as with several GPUs that wait for each other in the same part of a
step, all. Time in which the launcher was stopped (Ctrl-Z) does not count.

Under an outer launcher no process reads the heartbeats, and the timeout of collectives does this work. It is set for
every group that torch, DeepSpeed and megatron-core make; gloo's sends and receives between pipeline stages keep half an
hour. With NCCL, torch's watchdog aborts the processes instead of raising; that was not run.

"Perhaps out of memory" looks at kills in the ranks' control group or, without one, on the node; the kernel's log names
the process.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treering_trainer.monitor.heartbeat import Heartbeat, Heartbeats, Part

START_TIMEOUT_S: Final = 1800.0
"""Limit until an attempt's first step is done: corpora are digested, weights loaded, kernels compiled before."""

_LONGEST_LOOK_S = 1.0
_STATES = {"T": "it is stopped (SIGSTOP)", "t": "a debugger holds it", "D": "it waits for a device or a file server"}


@dataclass(frozen=True, slots=True)
class Stuck:
    """Ranks that sent no heartbeat for too long.

    Attributes:
        ranks: the ranks that the others wait for; several if they cannot be distinguished.
        silent_s: seconds since the last heartbeat of the rank that is silent longest.
        beat: that heartbeat.
        state: that rank's process state in the kernel, in words; empty if it explains nothing.
    """

    ranks: tuple[int, ...]
    silent_s: float
    beat: Heartbeat
    state: str

    def __str__(self) -> str:
        if len(self.ranks) == 1:
            cause = f"; {self.state}" if self.state else ""
            return f"rank {self.ranks[0]} has given no sign for {self.silent_s:.0f} s while {self.beat}{cause}"
        names = ", ".join(map(str, self.ranks))
        return f"ranks {names} have given no sign for {self.silent_s:.0f} s while {self.beat}, and none is behind"


class Watchdog:
    """Checks the heartbeats of all ranks again and again.

    Between two checks at most one second counts: if the whole machine was suspended, no rank is to blame.

    Args:
        heartbeats: of all ranks.
        timeout_s: seconds without a new heartbeat after which a rank is stuck, once its first step is done.
    """

    def __init__(self, heartbeats: Heartbeats, timeout_s: float) -> None:
        self._heartbeats = heartbeats
        self._timeout_s = timeout_s
        self._looked_at = time.monotonic()
        self._seen: dict[int, Heartbeat] = {}
        self._silent_s: dict[int, float] = {}

    def look(self, processes: Mapping[int, int]) -> Stuck | None:
        """Whether ranks are stuck by now.

        Args:
            processes: process ids of the living ranks, by rank.

        Returns:
            The ranks that are stuck, None if no rank is.
        """
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, _LONGEST_LOOK_S), now
        for rank in processes:
            beat = self._heartbeats.of(rank)
            known = rank in self._seen and self._seen[rank].count == beat.count
            self._silent_s[rank] = self._silent_s[rank] + passed if known else 0.0
            self._seen[rank] = beat
        training = {rank: process for rank, process in processes.items() if self._seen[rank].part is not Part.DONE}
        if not any(self._silent_s[rank] >= self._patience_s(rank) for rank in training):
            return None
        ranks, state = _behind({rank: self._seen[rank] for rank in training}, training)
        first = max(ranks, key=self._silent_s.__getitem__)
        return Stuck(ranks, self._silent_s[first], self._seen[first], state)

    def _patience_s(self, rank: int) -> float:
        started = self._seen[rank].step > self._heartbeats.start_step + 1
        return self._timeout_s if started else max(self._timeout_s, START_TIMEOUT_S)


def _behind(newest: Mapping[int, Heartbeat], processes: Mapping[int, int]) -> tuple[tuple[int, ...], str]:
    """The ranks that the others wait for, and their process state in words.

    These are the stopped ranks, if any. Otherwise they are the ranks with the fewest heartbeats; among those, the ranks
    that do not wait in a collective; among those, the ranks that wait for a device.
    """
    states = {rank: process_state(process) for rank, process in processes.items()}
    least = min(beat.count for beat in newest.values())
    found = [rank for rank in newest if states[rank] in ("T", "t")]
    found = found or [rank for rank in newest if newest[rank].count == least]
    found = [rank for rank in found if not newest[rank].waits] or found
    found = [rank for rank in found if states[rank] == "D"] or found
    return tuple(sorted(found)), _STATES.get(states[found[0]], "")


def process_state(process: int) -> str:
    """The kernel's letter for what a process does (proc(5)), empty if it is gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]
