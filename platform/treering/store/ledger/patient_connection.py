"""A connection to PostgreSQL that gives up where the server is silent.

The server's own limits, such as `statement_timeout`, do nothing where its processes hang or its machine is frozen: the
kernel acknowledges every packet, and the client would wait for ever.
"""

import time
from collections.abc import Generator
from typing import Any, ClassVar

import psycopg


class PatientConnection(psycopg.Connection[Any]):
    """Closes itself where an answer takes longer than `silence_s`, with psycopg's `OperationalError`."""

    silence_s: ClassVar[float] = 70.0

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **named: Any) -> Any:
        """Waits for an answer, as psycopg does, up to the limit."""
        return super().wait(self._limited(gen), *args, **named)

    def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Passes on what psycopg's generator asks for; psycopg comes back several times a second, ready or not.

        Raises:
            OperationalError: the server was silent for too long.
        """
        deadline = time.monotonic() + self.silence_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server was silent for {self.silence_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value
