"""Numbers as people read them: three significant digits with their unit, times as ages."""

import math
from typing import Final

NOTHING: Final = "\u2013"

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_AGES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def known(value: int | None) -> str:
    """A number that no record may tell."""
    return NOTHING if value is None else str(value)


def number(value: float | None, unit: str = "") -> str:
    """Three significant digits, thousands as k, M, G, T, small numbers as powers: `12.3 k tokens/s`, `6.00e-4`."""
    if value is None or math.isnan(value):
        return NOTHING if not unit or value is None else f"NaN {unit}"
    if math.isinf(value):
        return ("-∞" if value < 0 else "∞") + (f" {unit}" if unit else "")
    size = abs(value)
    if unit == "s" and 0 < size < 0.1:
        return f"{_digits(value * 1e3)} ms"
    if 0 < size < 1e-3:
        return f"{value:.2e}{f' {unit}' if unit else ''}".replace("e-0", "e-")
    for factor, prefix in _PREFIXES:
        if size >= factor * 0.9995:
            return f"{_digits(value / factor)} {prefix}{unit and ' ' + unit}"
    return f"{_digits(value)}{f' {unit}' if unit else ''}"


def reading(value: float | None, unit: str = "") -> str:
    """The same of what was measured: a value that is not a number is not one that is missing."""
    return f"NaN {unit}".rstrip() if value is not None and math.isnan(value) else number(value, unit)


def percent(share: float) -> int:
    """A share in whole percent: 100 only where nothing is left."""
    return math.floor(round(100 * share, 9))


def size(value: float) -> str:
    """Bytes in powers of ten, as disks are sold: `54.5 MB`."""
    text = number(value)
    return f"{text}B" if text[-1:].isalpha() else f"{text} B"


def _digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}" if size >= 0.9995 else f"{value:#.3g}"


def duration(seconds: float | None) -> str:
    """A time span in the largest unit that fits, two digits: `42 s`, `3.5 min`, `21 h`."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    value, unit = next(((seconds / size, unit) for size, unit in _AGES if seconds >= size), (max(0.0, seconds), "s"))
    return f"{value:.1f} {unit}" if 0 < value < 9.95 else f"{value:.0f} {unit}"


def age(seconds: float | None) -> str:
    """How long ago something happened; a clock that runs ahead of ours says `now`."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    return f"{duration(seconds)} ago" if seconds >= 1 else "now"


def count(value: int) -> str:
    """A whole number in full, with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u2009")


def plural(value: int, noun: str) -> str:
    """`1 step`, `40 steps`."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"
