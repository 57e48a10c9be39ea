"""Python files stay short: none has more than 400 lines, and half of them have fewer than 140."""

import statistics
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 400
MEDIAN_LINES = 140


@pytest.fixture(scope="module")
def lengths() -> dict[str, int]:
    """Lines of each Python file that git tracks."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a checkout of git")
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in paths if path.is_file()}


def test_no_file_is_long(lengths):
    long = {name: length for name, length in lengths.items() if length > MOST_LINES}
    assert long == {}, f"split by what the parts do: expected at most {MOST_LINES} lines a file"


def test_the_median_file_is_short(lengths):
    assert len(lengths) > 100
    assert statistics.median(lengths.values()) < MEDIAN_LINES
