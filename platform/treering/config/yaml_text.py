"""YAML within bounds: a small text cannot become a large value.

An alias (`*name`) repeats what its anchor names, so ten lines can mean billions of values. The parser's events are
counted before anything is built from them.
"""

from typing import Any

import yaml

MAX_BYTES = 4 << 20
"""Most bytes of a YAML file that a person writes."""
MAX_DEPTH = 64
"""Most levels of mappings and sequences inside each other."""
MAX_VALUES = 20_000
"""Most values of a YAML file that a person writes, each as often as aliases repeat it."""
MAX_LOCK_VALUES = 2_000_000
"""Most values of a YAML file that a program writes, as `dvc.lock`."""

_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlBoundError(yaml.MarkedYAMLError):
    """A YAML text holds more values or levels than are read."""


def parse_yaml(text: str, max_values: int = MAX_LOCK_VALUES) -> Any:
    """The value of a YAML text that a program wrote; a repeated key keeps its last value.

    Raises:
        yaml.YAMLError: the text is not valid YAML.
        YamlBoundError: the text is beyond the bounds.
        ValueError: a date or a number that Python does not know.
    """
    check_bounds(text, max_values)
    return yaml.load(text, Loader=_FAST_LOADER)  # noqa: S506 - a safe loader


def parse_pinned_yaml(text: str) -> Any:
    """`parse_yaml` of a text in a file that a config pins; without an anchor no value is larger than its text.

    Raises:
        yaml.YAMLError: the text is not valid YAML.
        YamlBoundError: the text has an anchor, and is beyond the bounds.
        ValueError: a date or a number that Python does not know.
    """
    return parse_yaml(text) if "&" in text else yaml.load(text, Loader=_FAST_LOADER)  # noqa: S506 - a safe loader


def check_bounds(text: str, max_values: int = MAX_VALUES) -> None:
    """Counts the values of a YAML text, aliases resolved.

    Raises:
        yaml.YAMLError: the text is not valid YAML.
        YamlBoundError: the text is beyond the bounds.
    """
    counted = _Counted()
    for event in yaml.parse(text, Loader=_FAST_LOADER):
        problem = counted.add(event)
        if counted.values > max_values:
            problem = f"more than {max_values:,} values, each as often as aliases repeat it"
        if problem:
            raise YamlBoundError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]


class _Counted:
    """How many values the events so far make."""

    def __init__(self) -> None:
        self.values = 0
        self._below: dict[str, int] = {}  # values below each anchor, itself with them
        self._open: list[tuple[str | None, int]] = []  # anchor, and the count before it

    def add(self, event: Any) -> str:
        """Counts an event; returns what is wrong with it, empty if nothing is."""
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._open.pop()
            if anchor is not None:
                self._below[anchor] = self.values - before
        elif isinstance(event, yaml.AliasEvent):
            self.values += self._below.get(str(event.anchor), 1)
            if any(anchor == event.anchor for anchor, _ in self._open):
                return f"*{event.anchor} contains itself"
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.CollectionStartEvent):
                self._open.append((event.anchor, self.values))
            elif event.anchor is not None:
                self._below[event.anchor] = 1
            self.values += 1
        return f"more than {MAX_DEPTH} levels inside each other" if len(self._open) > MAX_DEPTH else ""
