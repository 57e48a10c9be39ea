"""What each rank did last: heartbeats in memory that the launcher shares with the ranks of its machine.

A rank sends a heartbeat before each part of a step. That is a store into memory: no file, no lock, nothing to wait for.
All ranks send the same heartbeats in the same order, so the others wait for the rank with the fewest. Among equals they
wait for the rank that waits in no collective.
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
    """The parts of a rank's work, in words that a step's number may follow."""

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
        count: how many it has set.
        part: what it began then.
        step: the step that the part belongs to, 0 where it belongs to none.
        waits: whether it waits in a collective; an accelerator's host runs ahead of those and is not seen to wait.
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
        memory: shared with the launcher, or this process's own where nobody looks.
        rank: whose heartbeats.
        shared: whether a launcher looks at them.
    """

    current: ClassVar["HeartbeatWriter | None"] = None
    """This process's, for the places that all collectives pass through."""

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
        """Tells the launcher which attempt this is and after which step it begins."""
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
        """Says whether a collective is waited in."""
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
