"""Pages that resiliparse's parser cannot take in time or memory: found in their text, before it is parsed.

No page that people made on purpose is like this; damaged and generated ones are.
"""

import re
from typing import Final

_MAX_DEPTH: Final = 5_000
_MAX_REOPENED: Final = 256 << 20
"""Most bytes that a parser may take for formatting elements that it opens again."""

_ELEMENT_BYTES: Final = 450
"""About what an element takes there, beside its attributes."""

_ALIKE: Final = 3
"""Most open formatting elements with the same name and attributes (HTML Standard, 13.2.4.3)."""

_NAMES: Final = ("a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u")
_TAG: Final = re.compile(
    r"<(/?)(?!(?:area|base|br|col|dd|dt|embed|hr|img|input|li|link|meta|option|p|param|source|tbody|td|tfoot|th|thead|tr|"
    r"track|wbr)\b)[a-z]",
    re.IGNORECASE,
)
_FORMATTING: Final = re.compile(
    r"(?P<other><!--.*?(?:-->|\Z)"
    r"|<(?P<raw>script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>]).*?(?:</(?P=raw)(?=[\s/>])|\Z))"
    rf"|<(?P<end>/?)(?P<name>{'|'.join(_NAMES)})(?=[\s/>])"
    r"""(?P<attributes>(?:[^>=]++|=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))?+)*+)>?""",
    re.IGNORECASE | re.DOTALL,
)


def too_deep(html: str) -> bool:
    """Whether elements that only an end tag closes are nested deeper than the limit.

    Time for the main content grows with the square of the depth: 2 s at 10,000 elements.
    """
    if html.count("<") <= _MAX_DEPTH:
        return False
    depth = 0
    for tag in _TAG.finditer(html):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > _MAX_DEPTH:
            return True
    return False


def opens_again(html: str) -> bool:
    """Whether formatting elements are opened again so often that a parser takes too much memory.

    One that is not closed is opened again in every block behind it, so memory grows with the square of their number
    (HTML Standard, 13.2.4.3): a page of 230 KB would take 20 GB. Counted is, at each tag, what is open there; first
    roughly, which is enough for nearly every page.
    """
    num_tags = html.count("<")
    if num_tags * (num_tags * _ELEMENT_BYTES // 2 + len(html)) <= _MAX_REOPENED:
        return False
    opened, longest = dict.fromkeys(_NAMES, 0), 0
    deepest = dict(opened)
    for other, _, end, name, attributes in _FORMATTING.findall(html):
        if other:
            continue
        if name not in opened:
            name = name.lower()  # noqa: PLW2901
        depth = opened[name]
        if not end:
            opened[name] = depth + 1
            if depth == deepest[name]:
                deepest[name] = depth + 1
            longest = max(longest, len(attributes))
        elif depth:
            opened[name] = depth - 1
    return num_tags * sum(deepest.values()) * (_ELEMENT_BYTES + longest) > _MAX_REOPENED and _opens_again(html)


def _opens_again(html: str) -> bool:
    opened: list[tuple[str, str]] = []
    num_bytes = total = position = 0
    for tag in _FORMATTING.finditer(html):
        if tag["other"]:
            continue
        total += num_bytes * html.count("<", position, tag.start())
        position = tag.start()
        if total > _MAX_REOPENED:
            return True
        name = tag["name"].lower()
        if tag["end"]:
            closed = next((place for place in reversed(range(len(opened))) if opened[place][0] == name), None)
        else:
            alike = [place for place, each in enumerate(opened) if each == (name, tag["attributes"])]
            closed = alike[0] if len(alike) == _ALIKE else None
            opened.append((name, tag["attributes"]))
            num_bytes += _ELEMENT_BYTES + len(tag["attributes"])
        if closed is not None:
            num_bytes -= _ELEMENT_BYTES + len(opened.pop(closed)[1])
    return total + num_bytes * html.count("<", position) > _MAX_REOPENED


def without_formatting(html: str) -> str:
    """A page without its formatting tags: its visible text is the same."""
    return _FORMATTING.sub(lambda tag: tag["other"] or "", html)
