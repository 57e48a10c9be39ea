"""A corpus whose tokens stay in S3: index and document table are files here, tokens are read by ranges."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from treering.data.corpus.chunks import map_in_order
from treering.data.corpus.corpus import BIN, Corpus, Damage, token_digest
from treering.data.corpus.manifest import CHUNK_BYTES

ReadRange = Callable[[int, int], bytes]
"""The bytes [start, end) of `corpus.bin`; fewer where it ends before."""

_BLOCK: Final = 1 << 16
_KEPT_BLOCKS: Final = 4096


class RangedTokens:
    """Tokens that are read when they are asked for; the latest 256 MiB are kept.

    Args:
        read: reads a range of the file.
        dtype: of a token.
        count: tokens of the file.
    """

    def __init__(self, read: ReadRange, dtype: npt.DTypeLike, count: int) -> None:
        self._dtype = np.dtype(dtype)
        self._count = count
        self._block = lru_cache(_KEPT_BLOCKS)(lambda number: read(number * _BLOCK, (number + 1) * _BLOCK))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        """Tokens of a slice without a step."""
        first, end, _ = part.indices(self._count)
        width = self._dtype.itemsize
        start, stop = first * width, max(first, end) * width
        begin = start // _BLOCK
        blocks = b"".join(self._block(number) for number in range(begin, -(-stop // _BLOCK)))
        content = blocks[start - begin * _BLOCK : stop - begin * _BLOCK]
        return np.frombuffer(content[: len(content) // width * width], self._dtype)


@dataclass(frozen=True)
class RangedCorpus(Corpus):
    """A corpus with its tokens elsewhere; `directory` holds the other files.

    Attributes:
        place: where its files are, for people.
        read: reads a range of `corpus.bin` there.
    """

    place: str
    read: ReadRange

    @cached_property
    def ranged_tokens(self) -> RangedTokens:
        """All tokens, read by ranges."""
        return RangedTokens(self.read, f"<u{self.manifest['token_width_bytes']}", self.num_tokens)

    @property
    def _tokens(self) -> RangedTokens:  # type: ignore[override]
        return self.ranged_tokens

    @property
    def _mapped_tokens(self) -> RangedTokens:  # type: ignore[override]
        return self.ranged_tokens

    def _damaged_chunks(self, name: str, advance: Callable[[int], None]) -> list[Damage]:
        if name != BIN:
            return super()._damaged_chunks(name, advance)
        expected = self.manifest["files"][BIN]
        size, found = int(expected["size"]), []

        def digest(start: int) -> str:
            return f"sha256:{hashlib.sha256(self.read(start, min(start + CHUNK_BYTES, size))).hexdigest()}"

        starts = range(0, size, CHUNK_BYTES)
        for number, (start, actual) in enumerate(zip(starts, map_in_order(digest, starts), strict=True)):
            end = min(start + CHUNK_BYTES, size)
            if actual != expected["chunks"][number]:
                reason = f"found {actual}, expected {expected['chunks'][number]}"
                found.append(Damage(BIN, number, start, end, (), (), reason))
            advance(end - start)
        return found

    def _damaged_in_bin(self, start: int, end: int, offsets: npt.NDArray[np.int64]) -> list[int]:
        width = int(self.manifest["token_width_bytes"])
        first = max(0, int(np.searchsorted(offsets, start // width, side="right")) - 1)
        last = min(int(np.searchsorted(offsets, -(-end // width), side="left")), self.num_documents)
        rows = self.documents(range(first, last), ["digest"])
        return [
            number
            for number, row in zip(range(first, last), rows, strict=True)
            if token_digest(self.ranged_tokens[int(offsets[number]) : int(offsets[number + 1])]) != row["digest"]
        ]
