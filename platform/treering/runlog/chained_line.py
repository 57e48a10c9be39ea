"""Lines of an append-only file that name the line before: canonical JSON with `prev` and `digest`.

The digest is over the line's content without `digest`. The writer encodes the content once and inserts the digest into
the text; the reader cuts it out again. Standard library only: training processes append lines with this module.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from treering.config.canonical import DIGEST_PREFIX, canonical_json

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
