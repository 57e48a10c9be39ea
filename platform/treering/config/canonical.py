"""Canonical JSON and digests: the one way in which Treering turns a value into an identity.

Standard library only: the run log's writer depends on this file.

It differs from RFC 8785 in three ways. Floats are written as Python's `repr` does (`1.0`, `1e-05`), not as ECMAScript
does (`1`, `0.00001`). Keys are sorted by code point, not by UTF-16 code unit. Whole numbers beyond 2**53 are exact, and
numbers that are not finite are strings. Run ids depend on it, so it changes to RFC 8785 only with the next
`schema_version`.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from treering.files import open_regular

DIGEST_PREFIX = "sha256:"
READ_BYTES = 4 << 20

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """Returns `value` with every non-finite float replaced by its name, since JSON has no such numbers."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return value
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(item) for item in value]
    return value


def canonical_json(value: Any) -> str:
    """UTF-8 JSON with sorted keys, no spaces and Python's float repr.

    Non-finite numbers become the strings "NaN", "Infinity", "-Infinity".

    Raises:
        TypeError: `value` holds something that JSON cannot say (a set, a date, a numpy scalar): a digest must never
            depend on a guessed conversion.
        ValueError: `value` is nested too deeply.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError):  # a number that is not finite, or a mapping that is not a dict: rare, and slower
        return _ENCODER.encode(_finite(value))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text that somebody else may have written.

    A repeated key is an error here: readers that take the first and readers that take the last of two would
    see different records under one digest.

    Raises:
        ValueError: not JSON, not UTF-8, a repeated key, or nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def digest_bytes(data: bytes) -> str:
    """`sha256:<hex>` of raw bytes."""
    return DIGEST_PREFIX + hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """`sha256:<hex>` of the canonical JSON of `value`."""
    return digest_bytes(canonical_json(value).encode())


def digest_file(path: Path) -> str:
    """`sha256:<hex>` of a file's content, read in blocks of 4 MiB."""
    state = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(READ_BYTES):
            state.update(block)
    return DIGEST_PREFIX + state.hexdigest()


def short(digest: str, length: int = 12) -> str:
    """The first hex characters of a digest, for people."""
    return digest.removeprefix(DIGEST_PREFIX)[:length]


def said_otherwise(found: Any, said: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted path, value found and value said, of everything in `said` that `found` has otherwise.

    What `said` leaves out is not compared. 1 and 1.0 are equal, `true` and 1 are not.
    """
    if isinstance(found, dict) and isinstance(said, dict):
        for key, value in said.items():
            yield from said_otherwise(found.get(key), value, f"{place}.{key}" if place else str(key))
    elif isinstance(found, list) and isinstance(said, list) and len(found) == len(said):
        for number, (one, other) in enumerate(zip(found, said, strict=True)):
            yield from said_otherwise(one, other, f"{place}.{number}")
    elif found != said or isinstance(found, bool) is not isinstance(said, bool):
        yield place, found, said
