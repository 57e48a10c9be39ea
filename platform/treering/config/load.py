"""From an authored YAML file (and `--set` overrides) to a frozen `Experiment`, or to all its errors at once."""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError

from treering.config.model import Section
from treering.config.schema import Experiment
from treering.config.yaml_file import Document, Problem, parse_yaml, read_yaml
from treering.errors import ConfigError, ManyConfigError

_VALUE_LENGTH = 80
_TEXT_LENGTH = 1000

S = TypeVar("S", bound=Section)


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Reads and checks an authored experiment.

    Args:
        path: the YAML file.
        overrides: `dotted.path=value` texts, applied in order; values are YAML, list items are named by index.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has an unknown key, a wrong type or a contradiction.
    """
    document = read_yaml(path, "a YAML experiment; `ls experiments/` lists yours")
    for override in overrides:
        apply_override(document.values, override)
    return _validate(str(path), Experiment, document, overrides)


def validate_section(path: Path, section: type[S], document: dict[str, Any]) -> S:
    """Checks values against a section.

    Args:
        path: the file, for errors.
        section: what the document holds.
        document: as `read_mapping` read it, perhaps completed.

    Raises:
        ConfigError: the document holds an unknown key, a wrong type or a contradiction.
    """
    return _validate(str(path), section, Document(document))


def read_mapping(path: Path, wanted: str) -> dict[str, Any]:
    """Reads a YAML file that holds a mapping, unchecked.

    Args:
        path: the file.
        wanted: what such a file is, for the error where it is missing.

    Raises:
        ConfigError: the file cannot be read, is not a YAML mapping, or has a value that no config may have.
    """
    document = read_yaml(path, wanted)
    _raise(str(path), document, document.problems, ())
    return document.values


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
        made = parse_yaml(f"value: {text}" if text.strip() else "value: null")
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        raise ConfigError(source, path, repr(text), "a YAML value") from None
    if made.problems or set(made.values) != {"value"}:
        first = next(iter(made.problems), Problem((), None, repr(text), "a YAML value"))
        raise ConfigError(source, path, first.found, first.expected)
    value = made.values["value"]
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


def _validate(source: str, section: type[S], document: Document, overrides: Sequence[str] = ()) -> S:
    """The section that a document holds.

    Raises:
        ConfigError: all problems of the document at once.
        ValidationError: never; the error before has its problems.
    """
    if document.problems:
        said = {each.path for each in document.problems}
        further = [each for each in _problems(section, document) if each.path not in said]
        _raise(source, document, [*document.problems, *further], overrides)
    try:
        return section.model_validate(document.values)
    except ValidationError:
        _raise(source, document, _problems(section, document), overrides)
        raise


def _problems(section: type[Section], document: Document) -> list[Problem]:
    """What is wrong with the values of a document.

    Where a field is wrong, the fields that are right are still held against each other.
    """
    try:
        section.model_validate(document.values)
    except ValidationError as error:
        found = [each for problem in error.errors(include_url=False) for each in _in_words(section, document, problem)]
    else:
        return []
    known = {(each.path, each.found) for each in found}
    for problem in section.contradictions_among(document.values):
        path = tuple(int(part) if part.isdecimal() else part for part in str(problem["field"]).split("."))
        if (path, problem["found"]) not in known:
            found.append(Problem(path, document.place(path), problem["found"], problem["expected"]))
    return found


def _in_words(section: type[Section], document: Document, problem: Any) -> Iterator[Problem]:
    """What pydantic found, in our words."""
    path: tuple[int | str, ...] = problem["loc"]
    context = problem.get("ctx", {})
    match problem["type"]:
        case "contradiction":
            path += tuple(int(part) if part.isdecimal() else part for part in context["field"].split(".") if part)
            found, expected = context["found"], context["expected"]
        case "contradictions":
            for each in context["problems"]:
                yield from _in_words(section, document, {"loc": path, "type": "contradiction", "ctx": each})
            return
        case "extra_forbidden":
            keys = _keys(section, path[:-1])
            found, expected = "an unknown key", f"one of {', '.join(keys)}"
            alike = difflib.get_close_matches(str(path[-1]), keys, n=1) or [
                key for key in keys if str(path[-1]) in key.split("_") or key.endswith(f"_{path[-1]}")
            ]
            if alike:
                expected += f"; did you mean {alike[0]}?"
        case "missing":
            found, expected = "nothing", "a value: this key is required"
        case _:
            found = _clipped(repr(problem["input"]), _VALUE_LENGTH)
            expected = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    yield Problem(path, document.place(path), found, expected)


def _clipped(text: str, length: int = _TEXT_LENGTH) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _raise(source: str, document: Document, problems: Sequence[Problem], overrides: Sequence[str]) -> None:
    """Raises all problems as one error; nothing where there is none.

    Unknown keys go first: a misspelt key is a missing one as well, and only the first of the two helps.

    Raises:
        ConfigError: there is a problem.
        ManyConfigError: there are several.
    """
    errors = []
    for problem in sorted(problems, key=lambda each: each.found != "an unknown key"):
        path = ".".join(str(part) for part in problem.path)
        setters = [each for each in overrides if f"{path}.".startswith(f"{each.partition('=')[0]}.")]
        named = f"{source} with --set {setters[-1]}" if setters else source
        place = None if setters else problem.place or document.place(problem.path)
        line, column = (None, 1) if place is None else (place.line, place.column)
        found, expected = _clipped(problem.found), _clipped(problem.expected)
        errors.append(ConfigError(named, _clipped(path), found, expected, line=line, column=column))
    if len(errors) > 1:
        raise ManyConfigError(source, errors)
    if errors:
        raise errors[0]


def _keys(section: type[Section], location: Sequence[int | str]) -> list[str]:
    """The keys that a section below `section` knows."""
    for part in location:
        if isinstance(part, str) and part in section.model_fields:
            section = next(sections_in(section.model_fields[part].annotation))
    return list(section.model_fields)


def sections_in(annotation: Any) -> Iterator[type[Section]]:
    """The sections that an annotation such as `tuple[CorpusConfig, ...]` or `RampConfig | None` speaks of."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)
