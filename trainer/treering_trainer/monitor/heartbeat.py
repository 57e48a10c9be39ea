"""Heartbeats: what each rank began last, in memory that the launcher shares with the ranks of its machine.

A rank sends a heartbeat before each part of a step. Sending is a store into memory, without a file or a lock. All ranks
send the same heartbeats in the same order, so the others wait for the rank with the fewest; among equals, for the rank
that does not wait in a collective.
"""

import mmap
import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final

VARIABLE: Final = "TREERING_HEARTBEATS"
"""Names the descriptor of the shared memory in a rank's environment; missing under an outer launcher."""

_ATTEMPT = struct.Struct("<QQ")
_HEARTBEAT = struct.Struct("<QQQQ")
_WAITS = struct.Struct("<Q")
_WAITS_AT = _HEARTBEAT.size - _WAITS.size


class Part(IntEnum):
    """The parts of a rank's work, in their order."""

    START = 0
    BUILD = 1
    LOAD = 2
    READ = 3
    AGREE = 4
    TRAIN = 5
    VALIDATE = 6
    RECORD = 7
    SAVE = 8
    LEAVE = 9
    DONE = 10


_WORDS: Final = {
    Part.START: "starting",
    Part.BUILD: "building the model",
    Part.LOAD: "loading the checkpoint",
    Part.READ: "reading the data of",
    Part.AGREE: "comparing batches before",
    Part.TRAIN: "training",
    Part.VALIDATE: "validating after",
    Part.RECORD: "recording",
    Part.SAVE: "saving the checkpoint of",
    Part.LEAVE: "leaving the others after",
    Part.DONE: "doing nothing any more",
}


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A rank's newest heartbeat.

    Attributes:
        count: how many heartbeats the rank has sent.
        part: the part that it began.
        step: the step that the part belongs to, 0 for a part outside the steps.
        waits: whether the rank waits in a collective; with an accelerator the host runs ahead, and this stays False.
    """

    count: int
    part: Part
    step: int
    waits: bool = False

    def __str__(self) -> str:
        words = _WORDS[self.part]
        return f"{words} step {self.step}" if self.step else words


class HeartbeatWriter:
    """Writes one rank's heartbeats.

    Args:
        memory: shared with the launcher, or private to this process without a launcher.
        rank: the rank.
        shared: whether a launcher reads the heartbeats.
    """

    current: ClassVar["HeartbeatWriter | None"] = None
    """The writer of this process, for the wrappers around collectives (`core.timing`)."""

    def __init__(self, memory: mmap.mmap, rank: int, *, shared: bool) -> None:
        self._memory = memory
        self._offset = _ATTEMPT.size + rank * _HEARTBEAT.size
        self._count = 0
        self.shared = shared

    @classmethod
    def of_this_process(cls) -> "HeartbeatWriter":
        """The writer of the rank that the environment names."""
        descriptor = os.environ.get(VARIABLE)
        if descriptor is None:
            cls.current = cls(mmap.mmap(-1, _ATTEMPT.size + _HEARTBEAT.size), 0, shared=False)
        else:
            cls.current = cls(mmap.mmap(int(descriptor), 0), int(os.environ["RANK"]), shared=True)
        return cls.current

    def begin(self, attempt: int, start_step: int) -> None:
        """Stores the attempt's number and its start step for the launcher."""
        _ATTEMPT.pack_into(self._memory, 0, attempt, start_step)

    def __call__(self, part: Part, step: int = 0) -> None:
        """Sends a heartbeat.

        Args:
            part: what begins now.
            step: the step that it belongs to.
        """
        self._count += 1
        _HEARTBEAT.pack_into(self._memory, self._offset, self._count, part, step, False)

    def waits(self, now: bool) -> None:
        """Stores whether this rank waits in a collective."""
        _WAITS.pack_into(self._memory, self._offset + _WAITS_AT, now)

    @property
    def last(self) -> Heartbeat:
        """The newest heartbeat."""
        return _read(self._memory, self._offset)


class Heartbeats:
    """The heartbeats of all ranks, as their launcher sees them.

    Args:
        world_size: number of ranks.

    Attributes:
        descriptor: of the shared memory, for the ranks to inherit.
    """

    def __init__(self, world_size: int) -> None:
        size = _ATTEMPT.size + world_size * _HEARTBEAT.size
        self.descriptor = os.memfd_create("treering-heartbeats")
        os.ftruncate(self.descriptor, size)
        self._memory = mmap.mmap(self.descriptor, size)

    @property
    def attempt(self) -> int:
        """The attempt's number, 0 before it is known."""
        return int(_ATTEMPT.unpack_from(self._memory)[0])

    @property
    def start_step(self) -> int:
        """The last step that was done when the attempt began."""
        return int(_ATTEMPT.unpack_from(self._memory)[1])

    def of(self, rank: int) -> Heartbeat:
        """A rank's newest heartbeat."""
        return _read(self._memory, _ATTEMPT.size + rank * _HEARTBEAT.size)


def _read(memory: mmap.mmap, offset: int) -> Heartbeat:
    count, part, step, waits = _HEARTBEAT.unpack_from(memory, offset)
    return Heartbeat(count, Part(part), step, bool(waits))
