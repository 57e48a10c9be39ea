"""Which documents hold a text or a part of it, and in which of their tokens.

The index of n-grams names candidates; here their words are compared, in every form in which the text may be written.
"""

import html
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treering.audit.corpora.catalog import Catalog
from treering.audit.documents.exposure import Exposure
from treering.data.corpus.corpus import Corpus, token_digest
from treering.data.corpus.text import Detokenizer
from treering.data.ngram_index.hashes import ngram_hashes
from treering.data.ngram_index.index import NGRAM_WORDS, NgramIndex, index_directory
from treering.data.words import Hashes, word_spans, words
from treering.errors import EvidenceError, TreeringError, UserError
from treering.project import Project

Ngram = tuple[str, ...]

_MOST_DOCUMENTS = 10_000
_MOST_CANDIDATES = 200_000
_FEWEST_DOCUMENTS = 100
_KEPT_CHARACTERS = 1 << 22
_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A document that holds a text, or n-grams of it.

    Attributes:
        corpus: name of its corpus.
        corpus_digest: identity of its corpus.
        number: its number in the corpus.
        exact: whether it holds the whole text, letter by letter but for white space and Unicode form.
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


def readings(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Some texts as they are and as a corpus may hold them, each form once.

    With HTML's character references resolved, without invisible characters (soft hyphens, zero-width ones, a byte order
    mark), and in the four normal forms of Unicode.
    """
    found = [tuple(texts)]
    found.append(tuple(map(html.unescape, texts)))
    found += [tuple(map(_visible, each)) for each in found]
    found += [tuple(unicodedata.normalize(form, text) for text in each) for form in _FORMS for each in found]
    return list(dict.fromkeys(found))


def num_ngrams(text: str) -> int:
    """How many distinct n-grams a text has, in the form that has most."""
    return max(len(set(_ngrams(words(each)))) for (each,) in readings([text]))


class TextFinder:
    """Looks for texts in the corpora of a project that have an index.

    Args:
        project: the project.
        catalog: the corpora to look into.
        unanswered: a line is appended for each corpus without a sound index, and for a text that is too frequent.
    """

    def __init__(self, project: Project, catalog: Catalog, unanswered: list[str]) -> None:
        self._text_of = Detokenizer(project.tokenizer)
        self.catalog = catalog
        self._unanswered = unanswered
        self._indexes: dict[str, NgramIndex] = {}
        self._documents: dict[tuple[str, int], _Document] = {}
        for digest, corpus in catalog.corpora.items():
            if digest in catalog.partial:  # its tokens are gone
                continue
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
        found = self.find_all({"the text": [text]}).get("the text", [])
        return sorted(found, key=lambda match: (not match.exact, -match.ngrams, match.corpus, match.number))

    def find_all(self, texts: Mapping[str, Sequence[str]]) -> dict[str, list[TextMatch]]:
        """The same for many things at once, each with several texts; those without a match are left out.

        Of a thing that occurs in very many documents of a corpus, some thousand are looked into, those with its rarest
        n-grams first; `unanswered` tells so.
        """
        sought_texts = [_Sought.of(name, several) for name, several in texts.items()]
        most = min(_MOST_DOCUMENTS, max(_FEWEST_DOCUMENTS, _MOST_CANDIDATES // max(1, len(sought_texts))))
        candidates: list[list[tuple[str, int]]] = [[] for _ in sought_texts]
        for digest in self.corpora:
            try:
                numbers = self._candidates(digest, sought_texts, most)
            except EvidenceError as error:  # an index that is damaged somewhere is believed nowhere
                self._unanswered.append(str(error))
                continue
            for mine, more in zip(candidates, numbers, strict=True):
                mine += [(digest, number) for number in more]
        found = {}
        for sought, places in zip(sought_texts, candidates, strict=True):
            matches = list(self._matches(sought, places)) if places else []
            if matches:
                found[sought.name] = matches
        return found

    def _candidates(self, digest: str, sought_texts: Sequence["_Sought"], most: int) -> list[list[int]]:
        """Documents of a corpus that each thing's hashes name, at most so many of each."""
        index = self._indexes[digest]
        first, counts = index.lookup(np.concatenate([_NO_HASHES, *(sought.hashes for sought in sought_texts)]))
        found, frequent, start = [], [], 0
        for sought in sought_texts:
            mine = slice(start, start + len(sought.hashes))
            start = mine.stop
            numbers, whole = _rarest(index, first[mine], counts[mine], most)
            found.append(numbers)
            if not whole:
                frequent.append(sought.name)
        if frequent:
            others = f" and {len(frequent) - 1:,} more" if len(frequent) > 1 else ""
            self._unanswered.append(
                f"corpus {self.catalog.corpora[digest].name}: runs of {NGRAM_WORDS} words of {frequent[0]}{others} "
                f"stand in more than {most:,} documents: of each, {most:,} were looked into, those with its rarest "
                "runs first"
            )
        return found

    def _matches(self, sought: "_Sought", places: Iterable[tuple[str, int]]) -> Iterator[TextMatch]:
        """Those of some documents that hold an n-gram of a thing: a hash alone may collide."""
        wanted = [frozenset(ngram for text in way for ngram in _ngrams(words(text))) for way in sought.ways]
        folded = {_folded(text) for way in sought.ways for text in way if len(words(text)) >= NGRAM_WORDS}
        for place in places:
            corpus = self.catalog.corpora[place[0]]
            try:
                document = self._document(corpus, place)
            except EvidenceError as error:
                self._unanswered.append(str(error))
                continue
            hits: dict[int, Ngram] = {}
            for at in np.flatnonzero(np.isin(document.hashes, sought.hashes)).tolist():
                ngram = tuple(document.words[at : at + NGRAM_WORDS])
                if any(ngram in each for each in wanted):
                    hits[at] = ngram
            if hits:
                held = set(hits.values())
                yield TextMatch(
                    corpus=corpus.name,
                    corpus_digest=place[0],
                    number=place[1],
                    exact=any(text in document.folded for text in folded),
                    ngrams=max(len(held & each) for each in wanted),
                    spans=tuple(document.token_spans(_joined(list(hits)))),
                )

    def _document(self, corpus: Corpus, place: tuple[str, int]) -> "_Document":
        """A document; some are kept, the last ones, for examples of one task often name the same."""
        found = self._documents.pop(place, None) or _Document.read(corpus, place[1], self._text_of)
        self._documents[place] = found
        kept = sum(len(each.text) for each in self._documents.values())
        while kept > _KEPT_CHARACTERS and len(self._documents) > 1:
            kept -= len(self._documents.pop(next(iter(self._documents))).text)
        return found


_NO_HASHES = np.empty(0, dtype=np.uint64)


def _rarest(
    index: NgramIndex, first: NDArray[np.int64], counts: NDArray[np.int64], most: int
) -> tuple[list[int], bool]:
    """At most so many documents that hold one of some n-grams, by the rarest n-grams; and whether these are all."""
    found: dict[int, None] = {}
    whole = True
    for at in np.argsort(counts, kind="stable").tolist():
        count = int(counts[at])
        whole &= count <= most
        for number in index.documents(int(first[at]), min(count, most)).tolist() if count else ():
            if len(found) < most or number in found:
                found[number] = None
            else:
                whole = False
    return list(found), whole


@dataclass(frozen=True, slots=True)
class _Sought:
    """Something to look for.

    Attributes:
        name: of it.
        ways: its texts, in each way of reading them.
        hashes: of their n-grams, all ways together.
    """

    name: str
    ways: tuple[tuple[str, ...], ...]
    hashes: Hashes

    @classmethod
    def of(cls, name: str, texts: Sequence[str]) -> "_Sought":
        ways = readings(texts)
        every = list(dict.fromkeys(text for way in ways for text in way))
        return cls(name, tuple(ways), np.unique(ngram_hashes(every, NGRAM_WORDS)[0]))


@dataclass(frozen=True, slots=True)
class _Document:
    """A document's text and the places of its words.

    Attributes:
        text: the text.
        folded: the text as `_folded` gives it.
        words: its words.
        hashes: of its n-grams.
        characters: characters [start, end) of each word.
        character_bytes: UTF-8 bytes before each character, with the end: int64 [num_characters + 1].
        token_bytes: bytes at the end of each token: int64 [num_tokens].
    """

    text: str
    folded: str
    words: list[str]
    hashes: Hashes
    characters: list[tuple[int, int]]
    character_bytes: NDArray[np.int64]
    token_bytes: NDArray[np.int64]

    @classmethod
    def read(cls, corpus: Corpus, number: int, text_of: Detokenizer) -> "_Document":
        """Reads it from a corpus.

        Raises:
            EvidenceError: its tokens are not what the document table says: what stood there is unknown.
        """
        row, found = corpus.document(number), token_digest(corpus.document_tokens(number))
        if found != row["digest"]:
            raise EvidenceError(
                f"corpus {corpus.name}: document {row['id']}: found tokens {found}, expected {row['digest']}; "
                "`dvc checkout` restores them",
                file=corpus.directory,
                found=found,
                expected=row["digest"],
                remedy="`dvc checkout`",
            )
        (text,) = text_of.documents(corpus, [number])
        in_order, characters = word_spans(text)
        codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
        lengths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
        return cls(
            text=text,
            folded=_folded(text),
            words=in_order,
            hashes=ngram_hashes([text], NGRAM_WORDS)[0],
            characters=characters,
            character_bytes=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
            token_bytes=text_of.token_bytes(corpus, number),
        )

    def token_spans(self, word_runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Tokens [start, end) that hold runs of words [first, last)."""
        for first, last in word_runs:
            start, end = self.characters[first][0], min(self.characters[last - 1][1], len(self.text))
            begin, stop = self.character_bytes[[min(start, len(self.text)), end]]
            yield (
                int(np.searchsorted(self.token_bytes, begin, side="right")),
                int(np.searchsorted(self.token_bytes, stop, side="left")) + 1,
            )


def _visible(text: str) -> str:
    return text if text.isascii() else "".join(each for each in text if unicodedata.category(each) != "Cf")


def _folded(text: str) -> str:
    """A text with each stretch of white space as one blank, in Unicode's normal form C."""
    return " ".join(unicodedata.normalize("NFC", text).split())


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
