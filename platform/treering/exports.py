"""Exports of a package that are imported when they are first asked for.

`import treering` and `treering.audit` name the public interface; a command that needs one module of it must not import
them all.
"""

import importlib
import sys
from collections.abc import Callable, Mapping


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package.

    Args:
        package: its name.
        modules: the module, relative to the package, that each exported name is in.
    """

    def attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute
