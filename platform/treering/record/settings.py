"""Turns the config object of any trainer into JSON values, which decide the identity of a run."""

import dataclasses
import enum
import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from treering.errors import UserError
from treering.redact import redact_variable

_SCALARS = (bool, str, int, float, np.integer, np.floating, PurePath)


def json_settings(config: Any, field: str = "config") -> Any:
    """The settings as JSON values, passwords hidden.

    Takes mappings, dataclasses, pydantic models, `argparse.Namespace`, objects with `to_dict` (the configs of
    transformers), and in them numbers, texts, paths, enumerations, sequences and sets.

    Args:
        config: the object.
        field: its name, for errors.

    Raises:
        UserError: a value has no form in JSON; the text names its field.
    """
    if isinstance(config, enum.Enum):
        config = config.value
    if config is None or isinstance(config, _SCALARS):
        return _scalar(config)
    if isinstance(config, Mapping):
        return {str(key): _setting(str(key), value, f"{field}.{key}") for key, value in config.items()}
    if isinstance(config, set | frozenset):
        config = sorted(config, key=str)
    if isinstance(config, Sequence) and not isinstance(config, bytes):
        return [json_settings(value, f"{field}[{number}]") for number, value in enumerate(config)]
    fields = _fields(config)
    if fields is None:
        raise UserError(
            f"{field}: found {type(config).__name__}, which has no form in JSON, expected a number, a text, a list or "
            f"a mapping; convert the value, for example with str()"
        )
    return json_settings(fields, field)


def _setting(name: str, value: Any, field: str) -> Any:
    found = json_settings(value, field)
    return redact_variable(name, found) if isinstance(found, str) else found


def _fields(config: Any) -> Mapping[str, Any] | None:
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    if isinstance(config, Namespace):
        return vars(config)
    for method in ("model_dump", "to_dict"):
        if not isinstance(config, type) and callable(getattr(config, method, None)):
            fields = getattr(config, method)()
            return fields if isinstance(fields, Mapping) else None
    return None


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, PurePath):
        return str(value)
    return float(value) if math.isfinite(value) else str(float(value))
