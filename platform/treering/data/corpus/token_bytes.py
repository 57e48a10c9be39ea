"""How a tokenizer spells its tokens: many tokens back into text at once, without the tokenizer itself."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from treering.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Printable Latin-1 stands for its own byte, the other 68 bytes for the letters from U+0100 on.
# Source: GPT-2, src/encoder.py, bytes_to_unicode.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + place): byte for place, byte in enumerate(byte for byte in range(0x100) if byte not in _PRINTABLE)
}
_NEVER_IN_TEXT = {0xC0, 0xC1, *range(0xF5, 0x100)}
"""Bytes that UTF-8 does not have."""
LETTERS_OF_TEXT = tuple(letter for letter, byte in _BYTE_OF.items() if byte not in _NEVER_IN_TEXT)
"""The letters by which byte-level tokenizers spell text."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(slots=True)
class _Decoder:
    """The rules of a tokenizer's decoder.

    Attributes:
        byte_level: whether each letter stands for a byte, as GPT-2's do.
        byte_fallback: whether `<0x0A>` stands for a byte.
        replaced: texts that are replaced in every token, and by what.
        joined: whether a space comes before every token that does not begin with `glue`.
        glue: beginning of tokens that follow the one before without a space.
        space: where a text has a space more than the document had.
    """

    byte_level: bool = False
    byte_fallback: bool = False
    replaced: list[tuple[str, str]] = field(default_factory=list)
    joined: bool = False
    glue: str = ""
    space: Literal["start", "end"] | None = None

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> Self:
        """Reads a tokenizer's decoder.

        Raises:
            UserError: it is of a kind whose tokens have no spelling of their own.
        """
        decoder = cls()
        if tokenizer.decoder is None:
            decoder.joined, decoder.space = True, "start"
        else:
            decoder._add(json.loads(tokenizer.decoder.__getstate__()))
        return decoder

    def _add(self, step: dict[str, Any]) -> None:  # noqa: C901 - a case for each kind of step
        match step:
            case {"type": "Sequence", "decoders": steps}:
                for each in steps:
                    self._add(each)
            case {"type": "ByteLevel"}:
                self.byte_level = True
            case {"type": "ByteFallback"}:
                self.byte_fallback = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": text}, "content": content}:
                self.replaced.append((text, content))
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
                self.space = "start"
            case {"type": "Metaspace", "replacement": text}:
                self.replaced.append((text, " "))
                self.space = None if step.get("prepend_scheme") == "never" else "start"
            case {"type": "WordPiece", "prefix": glue}:
                self.joined, self.glue, self.space = True, glue, "start"
            case {"type": "BPEDecoder", "suffix": text}:
                self.replaced.append((text, " "))
                self.space = "end"
            case _:
                raise UserError(
                    f"tokenizer: found the decoder {json.dumps(step)[:80]}, expected ByteLevel, Metaspace, WordPiece, "
                    "BPEDecoder, or a sequence of Replace, ByteFallback, Fuse and Strip: the audit spells documents "
                    "by it; name a tokenizer with one of them"
                )

    def spell(self, token: str) -> bytes:
        """The bytes that a token stands for inside a text."""
        if self.byte_fallback and (byte := _BYTE.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        for text, content in self.replaced:
            token = token.replace(text, content)
        if self.joined:
            glued = bool(self.glue) and token.startswith(self.glue)
            token = token.removeprefix(self.glue) if glued else f" {token}"
        return _bytes(token) if self.byte_level else token.encode()


@dataclass(frozen=True, slots=True)
class Spelling:
    """The bytes that each token of a tokenizer stands for; can be sent to another process.

    Attributes:
        pieces: bytes of each token; empty for special tokens, and in the last entry, for every number beyond the
            vocabulary: object [vocabulary + 1].
        lengths: their lengths: int64 [vocabulary + 1].
        space: where the pieces of a document hold a space that the document did not have.
    """

    pieces: npt.NDArray[np.object_]
    lengths: npt.NDArray[np.int64]
    space: Literal["start", "end"] | None = None

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> Self:
        """Asks a tokenizer for all of its tokens.

        Raises:
            UserError: its decoder is of a kind whose tokens have no spelling of their own.
        """
        decoder = _Decoder.of(tokenizer)
        special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        found = {number: token for token, number in tokenizer.get_vocab(with_added_tokens=True).items()}
        pieces = np.full(max(found, default=-1) + 2, b"", dtype=object)
        for number, token in found.items():
            if number not in special:
                pieces[number] = decoder.spell(token)
        return cls(pieces, np.array([len(piece) for piece in pieces], dtype=np.int64), decoder.space)

    def byte_ends(self, tokens: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Where each token of a document ends in the bytes of its text: int64 [num_tokens]."""
        ends = np.cumsum(self._num_bytes(tokens))
        if self.space == "start":
            first = next((piece for piece in np.take(self.pieces, tokens, mode="clip") if piece), b"")
            return np.maximum(ends - first.startswith(b" "), 0)
        return np.minimum(ends, len(self.texts(tokens, np.array([len(tokens)]))[0].encode())) if self.space else ends

    def texts(self, tokens: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> list[str]:
        """Text of documents whose tokens follow one another.

        Bytes that are not UTF-8 become U+FFFD, as in the tokenizer's own decoder.

        Args:
            tokens: of all of them: [num_tokens].
            ends: the token after the last one of each document, ascending: [num_documents].
        """
        joined = b"".join(np.take(self.pieces, tokens, mode="clip").tolist())
        starts = np.zeros(len(tokens) + 1, dtype=np.int64)
        np.cumsum(self._num_bytes(tokens), out=starts[1:])
        cuts: Sequence[int] = [0, *starts[ends].tolist()]
        texts = (joined[start:end] for start, end in pairwise(cuts))
        if self.space == "start":
            texts = (text.removeprefix(b" ") for text in texts)
        elif self.space == "end":
            texts = (text.removesuffix(b" ") for text in texts)
        return [text.decode(errors="replace") for text in texts]

    def _num_bytes(self, tokens: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return np.take(self.lengths, tokens, mode="clip")


def _bytes(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF[letter] for letter in token)
    except KeyError:  # an added token stands for its own text
        return token.encode()
