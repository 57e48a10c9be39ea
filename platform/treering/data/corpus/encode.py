r"""Text becomes tokens, as the library `tokenizers` cuts it, and several times as fast where a text is mostly words.

A byte-level BPE cuts a text into words by GPT-2's pattern, and then each word alone into tokens. So it is enough that
the library sees each word once. The library tells nobody quickly where its words end; but a text can be cut, by a
simpler pattern, at places where every word ends for sure:

| such a place is                                                              | since                            |
| ---------------------------------------------------------------------------- | -------------------------------- |
| after a contraction ('s, 't, 're, 've, 'm, 'll, 'd) that begins at such a place | GPT-2's pattern tries these first |
| between ASCII letters, ASCII digits and other printable ASCII                | no word holds two of these kinds |
| before the last of several spaces or line ends that something printable follows | GPT-2's `\s+(?!\S)`           |
| after a line end that something printable follows                            | a word begins with a space alone |
| before a space or line end that follows something else                       | a word has it at its begin alone |

A piece between two such places holds one word or several whole ones, and is cut alone as within its text. Pieces with
other letters than ASCII's reach from such a place to the next space; the library decides what is a letter there.

Source: GPT-2's `encoder.py`, and `ByteLevel` of `tokenizers` 0.23: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt

from treering.data.corpus.sentencepiece_model import SentencePieceTokenizer
from treering.data.corpus.tokenizer import TextTokenizer
from treering.errors import TreeringError, UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Tokens = npt.NDArray[np.uint32]

PIECES: Final = re.compile(
    r"'(?:[stmd]|re|ve|ll)"
    r"| ?[A-Za-z]+(?![A-Za-z]|[^\x00-\x7f])"
    r"| ?[0-9]+(?![0-9]|[^\x00-\x7f])"
    r"| ?[!-/:-@\[-`{-~]+(?=[A-Za-z0-9 \n\r\t]|\Z)"
    r"|[ \n\r\t]+(?=[ \n\r\t][!-~]|\Z)"
    r"|[\n\r\t](?=[!-~])"
    r"|[\s\S]*?[^\s\u180e](?=[ \n\r\t])"
    r"|[\s\S]+"
)
"""The pieces of a text. U+180E is a space by older versions of Unicode."""

_MOST_BYTES: Final = 1 << 27
"""Most memory for the tokens of known pieces, about."""
_ENTRY_BYTES: Final = 200
_BATCH_DOCUMENTS: Final = 256
_BATCH_CHARACTERS: Final = 1 << 22


class Encoder:
    """Cuts texts with the library alone."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> Iterator[Tokens]:
        """The tokens of each text: uint32 [tokens of it]."""
        for encoding in self._tokenizer.encode_batch_fast(texts):
            yield np.array(encoding.ids, dtype=np.uint32)


class _WordEncoder(Encoder):
    """Keeps the tokens of the pieces that it met. Where these become too many it begins anew."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        super().__init__(tokenizer)
        self._known: dict[str, bytes] = {}
        self._num_bytes = 0

    def __call__(self, texts: Sequence[str]) -> Iterator[Tokens]:
        for text in texts:
            pieces = PIECES.findall(text)
            try:
                tokens = b"".join(map(self._known.__getitem__, pieces))
            except KeyError:
                self._learn(pieces)
                tokens = b"".join(map(self._known.__getitem__, pieces))
            yield np.frombuffer(tokens, dtype=np.uint32)

    def _learn(self, pieces: list[str]) -> None:
        if self._num_bytes > _MOST_BYTES:
            self._known.clear()
            self._num_bytes = 0
        new = list(set(pieces).difference(self._known))
        for piece, tokens in zip(new, super().__call__(new), strict=True):
            self._known[piece] = tokens.tobytes()
            self._num_bytes += _ENTRY_BYTES + len(piece) + tokens.nbytes


def encoder(tokenizer: TextTokenizer) -> Encoder:
    """The fastest way to cut texts with a tokenizer; the tokens are the library's own.

    Args:
        tokenizer: as `text_tokenizer.load_tokenizer` gives it.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        return Encoder(tokenizer)
    found = json.loads(cast("Tokenizer", tokenizer).to_str())
    words, model = found["pre_tokenizer"] or {}, found["model"]
    by_words = (
        words.get("type") == "ByteLevel"
        and words.get("use_regex")
        and not words.get("add_prefix_space")
        and found["normalizer"] is None
        and all(token["special"] for token in found["added_tokens"])
        and model["type"] == "BPE"
    )
    return _WordEncoder(tokenizer) if by_words else Encoder(tokenizer)


def tokenized(
    documents: Iterable[dict[str, Any]], encode: Encoder, end_of_document: int
) -> Iterator[tuple[dict[str, Any], Tokens]]:
    """Each document with its tokens, of which the last one ends it.

    Args:
        documents: rows with a text and an id.
        encode: see `encoder`.
        end_of_document: the token after every document.

    Raises:
        UserError: a document has no token, or the library fails at it.
    """
    for batch in _batches(documents):
        for row, tokens in zip(batch, _encoded(batch, encode), strict=True):
            if not len(tokens):
                found = f"has no token of the tokenizer: {row['text'][:40]!r}" if row["text"] else "is empty"
                remedy = "; take it out of the corpus, or name a tokenizer that has its characters" * bool(row["text"])
                raise UserError(f"document {row['id']!r} {found}, expected text{remedy}")
            yield row, np.append(tokens, np.uint32(end_of_document))


def _encoded(batch: list[dict[str, Any]], encode: Encoder) -> list[Tokens]:
    """The tokens of each text of a batch.

    Raises:
        UserError: the library fails at a document.
        MemoryError: as it came; no document's fault.
        OSError: likewise.
        TreeringError: likewise.
    """
    try:
        return list(encode([row["text"] for row in batch]))
    except (MemoryError, OSError, TreeringError):
        raise
    except Exception as error:
        if len(batch) > 1:
            return [tokens for row in batch for tokens in _encoded([row], encode)]
        raise UserError(
            f"document {batch[0]['id']!r} cannot be cut into tokens ({type(error).__name__}: {error}); take it out of "
            "the corpus, and report it: no text should do this"
        ) from error


def _batches(documents: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for row in documents:
        batch.append(row)
        size += len(row["text"])
        if len(batch) == _BATCH_DOCUMENTS or size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
