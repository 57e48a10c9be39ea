"""From a text to the documents that hold it or a part of it, and to the steps that read those very tokens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.audit.content import Progress, quiet
from treering.audit.exposure import (
    CheckpointExposure,
    Exposure,
    TracedDocument,
    corpora_of,
    find_exposures,
    project_runs,
    seen_by,
)
from treering.audit.shelf import Shelf
from treering.data.corpus import Corpus
from treering.data.curate.words import run_hashes, word_hashes, word_spans, words
from treering.data.ngrams import NGRAM_WORDS, NgramIndex, index_directory
from treering.data.text import TextOf
from treering.errors import EvidenceError, NotFoundError, TreeringError, UserError
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory

Ngram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A document that holds a text, or n-grams of it.

    Attributes:
        corpus: name of its corpus.
        corpus_digest: identity of its corpus.
        number: its number in the corpus.
        exact: whether it holds the whole text, character by character.
        ngrams: how many distinct n-grams of the text it holds.
        spans: tokens [start, end) of the document that hold them, ascending, overlapping ones joined.
    """

    corpus: str
    corpus_digest: str
    number: int
    exact: bool
    ngrams: int
    spans: tuple[tuple[int, int], ...]

    def covers(self, exposure: Exposure) -> bool:
        """Whether a sample held a token of what matched."""
        return any(exposure.start < end and start < exposure.end for start, end in self.spans)


class TextFinder:
    """Looks for texts in the corpora of a project that have an index.

    Args:
        project: the project.
        shelf: the corpora to look into.
        unanswered: told which corpora have no index, or another one's.
    """

    def __init__(self, project: Project, shelf: Shelf, unanswered: list[str]) -> None:
        self._text_of = TextOf(project.tokenizer)
        self.shelf = shelf
        self._indexes: dict[str, NgramIndex] = {}
        self._documents: dict[tuple[str, int], _Document] = {}
        for digest, corpus in shelf.corpora.items():
            try:
                self._text_of.check(corpus)
                self._indexes[digest] = NgramIndex(index_directory(project.index, digest), corpus)
            except TreeringError as error:
                unanswered.append(str(error))

    @property
    def corpora(self) -> tuple[str, ...]:
        """Digests of the corpora that can be looked into."""
        return tuple(self._indexes)

    def find(self, text: str) -> list[TextMatch]:
        """Every document that holds an n-gram of a text, those with most of them first.

        Raises:
            UserError: the text is shorter than one n-gram.
        """
        if len(words(text)) < NGRAM_WORDS:
            raise UserError(
                f"text: found {len(words(text))} words, expected at least {NGRAM_WORDS}: shorter texts are everywhere"
            )
        found = self.find_all({"": [text]}).get("", [])
        return sorted(found, key=lambda match: (not match.exact, -match.ngrams, match.corpus, match.number))

    def find_all(self, texts: Mapping[str, Sequence[str]]) -> dict[str, list[TextMatch]]:
        """The same for many things at once, each with several texts; those without a match are left out."""
        names, parts = [], []
        for name, several in texts.items():
            for text in several:
                runs = np.unique(run_hashes(word_hashes(text), NGRAM_WORDS))
                parts.append(runs)
                names += [name] * len(runs)
        hashes = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
        candidates: dict[str, dict[tuple[str, int], None]] = {}
        for digest, index in self._indexes.items():
            for position, number in zip(*(array.tolist() for array in index.lookup(hashes)), strict=True):
                candidates.setdefault(names[position], {})[digest, number] = None
        found = {}
        for name, documents in candidates.items():
            ngrams = {ngram for text in texts[name] for ngram in _ngrams(words(text))}
            matches = [match for place in documents if (match := self._match(place, ngrams, texts[name])) is not None]
            if matches:  # a hash alone may lie
                found[name] = matches
        return found

    def _match(self, place: tuple[str, int], ngrams: set[Ngram], texts: Sequence[str]) -> TextMatch | None:
        if place not in self._documents:
            self._documents[place] = _Document.read(self.shelf.corpora[place[0]], place[1], self._text_of)
        document = self._documents[place]
        hits = [at for at, ngram in enumerate(_ngrams(document.words)) if ngram in ngrams]
        if not hits:
            return None
        return TextMatch(
            corpus=self.shelf.corpora[place[0]].name,
            corpus_digest=place[0],
            number=place[1],
            exact=any(text.strip() in document.text for text in texts if len(words(text)) >= NGRAM_WORDS),
            ngrams=len({tuple(document.words[at : at + NGRAM_WORDS]) for at in hits}),
            spans=tuple(document.token_spans(_joined(hits))),
        )


@dataclass(frozen=True, slots=True)
class _Document:
    """A document's text and where its words lie.

    Attributes:
        text: the text.
        words: its words.
        characters: characters [start, end) of each word.
        character_bytes: UTF-8 bytes before each character, with the end: int64 [num_characters + 1].
        token_bytes: bytes at the end of each token: int64 [num_tokens].
    """

    text: str
    words: list[str]
    characters: list[tuple[int, int]]
    character_bytes: NDArray[np.int64]
    token_bytes: NDArray[np.int64]

    @classmethod
    def read(cls, corpus: Corpus, number: int, text_of: TextOf) -> "_Document":
        (text,) = text_of.documents(corpus, [number])
        found, characters = word_spans(text)
        lengths = [len(character.encode(errors="surrogatepass")) for character in text]
        return cls(
            text, found, characters, np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
            text_of.token_bytes(corpus, number),
        )  # fmt: skip

    def token_spans(self, word_runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Tokens [start, end) that hold runs of words [first, last)."""
        for first, last in word_runs:
            start, end = self.characters[first][0], min(self.characters[last - 1][1], len(self.text))
            begin, stop = self.character_bytes[[min(start, len(self.text)), end]]
            yield (
                int(np.searchsorted(self.token_bytes, begin, side="right")),
                int(np.searchsorted(self.token_bytes, stop, side="left")) + 1,
            )


def _ngrams(found: Sequence[str]) -> Iterator[Ngram]:
    for start in range(len(found) - NGRAM_WORDS + 1):
        yield tuple(found[start : start + NGRAM_WORDS])


def _joined(hits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of words [first, last) that n-grams at ascending places cover, overlapping ones joined."""
    first = last = None
    for hit in hits:
        if first is None or last is None or hit > last:
            if first is not None and last is not None:
                yield first, last
            first = hit
        last = hit + NGRAM_WORDS
    if first is not None and last is not None:
        yield first, last


@dataclass(frozen=True, slots=True)
class TracedMatch:
    """A match, and the samples that held what matched.

    Attributes:
        match: what matched.
        document: the document with those exposures alone.
    """

    match: TextMatch
    document: TracedDocument


@dataclass(frozen=True, slots=True)
class TextTrace:
    """Where a text stands in the corpora, and what read it.

    Attributes:
        num_ngrams: distinct n-grams of the text.
        matches: documents that hold some of them, those with the whole text first.
        checkpoints: what every checkpoint of every run saw of what matched.
        unanswered: what could not be looked into.
    """

    num_ngrams: int
    matches: tuple[TracedMatch, ...]
    checkpoints: tuple[CheckpointExposure, ...]
    unanswered: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {**asdict(self), "checkpoints": [{**asdict(each), "clean": each.clean} for each in self.checkpoints]}


def trace_text(project: Project, text: str, progress: Progress = quiet) -> TextTrace:
    """Finds a text in the indexed corpora of a project, and every step and checkpoint that read it.

    Raises:
        UserError: the text is shorter than one n-gram.
        EvidenceError: there is no tokenizer.
        NotFoundError: no corpus at hand has an index.
    """
    runs = project_runs(project)
    shelf, unanswered = corpora_of(project, runs)
    finder = TextFinder(project, shelf, unanswered)
    if not finder.corpora:
        raise NotFoundError(
            "; ".join(unanswered) or f"{project.corpora}: no corpus there; `dvc repro tokenize` makes them"
        )
    matches = finder.find(text)
    traced = traced_matches(runs, matches, shelf, unanswered, progress)
    documents = [each.document for each in traced]
    checkpoints = [seen_by(checkpoint, documents) for run in runs for checkpoint in _sound_checkpoints(run, unanswered)]
    return TextTrace(
        len(set(_ngrams(words(text)))), tuple(traced), tuple(checkpoints), tuple(dict.fromkeys(unanswered))
    )


def traced_matches(
    runs: Sequence[RunDirectory],
    matches: Sequence[TextMatch],
    shelf: Shelf,
    unanswered: list[str],
    progress: Progress = quiet,
) -> list[TracedMatch]:
    """The steps of some runs that read what matched, in the order of the matches."""
    numbers: dict[str, list[int]] = {}
    for match in matches:
        numbers.setdefault(match.corpus_digest, []).append(match.number)
    documents = {digest: np.unique(found) for digest, found in numbers.items()}
    exposed = find_exposures(runs, documents, shelf, progress)
    unanswered += exposed.unanswered
    by_place = {(each.corpus_digest, each.number): each for each in exposed.traced()}
    traced = []
    for match in matches:
        document = by_place[match.corpus_digest, match.number]
        held = tuple(exposure for exposure in document.exposures if match.covers(exposure))
        traced.append(TracedMatch(match, replace(document, exposures=held)))
    return traced


def _sound_checkpoints(run: RunDirectory, unanswered: list[str]) -> Iterator[CheckpointDirectory]:
    for checkpoint in (*run.checkpoints(), *run.superseded()):
        try:
            run.path_to(checkpoint)
        except EvidenceError as error:
            unanswered.append(f"{checkpoint.path}: {error}")
        else:
            yield checkpoint
