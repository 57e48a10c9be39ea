"""The quality classifier: fastText on words and pairs of words, which tells good documents from judged ones.

After GPT-3's (Brown et al. 2020, arXiv 2005.14165, appendix A) and, in its form, The Pile's (Gao et al. 2020, arXiv
2101.00027, appendix C.1): fastText with an n-gram size of 2. The library is floret: it is fastText's own code, with a
seed, under module names that do not collide with those of fasttext-predict, which language detection installs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import floret
import numpy as np

from treering.config.canonical import digest_file

_SETTINGS: Final = {"dim": 16, "lr": 0.5, "wordNgrams": 2, "minCount": 2, "bucket": 1 << 18, "seed": 1}
"""Small vectors, and few buckets for the pairs: the file has some 20 MB, with the same ranking as fastText's defaults,
whose file has 850 MB (measured by `experiments/benchmarks/quality_classifier.py`)."""
_MIN_EPOCHS: Final = 5
_MIN_EXAMPLES: Final = 5_000
"""Documents that the training reads, repeats included: after fewer, every score is near 0.5."""

MAX_CHARACTERS: Final = 10_000
"""Characters of a document's beginning that the classifier reads, in training and in judging."""

_LABEL: Final = "\x1f"
"""Begins a label: white space for Python, and so in no word of a line, and a letter for fastText."""
_GOOD, _JUDGED = f"{_LABEL}good", f"{_LABEL}judged"
_DIGITS = 6


class Classifier:
    """A trained classifier.

    Args:
        path: file of the model.
    """

    def __init__(self, path: Path) -> None:
        self._model = floret.load_model(str(path))

    def score(self, text: str) -> float:
        """Probability that a document is a good one, to six digits."""
        # one label a line: floret gives every label of a line the probability of the first
        [[label]], [[probability]] = self._model.predict([_line(text)], k=1)
        score = float(probability) if label == _GOOD else 1.0 - float(probability)
        return min(1.0, max(0.0, round(score, _DIGITS)))


@lru_cache(maxsize=1)
def load(path: Path) -> Classifier:
    """The classifier of a file; the last one stays in memory."""
    return Classifier(path)


def settings(num_documents: int) -> dict[str, float]:
    """Of a training on so many documents, by fastText's names."""
    return {**_SETTINGS, "epoch": max(_MIN_EPOCHS, math.ceil(_MIN_EXAMPLES / num_documents))}


def write_examples(documents: Iterable[tuple[bool, str]], path: Path) -> str:
    """Writes the text to train on, one document a line.

    Args:
        documents: whether a document is good, and its text.
        path: the file.

    Returns:
        Digest of the file.
    """
    with path.open("wb") as file:
        for good, text in documents:
            file.write(f"{_GOOD if good else _JUDGED} {_line(text)}\n".encode())
    return digest_file(path)


def train(text: Path, model: Path, settings: Mapping[str, float]) -> None:
    """Trains a classifier in one thread: the same text gives the same file.

    Args:
        text: what `write_examples` wrote.
        model: file to write the model to.
        settings: of the training.
    """
    options: dict[str, Any] = {**settings, "label": _LABEL, "thread": 1, "verbose": 0}
    floret.train_supervised(input=str(text), **options).save_model(str(model))


def auc(good: Sequence[float], judged: Sequence[float]) -> float:
    """Probability that a good document scores higher than a judged one, a tie counted as half.

    Source: the area under the receiver operating characteristic as a share of pairs (Hanley and McNeil 1982).
    """
    ordered = np.sort(judged)
    below = sum(np.searchsorted(ordered, good, side=side).sum() for side in ("left", "right")) / 2
    return float(below / (len(good) * len(judged)))


def _line(text: str) -> str:
    return " ".join(text[:MAX_CHARACTERS].split())
