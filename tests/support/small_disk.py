"""A disk that is really full: a small tmpfs, which only the processes of one script see."""

import functools
import subprocess
import sys

import pytest

_PREPARE = """
import subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", "disk"], check=True)
def fill(left):
    "Fills the disk with a file `ballast`, except for some bytes."
    with open("disk/ballast", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096: pass
        except OSError: pass
        file.truncate(file.tell() - left)
"""
_ALONE = ["unshare", "--user", "--map-root-user", "--mount"]


@functools.cache
def _refusal():
    """Why this machine mounts nothing; empty where it does."""
    command = [*_ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""


def on_small_disk(script, folder):
    """Runs a script in `folder`, where `disk/` has 512 KiB and `fill(left)` fills it; skips where nothing is mounted.

    Returns:
        The process that has ended, with its output as text.
    """
    if _refusal():
        pytest.skip(f"a small disk cannot be mounted here: {_refusal()}")
    (folder / "disk").mkdir()
    command = [*_ALONE, sys.executable, "-c", _PREPARE + script]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=300)
