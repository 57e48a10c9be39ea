"""Finds the definition of a task by its name: lm-eval's own ones, and those in `definitions/` that lm-eval lacks."""

import difflib
import re
from copy import deepcopy
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import lm_eval.tasks
from lm_eval.tasks._yaml_loader import load_yaml

from treering.errors import UserError
from treering.files import read_bytes

_OURS: Final = Path(__file__).parent / "definitions"
_NAME: Final = re.compile(rb"""^task:[ \t]*["']?([^\s"'#\[]+)""", re.MULTILINE)


def load_definition(name: str) -> dict[str, Any]:
    """The config of a task, its functions imported.

    Raises:
        UserError: no task has this name, its definition cannot be loaded, or it asks for more than a language model.
    """
    where = f"evaluation.tasks: task: found {name!r}"
    path = _definitions().get(name)
    if path is None:
        near = difflib.get_close_matches(name, _definitions(), n=5)
        hint = f"; names like it: {', '.join(near)}" if near else ""
        raise UserError(f"{where}, expected a task of lm-eval {version('lm-eval')} (not a group or a tag){hint}")
    for field, what in (("unsafe_code", "runs code that the model writes"), ("doc_to_image", "shows images")):
        if load_yaml(path, resolve_func=False).get(field):
            raise UserError(f"{where}: it {what}, expected a task of texts alone")
    try:
        config: dict[str, Any] = deepcopy(load_yaml(path))
    except Exception as error:  # a definition runs code of its own
        raise UserError(
            f"{where}: its definition does not load ({type(error).__name__}: {error}); install what it asks for, or "
            "leave the task out"
        ) from error
    return config


@cache
def _definitions() -> dict[str, Path]:
    """Path of the file that defines each task, by the task's name; ours come first.

    lm-eval's own index parses every file, which takes ten times as long.
    """
    found: dict[str, Path] = {}
    for root in (_OURS, Path(lm_eval.tasks.__file__).parent):
        for path in sorted(root.rglob("*.yaml")):
            if match := _NAME.search(read_bytes(path)):
                found.setdefault(match[1].decode(), path)
    return found
