"""Converts tokens to text as they are drawn, without incomplete characters and without the stop text."""

import codecs
from collections.abc import Sequence

from treering.data.corpus.token_bytes import Spelling


class TextStream:
    """The text of a growing sequence of tokens.

    A token may end inside a character: its bytes are kept until the character is complete. Text that may be
    the beginning of a stop text is kept too.

    Args:
        spelling: of the run's tokenizer.
        stops: texts that end the sample; they are not part of the text.
    """

    def __init__(self, spelling: Spelling, stops: Sequence[str] = ()) -> None:
        self._spelling = spelling
        self._stops = stops
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._text = ""
        self._given = 0
        self.stopped = False

    def push(self, token: int) -> str:
        """Adds a token; returns the text that is now certain."""
        self._text += self._decode(self._spelling.pieces[token])
        found = [place for stop in self._stops if (place := self._text.find(stop, self._given)) >= 0]
        if found:
            self.stopped = True
            return self._give(min(found))
        return self._give(len(self._text) - max(map(self._begun, self._stops), default=0))

    def finish(self) -> str:
        """The text that was kept until now, without the bytes of an incomplete character."""
        return "" if self.stopped else self._give(len(self._text))

    def _begun(self, stop: str) -> int:
        """Characters at the end of the text that may be the beginning of a stop text."""
        longest = min(len(stop) - 1, len(self._text) - self._given)
        return next((length for length in range(longest, 0, -1) if self._text.endswith(stop[:length])), 0)

    def _give(self, end: int) -> str:
        text = self._text[self._given : end]
        self._given = end
        return text
