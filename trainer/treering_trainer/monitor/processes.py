"""Starts one process a rank on this machine, watches them, and ends all ranks when one fails.

Without GPUs, ranks are forked from one process that has imported everything once: seconds instead of a minute. With
GPUs, each rank is a new interpreter, since a forked process cannot use CUDA after its parent has called it.
"""

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from treering.collect.memory import count_oom_kills
from treering.ending import EXIT_RESTART, heeded
from treering.errors import TrainingError
from treering_trainer.monitor import heartbeat
from treering_trainer.monitor.heartbeat import Heartbeats
from treering_trainer.monitor.watchdog import Stuck, Watchdog

EXIT_CONTACT_LOST = 74
"""EX_IOERR, from a rank to its launcher: another rank no longer answers, so the cause is in another rank."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Signals after which a run stops when its current step is done; Slurm sends SIGUSR1 before a job's time is over. A
signal that was ignored when the run began stays ignored, as SIGINT is in a background job."""

STORE_VARIABLES: Final = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
"""With these, torch's process group looks for its store at MASTER_PORT instead of opening that port in rank 0.

Source: torch/distributed/rendezvous.py, as torchrun sets them; TORCHELASTIC_RUN_ID, which says "torchrun", stays unset.
"""

_PR_SET_PDEATHSIG = 1
_GRACE_S = 3.0
_SETTLE_S = 0.5
_UNKILLABLE_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How one rank's process ended.

    Attributes:
        rank: the rank.
        process: its process id.
        code: exit code, or minus the signal that killed it.
        order: how many ranks ended before.
        doing: what the rank was doing, empty if unknown.
        out_of_memory: whether the kernel has killed a process, perhaps this one, for memory since the ranks started.
    """

    rank: int
    process: int
    code: int
    order: int
    doing: str = ""
    out_of_memory: bool = False


@dataclass(slots=True)
class Ranks:
    """The rank processes of an attempt: which run, and how the others ended.

    Attributes:
        running: rank by process id.
        ended: how ranks ended, in order.
        stuck: the ranks that were ended because they sent no heartbeat for too long, if any.
        stop_signal: the first signal of the user, if any.
        heartbeats: the heartbeats of all ranks, once the ranks are started.
    """

    running: dict[int, int] = field(default_factory=dict)
    ended: list[RankEnd] = field(default_factory=list)
    stuck: Stuck | None = None
    stop_signal: int | None = None
    heartbeats: Heartbeats | None = None
    _store: Any = None
    _insisted: int = 0
    _oom_kills: int | None = None

    def start(self, world_size: int, start_rank: Callable[[int, dict[str, str]], int]) -> None:
        """Starts all ranks, which meet at a port that this process has opened: no other program can take it meanwhile.

        Args:
            world_size: how many.
            start_rank: starts one rank with these environment variables and returns its process id; the rank inherits
                the descriptor of `heartbeats`.
        """
        self.heartbeats = Heartbeats(world_size)
        self._oom_kills = count_oom_kills()
        meeting = MeetingPoint()
        for rank in range(world_size):
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size),
                **meeting.variables,
                heartbeat.VARIABLE: str(self.heartbeats.descriptor),
            }
            self.running[start_rank(rank, variables)] = rank
        self._store = meeting.serve()

    def watch(self, timeout_s: float) -> list[RankEnd]:
        """Waits for all ranks; when one ends badly, or is stuck, the others are ended within seconds.

        The first signal is passed on, so that ranks stop after the step under way; a second SIGINT or SIGTERM ends them
        at once. SIGUSR1 is a warning that another one follows: it does not count.

        Args:
            timeout_s: seconds without a sign of it after which a rank is stuck.

        Returns:
            How each rank ended, in order.
        """
        previous = {name: signal.signal(name, self._pass_on) for name in heeded(*STOP_SIGNALS)}
        watchdog = Watchdog(self.heartbeats, timeout_s) if self.heartbeats else None
        try:
            while self.running:
                self._reap()
                if any(end.code not in (0, EXIT_RESTART) for end in self.ended):
                    self._end_all()
                elif watchdog and (stuck := watchdog.look({rank: process for process, rank in self.running.items()})):
                    self.stuck = stuck
                    self._end_stuck()
                time.sleep(_POLL_S)
        finally:
            self._signal_all(signal.SIGKILL)
            for name, handler in previous.items():
                signal.signal(name, handler)
        return self.ended

    def culprit(self) -> RankEnd | None:
        """The rank to blame: one that was killed, else one with a `TreeringError`, else the first that failed.

        Ranks that lose contact with a dead rank fail too, sometimes before its death is noticed.
        """
        failed = [end for end in self.ended if end.code not in (0, EXIT_RESTART)]
        order = sorted(failed, key=lambda end: (end.code > 0, end.code == EXIT_CONTACT_LOST, end.code == 1, end.order))
        return order[0] if order else None

    def stopped_by(self, end: RankEnd) -> bool:
        """Whether a rank ended only because of the user's signals: the second, or the first before it was handled.

        A `TreeringError` has other exit codes and stays an error.
        """
        return self.stop_signal is not None and (end.code < 0 or end.code in (1, EXIT_CONTACT_LOST))

    def _reap(self) -> None:
        for process, rank in list(self.running.items()):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                del self.running[process]
                kills = count_oom_kills()
                self.ended.append(
                    RankEnd(
                        rank,
                        process,
                        os.waitstatus_to_exitcode(status),
                        len(self.ended),
                        doing=str(self.heartbeats.of(rank)) if self.heartbeats else "",
                        out_of_memory=None not in (kills, self._oom_kills) and kills != self._oom_kills,
                    )
                )

    def _end_all(self) -> None:
        """Ends all ranks, after a moment in which the others may fail by themselves and so show the culprit."""
        for wait_s, number in ((_SETTLE_S, signal.SIGTERM), (_GRACE_S, signal.SIGKILL)):
            until = time.monotonic() + wait_s
            while self.running and time.monotonic() < until:
                self._reap()
                time.sleep(_POLL_S)
            survivors = set(self.running)
            self._signal_all(number)
        self._reap_killed()
        # A rank that was ended here shows nothing about the cause.
        self.ended = [
            end
            for end in self.ended
            if not (end.process in survivors and end.code in (-signal.SIGKILL, -signal.SIGTERM))
        ]

    def _end_stuck(self) -> None:
        """Makes every rank write its stack traces into its log, then ends all ranks."""
        self._signal_all(signal.SIGUSR2)
        time.sleep(_SETTLE_S)
        self._reap()
        self._signal_all(signal.SIGKILL)
        self._reap_killed()

    def _reap_killed(self) -> None:
        """Waits for killed ranks; a rank that hangs in a system call is left to the kernel."""
        until = time.monotonic() + _UNKILLABLE_S
        while self.running and time.monotonic() < until:
            self._reap()
            time.sleep(_POLL_S)
        self.running.clear()

    def _pass_on(self, number: int, _frame: object) -> None:
        self.stop_signal = self.stop_signal or number
        self._insisted += number != signal.SIGUSR1
        self._signal_all(signal.SIGKILL if self._insisted > 1 else signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for process in self.running:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue


def die_with_parent(parent: int) -> None:
    """Makes the kernel end this process when its parent dies, so that no rank survives its launcher.

    Args:
        parent: process id of the parent; if the parent died before this call, this process ends.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_RESTART)


def fork(run: Callable[[], int]) -> int:
    """Forks a process that dies with this one.

    Args:
        run: what the process does; returns its exit code.

    Returns:
        The process id.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        die_with_parent(parent)
        code = run()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Skips the interpreter's exit, which would run the parent's exit handlers a second time.
        os._exit(code)


def fork_rank(run: Callable[[], int], log: Path, variables: dict[str, str]) -> int:
    """Forks one rank.

    Args:
        run: what the rank does; returns its exit code.
        log: file for everything that it prints.
        variables: added to its environment.

    Returns:
        The process id.
    """

    def rank() -> int:
        os.environ.update(variables)
        redirect(log)
        return run()

    return fork(rank)


def redirect(log: Path) -> None:
    """Sends standard output and error of this process to a file, those of C++ libraries as well."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


class MeetingPoint:
    """The port at which the ranks of this machine find each other, open from the beginning.

    A port that is only looked up, and opened by rank 0 seconds later, may be taken by another program meanwhile. Ranks
    that come before `serve` wait in the queue of the socket. So they can be forked before torch starts a thread here.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=socket.SOMAXCONN)

    @property
    def variables(self) -> dict[str, str]:
        """What a rank needs in its environment to come here."""
        port = self._socket.getsockname()[1]
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **STORE_VARIABLES}

    def serve(self) -> Any:
        """Starts torch's store at the port; it serves the ranks for as long as the caller keeps it."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # as HashStore: outside its `__all__`

        port = self._socket.getsockname()[1]
        return TCPStore(
            "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=self._socket.detach()
        )


def describe(end: RankEnd) -> str:
    """How a rank ended, in words."""
    if end.code < 0:
        try:
            name = signal.Signals(-end.code).name
        except ValueError:
            name = str(-end.code)
        how = f"was killed by {name}"
    else:
        how = f"failed with exit code {end.code}"
    doing = f" while {end.doing}" if end.doing else ""
    memory = ", perhaps out of memory: the kernel killed a process for memory meanwhile" if end.out_of_memory else ""
    return f"rank {end.rank} (process {end.process}) {how}{doing}{memory if end.code < 0 else ''}"


class RankFailedError(TrainingError):
    """A rank's process ended badly.

    Attributes:
        exit_code: the rank's own, 75 (restart me) if it was killed, 5 if it failed with another than a `TreeringError`.
    """

    def __init__(self, end: RankEnd, log: Path | None, reason: str) -> None:
        where = f", its log is {log}" if log else ""
        super().__init__(f"{describe(end)}; all ranks were ended{where}{f': {reason}' if reason else ''}")
        if end.code < 0 or end.code == EXIT_CONTACT_LOST:
            self.exit_code = EXIT_RESTART
        elif end.code != 1:  # 1 is Python's own, as after a full disk: then 5 stays
            self.exit_code = end.code


class RankStuckError(TrainingError):
    """A rank sent no heartbeat for too long; the same command continues from the newest checkpoint."""

    exit_code = EXIT_RESTART

    def __init__(self, stuck: Stuck, logs: Path) -> None:
        super().__init__(f"{stuck}; all ranks were ended, {logs} has the stack traces of each")
