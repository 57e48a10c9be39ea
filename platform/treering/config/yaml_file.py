"""A YAML file as plain values, each with its line: what `treering.config.load` checks against a section.

YAML can do more than a config needs. Here a document is one mapping of texts, numbers, truth values, lists and
mappings. Keys are texts, and each occurs once. `treering.config.yaml_text` bounds size, depth and number of values.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from treering.config.yaml_text import MAX_BYTES, check_bounds
from treering.errors import ConfigError
from treering.files import read_bytes, reason

MAX_INTEGER = 1 << 63

_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
_TEXT = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file.

    Attributes:
        line: from 1.
        column: from 1.
    """

    line: int
    column: int

    @classmethod
    def of(cls, mark: Any) -> "Place":
        """The place that PyYAML marks."""
        return cls(mark.line + 1, mark.column + 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that is wrong.

    Attributes:
        path: keys and indices that lead to it.
        place: where it is, None where nobody knows.
        found: what was found.
        expected: what would be right.
    """

    path: tuple[int | str, ...]
    place: Place | None
    found: str
    expected: str


@dataclass(slots=True)
class Document:
    """What a YAML file holds.

    Attributes:
        values: the mapping.
        places: where each value begins, by keys and indices: its key, or the item of a list.
        problems: what is wrong with it before anybody looks at its meaning.
    """

    values: dict[str, Any]
    places: dict[tuple[int | str, ...], Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: tuple[int | str, ...]) -> Place | None:
        """The place of a value; of a missing value, the place of the section that should contain it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return None


class _Loader(_FastLoader):  # type: ignore[misc]
    """Makes values of nodes; an error says where the node is."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Makes the value of a node.

        Raises:
            MarkedYAMLError: its tag contradicts the text (`!!int x`); the error has the place.
        """
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, IndexError, TypeError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            raise yaml.MarkedYAMLError(
                problem=f"{str(node.value)[:80]!r} is not a value of type {kind}", problem_mark=node.start_mark
            ) from error


def read_yaml(path: Path, wanted: str) -> Document:
    """Reads a YAML file that contains a mapping.

    Args:
        path: the file.
        wanted: what such a file is, for the error where it is missing.

    Raises:
        ConfigError: the file cannot be read, is too large, or is not a YAML mapping.
    """
    text = _text_of(path, wanted)
    try:
        return parse_yaml(text)
    except _NoMappingError as error:
        raise ConfigError(str(path), "", error.found, "a mapping of sections") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join(part for part in (error.context, error.problem) if part)
        place = Place(1, 1) if mark is None else Place.of(mark)
        raise ConfigError(
            str(path), "", f"not valid YAML: {why}", "valid YAML", line=place.line, column=place.column
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise ConfigError(str(path), "", f"not valid YAML: {' '.join(str(error).split())}", "valid YAML") from error


class _NoMappingError(Exception):
    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


def parse_yaml(text: str) -> Document:
    """The mapping in a YAML text.

    Raises:
        YAMLError: it is not YAML, or beyond the bounds.
        ValueError: a date or a number that Python does not know.
        _NoMappingError: it is not a mapping.
    """
    check_bounds(text)
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise _NoMappingError("an empty file")
        if not isinstance(root, yaml.MappingNode):
            kind = {"seq": "a list"}.get(root.tag.rpartition(":")[2], "a single value")
            raise _NoMappingError(f"{kind} instead of keys and values")
        problems = list(_twice(root, set()))
        for node, problem in dict(_strange(root, ())).values():
            problems.append(problem)
            _make_plain(node)
        document = Document(loader.construct_document(root), {}, problems)
        _locate(root, (), document.places)
        return document
    finally:
        loader.dispose()


def _twice(node: yaml.Node, seen: set[int], path: tuple[int | str, ...] = ()) -> Iterator[Problem]:
    """Keys that occur twice in a mapping, by text and type; before merges (`<<`), which may override."""
    if id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield from _twice(child, seen, (*path, number))
        return
    keys = set()
    for key, child in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, name) in keys:
                where = (*path, name)
                yield Problem(where, Place.of(key.start_mark), f"key {name!r} occurs twice", "each key once")
            keys.add((key.tag, name))
        yield from _twice(child, seen, (*path, name))


def _strange(node: yaml.Node, path: tuple[int | str, ...]) -> Iterator[tuple[int, tuple[yaml.Node, Problem]]]:
    """Values of types that no config has, and keys that are not texts, by identity of the node."""
    if node.tag not in _PLAIN:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        expected = "a text, a number, a list or keys and values; a text in quotes is a text"
        yield id(node), (node, Problem(path, Place.of(node.start_mark), f"a value of YAML type {kind}", expected))
    elif node.tag.endswith(":int") and _too_large(node.value):
        yield (
            id(node),
            (
                node,
                Problem(
                    path, Place.of(node.start_mark), f"a number of {len(node.value)} characters", "less than 2**63"
                ),
            ),
        )
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield from _strange(child, (*path, number))
    elif isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                found = "a list or a mapping as a key"
                yield id(node), (node, Problem(path, Place.of(key.start_mark), found, "a text as a key"))
                continue
            if key.tag not in {_TEXT, "tag:yaml.org,2002:merge"}:
                found = f"{key.value!r} as a key"
                yield id(key), (key, Problem(path, Place.of(key.start_mark), found, "a text as a key"))
            yield from _strange(child, (*path, key.value))


def _make_plain(node: yaml.Node) -> None:
    """Turns a strange node into a plain one, so that the rest of the document can be looked at."""
    if isinstance(node, yaml.MappingNode):
        node.tag = "tag:yaml.org,2002:map"
        node.value = [(key, child) for key, child in node.value if isinstance(key, yaml.ScalarNode)]
    else:
        node.tag = _TEXT if isinstance(node, yaml.ScalarNode) else "tag:yaml.org,2002:seq"


def _too_large(text: str) -> bool:
    """Whether an integer of YAML is beyond what any field takes; a short one in another base is looked at later."""
    return len(text.replace("_", "").lstrip("+-0")) > len(str(MAX_INTEGER))


def _locate(node: yaml.Node, path: tuple[int | str, ...], places: dict[tuple[int | str, ...], Place]) -> None:
    """Notes the places of the keys and items below a node; after merges."""
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            places[(*path, number)] = Place.of(child.start_mark)
            _locate(child, (*path, number), places)
    elif isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if isinstance(key, yaml.ScalarNode):
                places[(*path, key.value)] = Place.of(key.start_mark)
                _locate(child, (*path, key.value), places)


def _text_of(path: Path, wanted: str) -> str:
    try:
        content = read_bytes(path, MAX_BYTES)
    except FileNotFoundError:
        raise ConfigError(str(path), "", "no such file", wanted) from None
    except IsADirectoryError:
        raise ConfigError(str(path), "", "a folder", wanted) from None
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), "", f"an unreadable file ({reason(error)})", "a UTF-8 YAML file") from error
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            str(path), "", f"an unreadable file ({reason(error)})", "a UTF-8 YAML file", line=line, column=1
        ) from error
