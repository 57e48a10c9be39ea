"""Worker processes of a command, which end with it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait


@contextmanager
def worker_pool(workers: int, preload: Sequence[str] = ()) -> Iterator[ProcessPoolExecutor]:
    """A pool of worker processes. They end when this process ends, even if it is killed.

    Where the body fails or is interrupted, they are ended at once: the command would wait for their tasks otherwise.

    Args:
        workers: how many processes.
        preload: modules that are imported once, and not in each worker.
    """
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_join_parent)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
            child.join()
        raise
    pool.shutdown()


def _join_parent() -> None:
    """Leaves Ctrl-C, which reaches the whole process group, to the parent; ends this process when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
