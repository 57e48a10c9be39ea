"""How a byte-level tokenizer spells its tokens: many tokens back into text at once, without the tokenizer itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Printable Latin-1 stands for its own byte, the other 68 bytes for the letters from U+0100 on.
# Source: GPT-2, src/encoder.py, bytes_to_unicode.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + place): byte for place, byte in enumerate(byte for byte in range(0x100) if byte not in _PRINTABLE)
}


@dataclass(frozen=True, slots=True)
class Spelling:
    """The bytes that each token of a byte-level tokenizer stands for; can be sent to another process.

    Attributes:
        pieces: bytes of each token; empty for special tokens, and in the last entry, for every number beyond the
            vocabulary: object [vocabulary + 1].
        lengths: their lengths: int64 [vocabulary + 1].
    """

    pieces: npt.NDArray[np.object_]
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Spelling":
        """Asks a tokenizer for all of its tokens."""
        special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        found = {number: token for token, number in tokenizer.get_vocab(with_added_tokens=True).items()}
        pieces = np.full(max(found, default=-1) + 2, b"", dtype=object)
        for number, token in found.items():
            if number not in special:
                pieces[number] = _spelled(token)
        return cls(pieces, np.array([len(piece) for piece in pieces], dtype=np.int64))

    def num_bytes(self, tokens: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Bytes that each of some tokens stands for: int64, shape as `tokens`."""
        return np.take(self.lengths, tokens, mode="clip")

    def texts(self, tokens: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> list[str]:
        """Text of documents whose tokens follow one another.

        Bytes that are not UTF-8 become U+FFFD, as in the tokenizer's own decoder.

        Args:
            tokens: of all of them: [num_tokens].
            ends: the token after the last one of each document, ascending: [num_documents].
        """
        joined = b"".join(np.take(self.pieces, tokens, mode="clip").tolist())
        starts = np.zeros(len(tokens) + 1, dtype=np.int64)
        np.cumsum(self.num_bytes(tokens), out=starts[1:])
        cuts: Sequence[int] = [0, *starts[ends].tolist()]
        return [joined[start:end].decode(errors="replace") for start, end in pairwise(cuts)]


def _spelled(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF[letter] for letter in token)
    except KeyError:  # an added token stands for its own text
        return token.encode()
