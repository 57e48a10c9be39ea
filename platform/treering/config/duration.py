"""Spans of time as people write them: `23h30m`, `90m`, `84600`."""

import re

from treering.errors import UserError

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS), re.ASCII)


def parse_duration(text: str) -> int:
    """Reads a span of time.

    Args:
        text: seconds, or days, hours, minutes and seconds in this order, each at most once: `1d2h`, `23h30m`.

    Returns:
        Seconds, at least one.

    Raises:
        UserError: the text is not such a span.
    """
    match = _DURATION.fullmatch(f"{text}s" if text.isdecimal() else text)
    seconds = (
        sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS.values(), strict=True)) if match else 0
    )
    if seconds < 1:
        raise UserError(f"{text!r} is not a span of time; expected seconds or units such as 23h30m, 90m, 1d2h or 84600")
    return seconds
