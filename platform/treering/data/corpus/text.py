"""From tokens to their text, and from positions in that text to tokens."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treering.config.canonical import digest_file
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import open_tokenizer
from treering.errors import EvidenceError


class Detokenizer:
    """The text of a corpus's documents, by the tokenizer that made their tokens.

    Args:
        path: `tokenizer.json` of the corpora.

    Attributes:
        digest: of that file.
        spelling: the bytes of its tokens.

    Raises:
        EvidenceError: the tokenizer is missing or unreadable.
        UserError: its tokens have no spelling of their own.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise EvidenceError(
                f"{path}: the tokenizer is missing; `dvc checkout` or `dvc repro tokenize` brings it back",
                file=path,
                expected="a tokenizer.json",
                remedy="`dvc checkout` or `dvc repro tokenize`",
            )
        self.digest = digest_file(path)
        self._path = path
        self._tokenizer = open_tokenizer(path)
        self.spelling = Spelling.of(self._tokenizer)

    def check(self, corpus: Corpus) -> None:
        """Refuses a corpus of another tokenizer.

        Raises:
            EvidenceError: the corpus's manifest names another tokenizer.
        """
        expected = corpus.manifest["tokenizer"]["digest"]
        if expected != self.digest:
            raise EvidenceError(
                f"{self._path}: found tokenizer {self.digest}, expected {expected}, which made corpus {corpus.name}; "
                "`dvc checkout` of the matching commit brings it back",
                file=self._path,
                found=self.digest,
                expected=expected,
                remedy="`dvc checkout` of the matching commit",
            )

    def documents(self, corpus: Corpus, numbers: Sequence[int]) -> list[str]:
        """Text of some documents, end-of-document tokens left out.

        Raises:
            EvidenceError: another tokenizer made the corpus, or its index is damaged.
        """
        self.check(corpus)
        found = []
        for number in numbers:
            tokens = corpus.document_tokens(number)
            found += self.spelling.texts(tokens, np.array([len(tokens)]))
        return found

    def part(self, tokens: list[int], *, begins: bool) -> str:
        """Text of a part of a document, special tokens spelled out.

        Args:
            tokens: of the part.
            begins: whether the document begins with it.
        """
        named = self._tokenizer.id_to_token
        pieces = np.take(self.spelling.pieces, tokens, mode="clip").tolist() if tokens else []
        spelled = b"".join(piece or (named(token) or "").encode() for token, piece in zip(tokens, pieces, strict=True))
        return (spelled.removeprefix(b" ") if begins and self.spelling.space == "start" else spelled).decode(
            errors="replace"
        )

    def token_bytes(self, corpus: Corpus, number: int) -> npt.NDArray[np.int64]:
        """Where each token of a document ends in the UTF-8 bytes of its text: int64 [num_tokens].

        A special token has no text.
        """
        return self.spelling.byte_ends(corpus.document_tokens(number))
