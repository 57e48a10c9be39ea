"""Projects that the real trainer recorded, from the archives of `tests/fixtures/projects`; nothing is trained here."""

import tarfile
from pathlib import Path

ARCHIVES = Path(__file__).parents[1] / "fixtures" / "projects"


def unpack(name: str, folder: Path) -> Path:
    """Unpacks an archive; returns the project's root."""
    root = folder / name
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        tar.extractall(root)  # noqa: S202 - an archive of our own
    return root
