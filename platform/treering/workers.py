"""Worker processes that a command starts, and that end with it."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


def join_parent() -> None:
    """Leaves Ctrl-C, which reaches the whole process group, to the parent; ends this process when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
