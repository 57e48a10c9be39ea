"""Log-likelihoods of continuations, which every task is scored by.

Continuations of one context (the choices of an item) share a sequence. Each continuation attends to the context and to
itself, and its positions follow the context's. So its scores are those of a separate sequence, at a fraction of the
cost.

Shape suffixes: B batch, S sequence, H hidden, N scored tokens, V padded vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from treering.errors import TrainingError
from treering_trainer.checkpointing.inference import LanguageModel
from treering_trainer.core.model import vocabulary_logits

_BATCH_TOKENS = 4096
_LOGIT_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Continuation:
    """A continuation to score.

    Attributes:
        context: tokens before; at least one.
        tokens: tokens to score; at least one.
    """

    context: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a continuation.

    Attributes:
        log_likelihood: sum over the continuation's tokens, nats.
        greedy: whether each token was the most probable one.
    """

    log_likelihood: float
    greedy: bool


def truncate(continuation: Continuation, sequence_length: int) -> Continuation:
    """Cuts the context on the left until everything fits into the sequence (the model never reads the last token).

    Returns:
        The continuation with as much context as fits.

    Raises:
        ValueError: the continuation alone is longer than a sequence.
    """
    room = sequence_length + 1 - len(continuation.tokens)
    if room < 1:
        raise ValueError(f"a continuation of {len(continuation.tokens)} tokens, expected at most {sequence_length}")
    if len(continuation.context) <= room:
        return continuation
    return Continuation(continuation.context[-room:], continuation.tokens)


def score_continuations(model: LanguageModel, continuations: Sequence[Continuation]) -> Iterator[tuple[int, Score]]:
    """Scores continuations, those of equal contexts together, sequences of similar length in a batch.

    Yields:
        The number of a continuation and its score; not in order.

    Raises:
        TrainingError: the model gives a number that is not finite.
    """
    by_context: dict[tuple[int, ...], list[int]] = {}
    for number, continuation in enumerate(continuations):
        by_context.setdefault(continuation.context, []).append(number)
    packs = [_Pack(context, [(n, continuations[n].tokens) for n in numbers]) for context, numbers in by_context.items()]
    packs.sort(key=lambda pack: (-len(pack.tokens), pack.tokens))
    with torch.inference_mode():
        for batch in _batches(packs):
            yield from _score_batch(model, batch)


class _Pack:
    """A context and its continuations as one sequence: tokens, positions, and which branch each token belongs to."""

    def __init__(self, context: tuple[int, ...], branches: list[tuple[int, tuple[int, ...]]]) -> None:
        self.tokens = list(context)
        self.positions = list(range(len(context)))
        self.branch = [0] * len(context)
        # (place whose logits predict it, the token, the continuation it counts for)
        self.scored: list[tuple[int, int, int]] = []
        for branch, (number, tokens) in enumerate(branches, 1):
            place = len(context) - 1
            for offset, token in enumerate(tokens):
                self.scored.append((place, token, number))
                if offset == len(tokens) - 1:
                    break
                place = len(self.tokens)
                self.tokens.append(token)
                self.positions.append(len(context) + offset)
                self.branch.append(branch)


def _batches(packs: list[_Pack]) -> Iterator[list[_Pack]]:
    start = 0
    while start < len(packs):
        size = max(1, _BATCH_TOKENS // len(packs[start].tokens))
        yield packs[start : start + size]
        start += size


def _score_batch(model: LanguageModel, batch: list[_Pack]) -> Iterator[tuple[int, Score]]:
    device = next(model.parameters()).device
    width = max(len(pack.tokens) for pack in batch)

    def padded(rows: list[list[int]], fill: int) -> torch.Tensor:
        return torch.tensor([row + [fill] * (width - len(row)) for row in rows], device=device)

    hidden_SBH = _hidden(
        model,
        padded([pack.tokens for pack in batch], 0),
        padded([pack.positions for pack in batch], 0),
        # Padding is another branch, after all tokens that count.
        padded([pack.branch for pack in batch], -1),
    )
    places, tokens, numbers = zip(*(entry for pack in batch for entry in pack.scored), strict=True)
    rows = torch.tensor([row for row, pack in enumerate(batch) for _ in pack.scored], device=device)
    wanted_NH = hidden_SBH[torch.tensor(places, device=device), rows]
    log_probabilities, greedy = _token_scores(model, wanted_NH, torch.tensor(tokens, device=device))

    sums: dict[int, float] = dict.fromkeys(numbers, 0.0)
    hits: dict[int, bool] = dict.fromkeys(numbers, True)
    for number, value, hit in zip(numbers, log_probabilities, greedy, strict=True):
        sums[number] += value
        hits[number] &= hit
    for number, value in sums.items():
        yield number, Score(value, hits[number])


def _hidden(
    model: LanguageModel, tokens_BS: torch.Tensor, positions_BS: torch.Tensor, branch_BS: torch.Tensor
) -> torch.Tensor:
    """Last hidden states [S, B, H]: a token attends to the context and its own branch, at its own position."""
    layers: list[Any] = list(model.layers if model.tied else model.layers[:-1])  # mypy takes a part for a tensor
    embedding, position, *blocks, norm = layers
    length = tokens_BS.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=tokens_BS.device).tril()
    same_branch = branch_BS[:, :, None] == branch_BS[:, None, :]
    mask_B1SS = ((same_branch | (branch_BS == 0)[:, None, :]) & causal)[:, None]
    hidden = embedding(tokens_BS) + position.position[positions_BS].squeeze(2).transpose(0, 1)
    for block in blocks:
        hidden, _context = block.layer(hidden, attention_mask=mask_B1SS)
    last_SBH: torch.Tensor = norm(hidden)
    return last_SBH


def _token_scores(
    model: LanguageModel, hidden_NH: torch.Tensor, tokens_N: torch.Tensor
) -> tuple[list[float], list[bool]]:
    """Log-probability of each token, and whether the token was the most probable one.

    Raises:
        TrainingError: a log-probability is not finite.
    """
    values: list[float] = []
    greedy: list[bool] = []
    for start in range(0, len(tokens_N), _LOGIT_ROWS):
        tokens = tokens_N[start : start + _LOGIT_ROWS]
        logits_NV = vocabulary_logits(model.layers[0 if model.tied else -1], hidden_NH[start : start + _LOGIT_ROWS])
        picked = logits_NV.float().log_softmax(dim=-1).gather(1, tokens[:, None]).squeeze(1)
        if not torch.isfinite(picked).all():
            raise TrainingError(
                "evaluation: the model gives log-probabilities that are not finite; its training diverged, "
                "`treering show RUN` lists loss spikes"
            )
        values += picked.tolist()
        greedy += (logits_NV.argmax(dim=-1) == tokens).tolist()
    return values, greedy
