"""Indices of made-up documents at the size of a real training's, for benchmarks that read no tokens."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treering.data.corpus.indexed import index_bytes

_CHUNK = 1 << 20


def document_counts(num_tokens: Mapping[str, int], books: Mapping[str, int], total: int) -> dict[str, int]:
    """Documents of each corpus: books of known mean length, the rest of `total` shared out by tokens.

    Args:
        num_tokens: by corpus.
        books: mean tokens of a document, for corpora of books.
        total: documents of all corpora.
    """
    counts = {name: max(num_tokens[name] // mean, 1) for name, mean in books.items()}
    others = sum(tokens for name, tokens in num_tokens.items() if name not in books)
    rest = total - sum(counts.values())
    return {name: counts.get(name) or max(tokens * rest // others, 1) for name, tokens in num_tokens.items()}


def write_index(path: Path, num_documents: int, num_tokens: int, seed: int) -> None:
    """Writes the `.idx` of documents whose lengths are squares of exponential numbers: most short, a few very long.

    As `index_bytes` would make it of the same lengths, but streamed; tokens of 2 bytes, one sequence a document.
    """
    path.write_bytes(index_bytes(np.ones(1, dtype=np.int32))[:18])
    with path.open("r+b") as file:
        file.seek(18)
        np.array([num_documents, num_documents + 1], dtype="<u8").tofile(file)
        for lengths, _ in _documents(num_documents, num_tokens, seed):
            lengths.astype("<i4").tofile(file)
        for _, starts in _documents(num_documents, num_tokens, seed):
            (starts * 2).astype("<i8").tofile(file)
        for begin in range(0, num_documents + 1, _CHUNK):
            np.arange(begin, min(begin + _CHUNK, num_documents + 1), dtype="<i8").tofile(file)


def _draws(num_documents: int, seed: int) -> Iterator[NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    for begin in range(0, num_documents, _CHUNK):
        yield np.square(
            random.standard_exponential(min(_CHUNK, num_documents - begin), dtype=np.float32), dtype=np.float64
        )


def _documents(num_documents: int, num_tokens: int, seed: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Lengths and first tokens of the documents, chunk by chunk: each has a token, all together `num_tokens`."""
    scale = (num_tokens - num_documents) / sum(float(draws.sum()) for draws in _draws(num_documents, seed))
    done, drawn = 0, 0.0
    start = 0
    for draws in _draws(num_documents, seed):
        sums = drawn + np.cumsum(draws)
        drawn = float(sums[-1])
        ends = np.floor(sums * scale).astype(np.int64) + np.arange(done + 1, done + len(draws) + 1)
        done += len(draws)
        if done == num_documents:
            ends[-1] = num_tokens
        starts = np.concatenate(([start], ends[:-1]))
        yield ends - starts, starts
        start = int(ends[-1])
