"""The wheel of this tree, built once a module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(folder):
    """Builds the wheel into a folder, without a network, and returns its path."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: `make setup` installs it")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("treering-*.whl")
    return wheel
