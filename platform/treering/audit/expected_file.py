"""A file whose content a record states, and how it differs."""

from dataclasses import dataclass
from pathlib import Path

from treering.config.canonical import digest_file


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file whose content a record states.

    Attributes:
        path: relative to the folder.
        digest: sha256 of its content, None where nobody says.
        size: bytes, None where nobody says.
    """

    path: str
    digest: str | None
    size: int | None = None


def file_problem(folder: Path, expected: ExpectedFile) -> str:
    """What is wrong with a file, in words; empty where its content is the expected one."""
    path = folder / expected.path
    if not path.is_file():
        dangling = "a link that leads nowhere" if path.is_symlink() else "missing"
        return "not a regular file" if path.exists() else dangling
    if expected.size is not None and (size := path.stat().st_size) != expected.size:
        return f"{size} bytes, expected {expected.size}"
    if expected.digest is None or (digest := digest_file(path)) == expected.digest:
        return ""
    return f"digest {digest}, expected {expected.digest}"
