"""Arrays on disk that a step of curation reads and writes at random, with a bound on what stays in memory."""

import mmap
from array import array
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

_FAULT_BYTES = 64 << 10
"""Most bytes that one access maps. Source: `fault_around_bytes` of Linux, 64 KiB unless an administrator changed it."""
_FILL = 1 << 16


class DiskArray:
    """A one-dimensional array in a new file, mapped into memory.

    The pages that an access maps count as memory of the process until `release`. Whoever walks the array calls
    `release` after every `stride` accesses, which bounds that memory.

    Args:
        path: the file; an old one is replaced.
        count: length of the array, at least 1.
        code: of its numbers: q for int64, B for uint8.
        memory_bytes: most memory that mapped pages may take.

    Attributes:
        array: the numbers, for whole ranges.
        view: the same numbers, for one at a time: several times faster than `array`.
        stride: accesses between two calls of `release`.
    """

    def __init__(self, path: Path, count: int, code: Literal["q", "B"], memory_bytes: int) -> None:
        num_bytes = count * np.dtype(code).itemsize
        with path.open("wb+") as file:
            for begin in range(0, num_bytes, _FILL):  # a full disk is an error here, and kills the process in a map
                file.write(bytes(min(_FILL, num_bytes - begin)))
            file.flush()
            self._map = mmap.mmap(file.fileno(), num_bytes)
        self.array: npt.NDArray[Any] = np.frombuffer(self._map, code)
        self.view: memoryview[int] = memoryview(self._map).cast(code)
        self.stride = count if num_bytes <= memory_bytes else max(64, memory_bytes // _FAULT_BYTES)

    @classmethod
    def numbered(cls, path: Path, count: int, memory_bytes: int) -> "DiskArray":
        """An int64 array in which each number is its own place."""
        result = cls(path, count, "q", memory_bytes)
        for begin in range(0, count, _FILL):
            end = min(count, begin + _FILL)
            result.array[begin:end] = np.arange(begin, end)
            result.release()
        return result

    def release(self) -> None:
        """Gives the mapped pages back; what they hold stays in the file."""
        self._map.madvise(mmap.MADV_DONTNEED)


class DiskList:
    """A list of numbers of fixed length on disk, for a group of documents that is too large for memory.

    Args:
        array: an int64 array; nothing else uses it.
    """

    def __init__(self, array: DiskArray) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array.view)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        found = self._array.view[place]
        result = found.tolist() if isinstance(found, memoryview) else int(found)
        self._array.release()
        return result

    def __setitem__(self, place: slice, numbers: list[int]) -> None:
        self._array.view[place] = array("q", numbers)
        self._array.release()
