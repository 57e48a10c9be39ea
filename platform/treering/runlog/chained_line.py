"""Lines of an append-only file that name the line before: canonical JSON with `prev` and `digest`.

The digest is over the line's content without `digest`. The writer encodes the content once and inserts the digest into
the text; the reader cuts it out again. Standard library only: training processes append lines with this module.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Self

from treering.config.canonical import DIGEST_PREFIX, canonical_json, digest_json, parse_json
from treering.errors import EvidenceError

_KEY: Final = "digest"


def seal(content: Mapping[str, Any]) -> tuple[str, str]:
    """Encodes a line's content and puts the digest where its key belongs in the order of keys.

    Args:
        content: all fields but `digest`, with `prev`; the keys of the outermost object are plain identifiers.

    Returns:
        The line without its newline, and the digest.
    """
    before = canonical_json({key: value for key, value in content.items() if key < _KEY})
    after = canonical_json({key: value for key, value in content.items() if key > _KEY})
    first, last = before[1:-1], after[1:-1]
    joint = "," if first and last else ""
    digest = DIGEST_PREFIX + hashlib.sha256(f"{{{first}{joint}{last}}}".encode()).hexdigest()
    return f'{{{first}{"," if first else ""}"{_KEY}":"{digest}"{"," if last else ""}{last}}}', digest


class ChainedLine:
    """What every kind of ring is: a data class with the fields `prev` and `digest`, which a line holds."""

    __slots__ = ()

    @classmethod
    def sealed(cls, **values: Any) -> tuple[Self, str]:
        """Builds a ring from all fields but `digest`.

        Returns:
            The ring, and its line without the newline.
        """
        line, digest = seal(values)
        make: Any = cls
        return make(**values, digest=digest), line


def parse_ring(line: str, where: str, fields: Collection[str]) -> dict[str, Any]:
    """The content of a ring's line, whose digest fits; the kinds of its values are not checked.

    Args:
        line: the line without its newline.
        where: file and line number, for errors.
        fields: names of the ring's fields.

    Raises:
        EvidenceError: the line is not a ring, its content does not give the digest in it, or it has other fields.
    """
    try:
        content: dict[str, Any] = parse_json(line)
        claimed = content["digest"]
        recomputed = digest_json({key: value for key, value in content.items() if key != _KEY})
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{where}: not a ring ({error}): the line was changed or torn") from error
    if claimed != recomputed:
        raise EvidenceError(
            f"{where}: ring of step {content.get('step')}: digest {claimed} is written, {recomputed} recomputed: "
            "the ring was changed after it was appended",
            found=claimed,
            expected=recomputed,
        )
    if content.keys() != set(fields):
        raise EvidenceError(
            f"{where}: ring has fields {sorted(content)}, expected {sorted(fields)}",
            found=sorted(content),
            expected=sorted(fields),
        )
    return content


def of_other_kinds(content: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> Iterator[tuple[str, Any, str]]:
    """Fields whose value is not of the kinds that the field may have: name, value, what was expected."""
    for name, allowed in kinds.items():
        if type(content[name]) not in allowed:
            yield name, content[name], " or ".join(kind.__name__ for kind in allowed)


def refuse(content: Mapping[str, Any], where: str, wrong: Iterable[tuple[str, Any, str]]) -> None:
    """Ends at the first wrong value of a ring.

    Args:
        content: of the ring.
        where: file and line number, for errors.
        wrong: names of fields, each with its value and with what was expected.

    Raises:
        EvidenceError: there is a wrong value.
    """
    for name, value, expected in wrong:
        raise EvidenceError(
            f"{where}: ring of step {content['step']}: {name} is {value!r}, expected {expected}: no trainer of this "
            "version wrote it",
            found=value,
            expected=expected,
        )
