"""The logbook of a run as Markdown, for a report, a ticket or a chat: dated lines with numbers."""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from treering.foreign import code, markdown
from treering.metrics.logbook import Event, Logbook
from treering.metrics.lost_work import Loss

_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def span(seconds: float) -> str:
    """A time span in the largest unit that fits: `42 s`, `3.5 min`, `21 h`."""
    value, unit = next(((seconds / size, unit) for size, unit in _UNITS if seconds >= size), (seconds, "s"))
    return f"{value:.1f} {unit}" if 0 < value < 9.95 else f"{value:.0f} {unit}"


def clock(at: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment in UTC."""
    return time.strftime(form, time.gmtime(at))


def loss_text(lost: Loss) -> str:
    """What the end of an attempt cost, in words."""
    again = f"{lost.steps:,} steps ({span(lost.seconds)}) done again" if lost.steps else "no step done again"
    return f"{again}, {span(lost.down_s)} until the next step, {lost.device_hours:,.3g} device-hours"


def total_text(book: Logbook) -> str:
    """What all restarts cost together, in words; empty where there was none."""
    if not book.lost:
        return ""
    restarts = f"{len(book.lost)} restart{'' if len(book.lost) == 1 else 's'}"
    share = ""
    if book.began is not None and book.until is not None and book.until > book.began:
        share = f", {(book.lost_s + book.down_s) / (book.until - book.began):.1%} of the time since the start"
    return (
        f"{restarts} cost {book.lost_steps:,} steps ({span(book.lost_s)}) done again and {span(book.down_s)} between "
        f"attempts: {book.lost_device_hours:,.3g} device-hours{share}"
    )


def markdown_of(book: Logbook, events: Sequence[Event], now: float) -> str:
    """The logbook as a page of Markdown.

    Args:
        book: the logbook.
        events: those of its events that are wanted, oldest first.
        now: Unix seconds of the export.
    """
    return "\n".join(_lines(book, events, now)) + "\n"


def _lines(book: Logbook, events: Sequence[Event], now: float) -> Iterator[str]:
    name = f", {markdown(book.experiment)}" if book.experiment else ""
    yield f"# Logbook of run {code(book.run)}{name}"
    yield ""
    yield f"As of {clock(now)}; times are UTC."
    if total := total_text(book):
        yield f"{total}."
    for text in book.missing:
        yield f"Not read: {markdown(text)}."
    for day, of_day in groupby(events, key=lambda event: clock(event.at, "%Y-%m-%d")):
        yield ""
        yield f"## {day}"
        yield ""
        for event in of_day:
            step = f" (step {event.step:,})" if event.step else ""
            text = f": {markdown(event.text)}" if event.text else ""
            lost = f". Cost: {loss_text(event.lost)}" if event.lost is not None else ""
            yield f"- {clock(event.at, '%H:%M:%S')} **{markdown(event.title)}**{step}{text}{lost}"
