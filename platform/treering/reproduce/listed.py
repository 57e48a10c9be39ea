"""Lists in sentences, which name the first few things and count the others."""

from collections.abc import Iterable


def listed(texts: Iterable[str], most: int = 4) -> str:
    """The texts, separated by commas; of more than `most` texts the first ones, and how many more there are."""
    every = list(texts)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more} more" if more > 0 else "")
