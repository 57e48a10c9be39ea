"""How commands print numbers and times for people, and non-finite numbers in JSON."""

import math
from typing import Any

_UNITS = ("", "K", "M", "B", "T")


def age(seconds: float | None) -> str:
    """A time span for people: `42s`, `7m`, `3.5h`, `2d`."""
    if seconds is None:
        return ""
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


def number_text(value: float | None) -> str:
    """Four digits of a number, nothing without one."""
    return "" if value is None else f"{value:.4g}"


def short_count(value: float) -> str:
    """`1.23M` for 1,234,567: three digits and a unit of thousands."""
    power = 0
    while value >= 1000 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g}{_UNITS[power]}"


def plain_numbers(value: Any) -> Any:
    """Non-finite numbers by their names: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: plain_numbers(item) for key, item in value.items()}
    return [plain_numbers(item) for item in value] if isinstance(value, list | tuple) else value


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
