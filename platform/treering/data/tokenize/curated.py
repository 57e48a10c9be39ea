"""Curated documents: how the files of `data/curated` are cut into shards, and read."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import orjson

from treering.errors import UserError
from treering.files import open_regular

_MISSING: Final = "{} does not exist, expected the curated documents; run `treering curate` first"
_TYPES: Final = {"id": str, "text": str, "source": str, "offset": int, "licence": str}


def read_documents(path: Path, begin: int = 0, end: int | None = None) -> Iterator[dict[str, Any]]:
    """Yields the rows of a curated split.

    Args:
        path: JSON Lines.
        begin: the byte at which the first line begins.
        end: the byte behind the last line; None for the end of the file.

    Raises:
        UserError: the file is missing or damaged.
    """
    position = begin
    try:
        with open_regular(path) as file:
            file.seek(begin)
            while position != end and (line := file.readline()):
                yield _row(line)
                position += len(line)
    except FileNotFoundError:
        raise UserError(_MISSING.format(path)) from None
    except ValueError as error:
        raise UserError(
            f"{path} is damaged at byte {position} ({error}), expected a document in each line; `treering curate` makes"
            " it anew"
        ) from None


def cut(path: Path, most_bytes: int) -> list[tuple[int, int]]:
    """The bytes of shards: each begins and ends with a line, and has about `most_bytes`.

    Raises:
        UserError: the file is missing.
    """
    borders = [0]
    try:
        with open_regular(path) as file:
            size = path.stat().st_size
            while borders[-1] < size:
                file.seek(min(borders[-1] + most_bytes, size) - 1)
                file.readline()
                borders.append(file.tell())
    except FileNotFoundError:
        raise UserError(_MISSING.format(path)) from None
    return list(pairwise(borders))


def _row(line: bytes) -> dict[str, Any]:
    """The document of a line.

    Raises:
        ValueError: it is not one.
    """
    row = orjson.loads(line)
    if not isinstance(row, dict) or any(type(row.get(key)) is not kind for key, kind in _TYPES.items()):
        raise ValueError(f"found no object with {', '.join(_TYPES)}")
    return row
