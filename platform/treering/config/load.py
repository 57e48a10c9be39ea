"""From an authored YAML file (and `--set` overrides) to a frozen `Experiment`, or to one clear error."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError

from treering.config.model import Section
from treering.config.schema import Experiment
from treering.config.yaml_text import MAX_BYTES, check_bounds
from treering.errors import ConfigError
from treering.files import read_text

_FOUND_LENGTH = 80

S = TypeVar("S", bound=Section)


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's own rule is that the last of two equal keys wins in silence; here it is an error."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Reads a mapping and refuses a key that stands twice; before merges (`<<`), which may override."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Reads and checks an authored experiment.

    Args:
        path: the YAML file.
        overrides: `dotted.path=value` texts, applied in order; values are YAML, list items are named by index.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or holds an unknown key, a wrong type or a contradiction.
    """
    document = read_mapping(path, "a YAML experiment; `ls experiments/` lists yours")
    for override in overrides:
        apply_override(document, override)
    return validate_section(path, Experiment, document, overrides)


def load_section(path: Path, section: type[S], expected: str) -> S:
    """Reads and checks a YAML file that holds one section.

    Args:
        path: the file.
        section: what it holds.
        expected: what such a file is, for the error where it is missing.

    Raises:
        ConfigError: as `load_experiment`.
    """
    return validate_section(path, section, read_mapping(path, expected))


def validate_section(path: Path, section: type[S], document: dict[str, Any], overrides: Sequence[str] = ()) -> S:
    """Checks what a file says of a section.

    Args:
        path: the file, for errors.
        section: what the document holds.
        document: as `read_mapping` read it, perhaps completed.
        overrides: those that were applied, for errors.

    Raises:
        ConfigError: the document holds an unknown key, a wrong type or a contradiction.
    """
    try:
        return section.model_validate(document)
    except ValidationError as error:
        raise _config_error(str(path), section, error, overrides) from None


def read_mapping(path: Path, wanted: str) -> dict[str, Any]:
    """Reads a YAML file that holds a mapping, unchecked.

    Args:
        path: the file.
        wanted: what such a file is, for the error where it is missing.

    Raises:
        ConfigError: the file cannot be read, or is no YAML mapping.
    """
    try:
        text = read_text(path, MAX_BYTES)
        check_bounds(text)
        document = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise ConfigError(str(path), "", "no such file", wanted) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "", f"an unreadable file ({error})", "a UTF-8 YAML file") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date or a number that Python does not know
        raise ConfigError(str(path), "", f"no valid YAML: {' '.join(str(error).split())}", "valid YAML") from error
    if not isinstance(document, dict):
        raise ConfigError(str(path), "", type(document).__name__, "a mapping of sections")
    return document


def apply_override(document: dict[str, Any], override: str) -> None:
    """Sets one value of an authored document in place.

    Raises:
        ConfigError: the text is not `dotted.path=value`, or the path leads through something without such a part.
    """
    source = f"--set {override}"
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(source, "", repr(override), "dotted.path=value")
    try:
        check_bounds(text)
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(source, path, repr(text), "a YAML value") from None
    *parents, last = path.split(".")
    target: Any = document
    for depth, part in enumerate(parents):
        where = ".".join(parents[: depth + 1])
        if isinstance(target, dict):
            if target.get(part) is None:  # left out, or written as null: a section that is not there yet
                target[part] = {}
            target = target[part]
        else:
            target = target[_index(target, part, source, where)]
    if isinstance(target, dict):
        target[last] = value
    else:
        target[_index(target, last, source, path)] = value


def _index(target: Any, part: str, source: str, where: str) -> int:
    if not isinstance(target, list):
        raise ConfigError(source, where, f"a {type(target).__name__} above it", "a section or a list")
    if not part.isdecimal() or int(part) >= len(target):
        raise ConfigError(source, where, part, f"an index below {len(target)}")
    return int(part)


def _config_error(source: str, root: type[Section], error: ValidationError, overrides: Sequence[str]) -> ConfigError:
    """The first problem that pydantic found, in our words; the number of the others beside it.

    An unknown key goes first: a misspelt key is a missing one as well, and only the first of the two helps.
    """
    problems = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    problem = problems[0]
    path = ".".join(str(part) for part in problem["loc"])
    context = problem.get("ctx", {})
    match problem["type"]:
        case "contradiction":
            path = ".".join(part for part in (path, context["field"]) if part)
            found, expected = context["found"], context["expected"]
        case "extra_forbidden":
            found, expected = "an unknown key", f"one of {', '.join(_keys(root, problem['loc'][:-1]))}"
        case "missing":
            found, expected = "nothing", "a value: this key is required"
        case _:
            found = repr(problem["input"])
            found = found if len(found) <= _FOUND_LENGTH else found[: _FOUND_LENGTH - 1] + "…"
            expected = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if len(problems) > 1:
        expected += f" ({len(problems) - 1} more problem{'s' if len(problems) > 2 else ''} in this file)"
    for override in overrides:
        if f"{path}.".startswith(f"{override.partition('=')[0]}."):
            source = f"{source} with --set {override}"
    return ConfigError(source, path, found, expected)


def _keys(section: type[Section], location: Sequence[int | str]) -> list[str]:
    """The keys that a section below `section` knows."""
    for part in location:
        if isinstance(part, str):
            section = next(_sections(section.model_fields[part].annotation))
    return list(section.model_fields)


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """The sections that an annotation such as `tuple[CorpusConfig, ...]` or `RampConfig | None` speaks of."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)
