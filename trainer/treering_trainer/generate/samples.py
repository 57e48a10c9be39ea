"""Generates one sample from its prompt to its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from treering.data.corpus.token_bytes import Spelling
from treering_trainer.generate.decoder import Decoder
from treering_trainer.generate.sampling import Sampling
from treering_trainer.generate.text import TextStream


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
