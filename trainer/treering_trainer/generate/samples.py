"""Generates one sample from its prompt to its end, or many texts of one prompt at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from treering.data.corpus.token_bytes import Spelling
from treering_trainer.generate.decoder import Decoder
from treering_trainer.generate.sampling import Sampling
from treering_trainer.generate.text import TextStream

_ROWS = 128
"""Texts that are drawn at once: a constant, since the draws depend on it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A generated text.

    Attributes:
        seed: seed of the draws.
        text: without the prompt, and without the stop text.
        tokens: all drawn tokens, those of the stop text too.
        finish: why it ended.
    """

    seed: int
    text: str
    tokens: tuple[int, ...]
    finish: Literal["end_of_document", "stop", "length"]


def generate(
    decoder: Decoder,
    spelling: Spelling,
    prompt: Sequence[int],
    *,
    end_of_document: int,
    max_tokens: int,
    sampling: Sampling,
    seed: int,
    stops: Sequence[str] = (),
    show: Callable[[str], None] = lambda _text: None,
) -> Sample:
    """Draws tokens until the document ends, a stop text comes, or `max_tokens` are drawn.

    Args:
        decoder: of the model.
        spelling: of the run's tokenizer; rows of the padded vocabulary without a token are never drawn.
        prompt: at least one token.
        end_of_document: the token that ends every document.
        max_tokens: largest number of tokens to draw.
        sampling: how a token is drawn.
        seed: of this sample.
        stops: texts that end the sample.
        show: called with each piece of the text.
    """
    random = torch.Generator().manual_seed(seed)
    known = len(spelling.pieces) - 1
    stream = TextStream(spelling, stops)
    pieces: list[str] = []

    def give(text: str) -> None:
        if text:
            pieces.append(text)
            show(text)

    drawn: list[int] = []
    ended = False
    while not (ended or stream.stopped) and len(drawn) < max_tokens:
        token = sampling.choose(decoder.logits([*prompt, *drawn])[:known], random)
        drawn.append(token)
        ended = token == end_of_document
        if not ended:
            give(stream.push(token))
    give(stream.finish())
    finish: Literal["end_of_document", "stop", "length"] = "end_of_document" if ended else "length"
    return Sample(seed, "".join(pieces), tuple(drawn), "stop" if stream.stopped else finish)


def draw_texts(
    decoder: Decoder,
    spelling: Spelling,
    prompt: Sequence[int],
    *,
    count: int,
    end_of_document: int,
    max_tokens: int,
    sampling: Sampling,
    seed: int,
) -> list[tuple[str, bool]]:
    """Draws many texts of one prompt at once.

    Args:
        decoder: of the model.
        spelling: of the run's tokenizer; rows of the padded vocabulary without a token are never drawn.
        prompt: at least one token; with `max_tokens` it fits into the sequence.
        count: how many texts.
        end_of_document: the token that ends every document.
        max_tokens: largest number of tokens of a text.
        sampling: how a token is drawn.
        seed: of all texts together.

    Returns:
        Each text without its prompt, and whether it ended at `max_tokens`.
    """
    random = torch.Generator().manual_seed(seed)
    known = len(spelling.pieces) - 1
    found: list[tuple[str, bool]] = []
    while len(found) < count:
        rows = [list(prompt) for _ in range(min(_ROWS, count - len(found)))]
        ended = [False] * len(rows)
        while not all(ended) and len(rows[0]) < len(prompt) + max_tokens:
            tokens = sampling.choose_each(decoder.logits_of_each(rows)[:, :known], random).tolist()
            for place, (row, token) in enumerate(zip(rows, tokens, strict=True)):
                row.append(token)
                ended[place] |= token == end_of_document
        for row, over in zip(rows, ended, strict=True):
            drawn = row[len(prompt) :]
            drawn = drawn[: drawn.index(end_of_document)] if over else drawn
            text = b"".join(spelling.pieces[token] for token in drawn)
            found.append((text.decode(errors="replace"), not over))
    return found
