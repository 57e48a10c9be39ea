"""Step decontaminate by cutting: the match and the text around it go, the rest of the document stays, in fragments.

Sources: GPT-3 (Brown et al. 2020, arXiv 2005.14165, appendix C) removes the matching 13-gram and 200 characters on each
side, discards pieces under 200 characters and documents in more than 10 pieces, and ignores 13-grams that more than 10
training documents hold. MT-NLG (Smith et al. 2022, arXiv 2201.11990) does the same; its tool is Megatron-LM's
`tools/openwebtext/filter_ngrams.py`. Three things are stricter here:

- All matches of the document count, not those that an earlier cut left whole, so no fragment depends on an order.
- A fragment that is too similar to a held-out document is cut out too, although the whole document is not.
- A cut ends between words, so that half a word never makes a new n-gram. (The tool cuts to the sentence's end.)
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from treering.config.canonical import digest_bytes
from treering.data.curate.checks import Checks
from treering.data.curate.decisions import Removed
from treering.data.curate.decontaminate import TaskNgrams
from treering.data.curate.engines import Engine
from treering.data.curate.library import Training
from treering.data.curate.shelf import DIGEST_BYTES
from treering.data.words import word_hashes, word_spans

SIDE_CHARACTERS: Final = 200
"""Removed on each side of a match."""
MIN_CHARACTERS: Final = 200
"""Of a fragment."""
MAX_FRAGMENTS: Final = 10
"""Of a document."""
MAX_DOCUMENTS: Final = 10
"""Training documents that may hold an n-gram; one that more documents hold is common text, and is ignored."""
PARAMETERS: Final = {
    "rule": "cut",
    "side_characters": SIDE_CHARACTERS,
    "min_characters": MIN_CHARACTERS,
    "max_fragments": MAX_FRAGMENTS,
    "max_documents": MAX_DOCUMENTS,
}
"""For the provenance."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """What was left between two cuts.

    Attributes:
        start: its first character.
        end: the character behind it.
        key: the beginning of the text's sha256, for the shuffle.
    """

    start: int
    end: int
    key: bytes


@dataclass(frozen=True, slots=True)
class CutDocument:
    """A document that was cut.

    Attributes:
        removed: in order; with the fragments it is the whole document.
        fragments: in order.
    """

    removed: tuple[Removed, ...]
    fragments: tuple[Fragment, ...]

    @property
    def dropped_by(self) -> str | None:
        """The rule that drops the document after all."""
        if not self.fragments:
            return "nothing_left"
        return "max_fragments" if len(self.fragments) > MAX_FRAGMENTS else None


def cut(text: str, checks: Checks) -> CutDocument | None:
    """Cuts every n-gram of a task out of a text, then what is like a held-out document; None where it has none."""
    ngrams = checks.ngrams
    cuts: list[tuple[int, int, str]] = []
    spans = None
    for length, first, rows in ngrams.matches(word_hashes(text)):
        owners = ngrams.tables[length][1][rows]
        for word, owner in zip(first.tolist(), owners.tolist(), strict=True):
            spans = _word_spans(text) if spans is None else spans
            cuts.append((*_window(text, spans, word, word + length - 1), ": ".join(ngrams.items[owner])))
    if not cuts:
        return None
    removed = _joined(cuts, len(text))
    twins = [
        (start, end, f"heldout: {twin}")
        for start, end in _between(removed)
        if (twin := checks.twin(word_hashes(text[start:end]))) is not None
    ]
    if twins:  # alone it may be like one although the whole document is not
        removed = _joined([*cuts, *twins], len(text))
    return CutDocument(
        tuple(
            Removed(start, end, list(dict.fromkeys(items)), digest_bytes(_utf8(text[start:end])))
            for start, end, items in removed
            if start < end
        ),
        tuple(
            Fragment(start, end, sha256(_utf8(text[start:end])).digest()[:DIGEST_BYTES])
            for start, end in _between(removed)
        ),
    )


def _joined(cuts: Iterable[tuple[int, int, str]], length: int) -> list[tuple[int, int, list[str]]]:
    """The cuts in order, joined where less than a fragment is between them; the first and the last may be empty."""
    joined: list[tuple[int, int, list[str]]] = [(0, 0, [])]
    for start, end, item in [*sorted(cuts), (length, length, "")]:
        before, last, items = joined[-1]
        if start - last < MIN_CHARACTERS:
            joined[-1] = (before, max(last, end), items)
        else:
            items = []
            joined.append((start, end, items))
        items += [item] if item else []
    return joined


def _between(removed: Sequence[tuple[int, int, list[str]]]) -> list[tuple[int, int]]:
    return [(start, end) for (_, start, _), (end, _, _) in pairwise(removed)]


def _window(text: str, spans: npt.NDArray[np.int64], first: int, last: int) -> tuple[int, int]:
    """The characters to remove for a match of some words: no part of a word, and no blank at the edge of the rest."""
    starts, ends = spans.T
    start = max(0, int(starts[first]) - SIDE_CHARACTERS)
    end = min(len(text), int(ends[last]) + SIDE_CHARACTERS)
    word = int(np.searchsorted(starts, start, side="right")) - 1
    if word >= 0 and ends[word] > start:
        start = int(starts[word])
    word = int(np.searchsorted(starts, end)) - 1
    end = max(end, int(ends[word]))
    while start > 0 and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    return start, end


def _word_spans(text: str) -> npt.NDArray[np.int64]:
    """The characters [start, end) of each word: int64 [words, 2]; the lower case of a text may be longer than it."""
    spans = np.array(word_spans(text)[1], dtype=np.int64)
    if len(text.lower()) != len(text):
        starts = np.cumsum([0, *(len(character.lower()) for character in text)])
        spans = np.searchsorted(starts, spans - (0, 1), side="right") - (1, 0)
    return spans


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def count_shard(ngrams: TaskNgrams, training: Training) -> Counter[tuple[int, int]]:
    """How many documents hold each n-gram, by length and row in the table."""
    counts: Counter[tuple[int, int]] = Counter()
    for _, text in training.texts():
        for length, _, rows in ngrams.matches(word_hashes(text)):
            counts.update((length, row) for row in set(rows.tolist()))
    return counts


def cut_shard(checks: Checks, training: Training) -> dict[int, CutDocument]:
    """The documents of a shard that hold an n-gram, cut; by their place in the shard."""
    cuts = {place: cut(text, checks) for place, text in training.texts()}
    return {place: found for place, found in cuts.items() if found is not None}


def cut_contaminated(
    engine: Engine, checks: Checks, training: Sequence[Training]
) -> tuple[list[dict[int, CutDocument]], int]:
    """Cuts documents that hold an n-gram of a task, but for n-grams that too many of them hold.

    Args:
        engine: does the shards.
        checks: with the n-grams of all tasks.
        training: all documents that hold one, by shard.

    Returns:
        For each shard the documents that were cut, by place; and how many n-grams were ignored.
    """
    counts: Counter[tuple[int, int]] = Counter()
    for _, found in engine.map(count_shard, checks.ngrams, training):
        counts.update(found)
    common = [row for row, count in counts.items() if count > MAX_DOCUMENTS]
    left = replace(checks, ngrams=checks.ngrams.without(common))
    cuts = dict(engine.map(cut_shard, left, training))
    return [cuts[place] for place in range(len(training))], len(common)
