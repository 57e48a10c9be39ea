"""Prints to a terminal in a separate thread: a blocked terminal (Ctrl-S, a dead connection) does not stop training."""

import os
import threading
from queue import Full, Queue
from typing import Final, TextIO

_WAITING_TEXTS: Final = 64
_LAST_WORDS_S: Final = 2.0


class Terminal:
    """A stream that is written to without waiting; text that the stream does not take in time is lost and counted.

    Args:
        stream: open, with a descriptor. Its buffer is not used: a blocked write would hold the buffer's lock for ever.
    """

    def __init__(self, stream: TextIO) -> None:
        self.live = stream.isatty()
        self.lost = 0
        self._stream = stream  # a reference, so that it stays open
        self._texts: Queue[str | None] = Queue(_WAITING_TEXTS)
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._print, name="terminal", daemon=True)

    def write(self, text: str) -> None:
        """Queues a text.

        Raises:
            OSError: an earlier text could not be written, as to a closed pipe.
        """
        if self._failure is not None:
            raise self._failure
        if self._thread.ident is None:  # not before: a process with threads must not fork
            self._thread.start()
        try:
            self._texts.put_nowait(text)
        except Full:
            self.lost += 1

    def close(self) -> None:
        """Waits a moment for queued texts to be written.

        Raises:
            OSError: a text could not be written.
        """
        if self._thread.ident is None:
            return
        if self.lost:
            self.write(f"{self.lost} lines of progress are not shown: the terminal did not take them\n")
        try:
            self._texts.put(None, timeout=_LAST_WORDS_S)
        except Full:
            return
        self._thread.join(_LAST_WORDS_S)
        if self._failure is not None:
            raise self._failure

    def _print(self) -> None:
        try:
            while (text := self._texts.get()) is not None:
                rest = text.encode(errors="replace")
                while rest:
                    rest = rest[os.write(self._stream.fileno(), rest) :]
        except OSError as error:
            self._failure = error
