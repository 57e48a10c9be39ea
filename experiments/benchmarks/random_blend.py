"""A blend of random tokens, for benchmarks in which only shapes and bytes cost time."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.data.corpus.corpus import BIN, IDX, Corpus
from treering.data.corpus.indexed import index_bytes


def random_blend(
    folder: Path, weights: Mapping[str, str], *, sequence_length: int, num_tokens: int, vocabulary: int, seed: int = 1
) -> tuple[ResolvedBlend, list[Corpus]]:
    """Writes the corpora below a folder; their digests are made up, since nothing checks them.

    Args:
        folder: an existing one.
        weights: of each corpus by name, as in a config.
        sequence_length: tokens of a sample.
        num_tokens: of each corpus.
        vocabulary: token ids are below it.
        seed: of the data order.
    """
    random = np.random.default_rng(0)
    corpora, components = [], []
    for number, (name, weight) in enumerate(weights.items()):
        directory = folder / name
        directory.mkdir()
        random.integers(0, vocabulary, num_tokens, dtype=np.uint16).tofile(directory / BIN)
        (directory / IDX).write_bytes(index_bytes(np.array([num_tokens], dtype=np.int32)))
        digest = f"sha256:{number:064x}"
        corpora.append(
            Corpus(directory, {"token_width_bytes": 2, "digest": digest, "num_tokens": num_tokens, "num_documents": 1})
        )
        components.append(
            ResolvedComponent(corpus=name, weight=weight, digest=digest, num_tokens=num_tokens, num_documents=1)
        )
    blend = ResolvedBlend(
        algorithm="treering-1",
        seed=seed,
        sequence_length=sequence_length,
        components=tuple(components),
        tokenizer=None,
    )
    return blend, corpora
