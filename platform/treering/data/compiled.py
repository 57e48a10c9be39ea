"""Machine code for the inner loops of curation, compiled by numba at the first call: words, their hashes, MinHash.

All arithmetic here is on whole numbers, so that every machine gives the same bits. The compiled code is kept in
`NUMBA_CACHE_DIR` if that is set, else in the `__pycache__` beside this file, else in the user's cache folder. Where
none of them can be written, every process compiles again, which takes some seconds. A full disk there ends the command.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from treering.config.canonical import DIGEST_PREFIX, digest_file

Function = TypeVar("Function", bound=Callable[..., object])
Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

WORD, ALPHABETIC = 1, 2
"""Bits of `character_classes`."""

_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64, (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
"""The primes of xxHash64. Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md"""


@cache
def _source(path: str) -> str:
    """In the names of the cached files: numba knows a function by its own code alone, not by what it calls."""
    return digest_file(Path(path)).removeprefix(DIGEST_PREFIX)[:16]


def compiled(function: Function) -> Function:
    """The function as machine code; never with reordered arithmetic, the GIL released while it runs.

    Compiled functions that it calls must be in its own module.
    """
    function.__qualname__ += f"_{_source(function.__code__.co_filename)}"
    try:
        return cast("Function", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba finds no folder for its cache
        return cast("Function", numba.njit(nogil=True)(function))


@cache
def character_classes() -> Bytes:
    """By code point: whether it belongs to a word, and whether it is a letter: uint8 [0x110000]."""
    table = np.zeros(0x110000, np.uint8)
    for run in re.finditer(r"\w+", "".join(map(chr, range(len(table))))):
        letters = np.fromiter(map(str.isalpha, run[0]), np.uint8, len(run[0]))
        table[run.start() : run.end()] = letters * np.uint8(ALPHABETIC) | np.uint8(WORD)
    return table


@compiled
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@compiled
def _read(data: Bytes, at: int, size: int) -> np.uint64:
    value = np.uint64(0)
    for index in range(size):
        value |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return value


@compiled
def _round(state: np.uint64, value: np.uint64) -> np.uint64:
    return _rotate(state + value * _P2, 31) * _P1


@compiled
def _xxh64(data: Bytes, start: int, end: int) -> np.uint64:
    """XXH64, seed 0, of the bytes [start, end)."""
    at = start
    if end - start >= 32:
        a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        while at + 32 <= end:
            a, b = _round(a, _read(data, at, 8)), _round(b, _read(data, at + 8, 8))
            c, d = _round(c, _read(data, at + 16, 8)), _round(d, _read(data, at + 24, 8))
            at += 32
        state = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            state = (state ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        state = _P5
    state += np.uint64(end - start)
    while at + 8 <= end:
        state = _rotate(state ^ _round(np.uint64(0), _read(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        state = _rotate(state ^ (_read(data, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        state = _rotate(state ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


@compiled
def _code_point(data: Bytes, at: int) -> tuple[np.int64, int]:
    """The code point that starts at a byte of UTF-8, and its bytes."""
    first = np.int64(data[at])
    if first < 0x80:
        return first, 1
    width = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2
    point = first & (0x7F >> width)
    for index in range(at + 1, at + width):
        point = point << 6 | np.int64(data[index] & 63)
    return point, width


@compiled
def _which(word: np.uint32, stop_words: npt.NDArray[np.uint32]) -> int:
    """The bit of a stop word; 0 for another word."""
    for number in range(len(stop_words)):
        if word == stop_words[number]:
            return 1 << number
    return 0


@compiled
def scan_words(
    data: Bytes, classes: Bytes, stop_words: npt.NDArray[np.uint32], hashes: Hashes
) -> tuple[int, int, int, int]:
    """Finds the words of a text and their hashes.

    Args:
        data: the text in lower case, UTF-8 (a lone surrogate in three bytes).
        classes: see `character_classes`.
        stop_words: different words of at most four bytes, each as a little-endian number; at most 32.
        hashes: takes XXH64 of every word, in order.

    Returns:
        Number of words, characters in them, words with a letter, and different stop words.
    """
    count, characters, alphabetic, seen = 0, 0, 0, 0
    start, letter, at, size = -1, False, 0, len(data)
    while at <= size:
        width, kind = 1, np.int64(0)
        if at < size:
            point, width = _code_point(data, at)
            kind = np.int64(classes[point])
        if kind & 1:
            if start < 0:
                start, letter = at, False
            characters += 1
            letter |= (kind & 2) != 0
        elif start >= 0:
            hashes[count] = _xxh64(data, start, at)
            if at - start <= 4:
                seen |= _which(np.uint32(_read(data, start, at - start)), stop_words)
            count += 1
            alphabetic += letter
            start = -1
        at += width
    distinct = 0
    for number in range(len(stop_words)):
        distinct += (seen >> number) & 1
    return count, characters, alphabetic, distinct


@compiled
def _power(base: np.uint64, exponent: int) -> np.uint64:
    result = np.uint64(1)
    for _ in range(exponent):
        result *= base
    return result


@compiled
def _mixed(run: np.uint64, mix: np.uint64) -> np.uint64:
    run = (run ^ (run >> np.uint64(30))) * mix
    return run ^ (run >> np.uint64(27))


@compiled
def hash_runs(hashes: Hashes, length: int, multiplier: np.uint64, mix: np.uint64) -> Hashes:
    """The hash of every run of `length` words, by the formula of `treering.data.words.run_hashes`."""
    runs = np.empty(max(0, len(hashes) - length + 1), dtype=np.uint64)
    run, highest = np.uint64(0), _power(multiplier, length)
    for last in range(len(hashes)):
        run = run * multiplier + hashes[last]
        if last >= length:
            run -= hashes[last - length] * highest
        if last >= length - 1:
            runs[last - length + 1] = _mixed(run, mix)
    return runs


@compiled
def _prefix_shift(starts: npt.NDArray[np.int64]) -> np.uint64:
    """By how many bits a hash is shifted to be a place in `starts`."""
    shift = 64
    while 1 << (64 - shift) < len(starts) - 1:
        shift -= 1
    return np.uint64(shift)


@compiled
def _first_at_least(table: Hashes, starts: npt.NDArray[np.int64], shift: np.uint64, key: np.uint64) -> int:
    """Index of the first entry of a sorted table that is at least a key."""
    prefix = np.int64(key >> shift)
    low, high = int(starts[prefix]), int(starts[prefix + 1])
    while low < high:
        middle = (low + high) // 2
        if table[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def find_run(  # noqa: PLR0917 - numba takes no keywords
    hashes: Hashes,
    length: int,
    table: Hashes,
    starts: npt.NDArray[np.int64],
    multiplier: np.uint64,
    mix: np.uint64,
) -> int:
    """Index in a sorted table of the hash of the first run of `length` words that is there; -1 if no run is.

    `starts` is `treering.data.words.starts_by_prefix` of the table.
    """
    run, highest, shift = np.uint64(0), _power(multiplier, length), _prefix_shift(starts)
    for last in range(len(hashes)):
        run = run * multiplier + hashes[last]
        if last >= length:
            run -= hashes[last - length] * highest
        if last < length - 1:
            continue
        mixed = _mixed(run, mix)
        index = _first_at_least(table, starts, shift, mixed)
        if index < len(table) and table[index] == mixed:
            return index
    return -1


@compiled
def most_alike(  # noqa: PLR0917 - numba takes no keywords
    members: Hashes,
    table: Hashes,
    starts: npt.NDArray[np.int64],
    owners: npt.NDArray[np.uint32],
    sizes: npt.NDArray[np.int64],
    common: npt.NDArray[np.int64],
) -> tuple[int, float]:
    """The owner of a sorted table whose set is most like a set, the first of several; -1 if none has a member of it.

    Args:
        members: of the set.
        table: the members of all owners' sets, sorted.
        starts: as `find_run` takes them.
        owners: of each entry of the table.
        sizes: of each owner's set.
        common: room for a number for each owner: all zero, before and after.

    Returns:
        The owner, and the Jaccard similarity of both sets.
    """
    shift = _prefix_shift(starts)
    for member in members:
        index = _first_at_least(table, starts, shift, member)
        while index < len(table) and table[index] == member:
            common[owners[index]] += 1
            index += 1
    best, highest = -1, 0.0
    for member in members:
        index = _first_at_least(table, starts, shift, member)
        while index < len(table) and table[index] == member:
            owner = int(owners[index])
            if common[owner]:
                similarity = common[owner] / (sizes[owner] + len(members) - common[owner])
                if similarity > highest or (similarity == highest and owner < best):
                    best, highest = owner, similarity
                common[owner] = 0
            index += 1
    return best, highest


@compiled
def drop_repeats(ordered: Hashes) -> Hashes:
    """The different members of a sorted array; the array itself is overwritten."""
    kept = 0
    for index in range(len(ordered)):
        if index == 0 or ordered[index] != ordered[kept - 1]:
            ordered[kept] = ordered[index]
            kept += 1
    return ordered[:kept].copy()


@compiled
def lowest_hashes(members: Hashes, multipliers: Hashes, offsets: Hashes, lowest: Hashes) -> None:
    """Lowers `lowest` to the minimum over all members of multiplier · member + offset, modulo 2⁶⁴, for each hash."""
    count, whole = len(multipliers), len(members) // 4 * 4
    for first in range(0, whole, 4):
        a, b, c, d = members[first], members[first + 1], members[first + 2], members[first + 3]
        for index in range(count):
            multiplier, offset = multipliers[index], offsets[index]
            low = min(multiplier * a + offset, multiplier * b + offset)
            other = min(multiplier * c + offset, multiplier * d + offset)
            lowest[index] = min(lowest[index], low, other)
    for first in range(whole, len(members)):
        for index in range(count):
            lowest[index] = min(lowest[index], multipliers[index] * members[first] + offsets[index])
