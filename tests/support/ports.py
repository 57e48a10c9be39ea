"""Ports for servers that a test starts."""

import itertools
import os
import socket
from random import SystemRandom

_FIRST, _PER_WORKER = 12_000, 1_000
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
_NUMBERS = itertools.count(SystemRandom().randrange(_PER_WORKER))


def free_port():
    """A port that nobody takes before the test's server opens it.

    Below 32,768, where the kernel gives none to connections and to servers that ask for any; workers of pytest have
    their own.
    """
    while True:
        port = _FIRST + _WORKER * _PER_WORKER + next(_NUMBERS) % _PER_WORKER
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
