"""Makes the hooks that a config names, from the entry points of installed packages, and records their origin.

A package names its hooks in the group `treering.hooks`. The launcher makes each hook once, so that errors in the config
are found before anything starts; then every rank makes its own.
"""

import difflib
import inspect
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from treering.config.canonical import canonical_json
from treering.config.operation import HookConfig
from treering.errors import ConfigError, ManyConfigError
from treering.runlog.records import HookSource
from treering_trainer.monitor.hooks import Hook

GROUP: Final = "treering.hooks"


def make_hooks(configs: Sequence[HookConfig], source: str) -> dict[str, Hook]:
    """Makes the hooks that a config names, by name and in its order.

    Args:
        configs: names and options.
        source: the config's file, for errors.

    Raises:
        ConfigError: a name is unknown, a hook cannot be imported, or it refuses its options.
        ManyConfigError: several such errors.
    """
    hooks: dict[str, Hook] = {}
    errors: list[ConfigError] = []
    for number, config in enumerate(configs):
        try:
            hooks[config.name] = _make(config, f"hooks.{number}", source)
        except ConfigError as error:
            errors.extend(error.errors if isinstance(error, ManyConfigError) else (error,))
    if len(errors) > 1:
        raise ManyConfigError(source, errors)
    if errors:
        raise errors[0]
    return hooks


def hook_sources(configs: Sequence[HookConfig]) -> tuple[HookSource, ...]:
    """The package of each hook, for the attempt's header; called after `make_hooks`."""
    return tuple(_source(config.name, _installed(config.name)[0]) for config in configs)


def _source(name: str, entry: EntryPoint) -> HookSource:
    package = entry.dist
    return HookSource(
        name=name,
        object=entry.value,
        distribution=package.name if package else "",
        version=package.version if package else "",
    )


def _installed(name: str) -> list[EntryPoint]:
    return list(entry_points(group=GROUP, name=name))


def _make(config: HookConfig, path: str, source: str) -> Hook:
    kind = _find(config.name, f"{path}.name", source)
    errors = list(_option_errors(kind, config, f"{path}.options", source))
    if len(errors) > 1:
        raise ManyConfigError(source, errors)
    if errors:
        raise errors[0]
    try:
        return kind(**config.options)
    except Exception as error:
        found = canonical_json(config.options)
        raise ConfigError(source, f"{path}.options", found, f"what hook {config.name} takes: {error}") from error


def _find(name: str, path: str, source: str) -> type[Hook]:
    found = _installed(name)
    if not found:
        names = sorted(entry_points(group=GROUP).names)
        near = difflib.get_close_matches(name, names, n=1)
        expected = f"one of {', '.join(names)}" if names else "a hook of an installed package, and no package has hooks"
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(
            source, path, repr(name), f"{expected}{meant} (packages name their hooks in the entry points {GROUP})"
        )
    if len(found) > 1:
        packages = ", ".join(sorted(_source(name, each).distribution for each in found))
        raise ConfigError(source, path, f"{name!r} of {packages}", "a name that only one installed package uses")
    try:
        kind = found[0].load()
    except Exception as error:
        raise ConfigError(
            source, path, f"{name!r}, which cannot be imported: {error!r}", f"an importable {found[0].value}"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Hook)):
        expected = f"a subclass of {Hook.__module__}.{Hook.__name__}"
        raise ConfigError(source, path, f"{name!r}, which is {found[0].value}", expected)
    return kind


def _option_errors(kind: type[Hook], config: HookConfig, path: str, source: str) -> Iterator[ConfigError]:
    parameters = inspect.signature(kind).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    listed = f"one of {', '.join(parameters)}" if parameters else f"no option: hook {config.name} has none"
    for name in config.options.keys() - parameters.keys():
        yield ConfigError(source, f"{path}.{name}", "an unknown option", listed)
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in config.options:
            yield ConfigError(source, f"{path}.{name}", "nothing", f"a value: hook {config.name} requires this option")
