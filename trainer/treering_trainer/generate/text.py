"""Converts tokens to text as they are drawn, without incomplete characters and without the stop text."""

from collections.abc import Sequence

from tokenizers import Tokenizer

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class TextStream:
    """The text of a growing sequence of tokens.

    A byte-level token may end inside a character: its bytes are kept until the character is complete. Text that may be
    the beginning of a stop text is kept too.

    Args:
        tokenizer: the run's.
        stops: texts that end the sample; they are not part of the text.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        self._tokens: list[int] = []
        self._text = ""
        self._given = 0
        self.stopped = False

    def push(self, token: int) -> str:
        """Adds a token; returns the text that is now certain."""
        self._tokens.append(token)
        new = self._tokenizer.decode(self._tokens)
        if new.endswith(_UNKNOWN):
            return ""
        self._tokens.clear()
        self._text += new
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
