"""What differs between the environments of two attempts: by package, device, driver and variable, not by digest alone.

Reads the environment that an attempt's header holds (`treering.collect.environment`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from treering.collect.environment import numeric_variables
from treering.runlog.find import AnyRun

_SYSTEM: Final = ("os", "kernel", "machine", "libc", "cpu", "cores", "threads")
_PARTS: Final = {"packages": "packages", "devices": "devices and drivers", "variables": "variables"}


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """One thing that is not the same in two environments.

    Attributes:
        kind: `python`, `package`, `device`, `driver`, `variable` or `system`.
        name: of the package, variable or part.
        first: what the first environment has; None where it has no such thing.
        second: the same of the second.
        numeric: whether it can move numbers: it is part of the environment's digest.
    """

    kind: str
    name: str
    first: str | None
    second: str | None
    numeric: bool


@dataclass(frozen=True, slots=True)
class EnvironmentComparison:
    """Two environments side by side.

    Attributes:
        same_digest: whether everything that can move numbers is the same; None where a record has no digest.
        differences: what can move numbers first.
        doubts: what could not be compared, and why.
    """

    same_digest: bool | None
    differences: tuple[EnvironmentDifference, ...]
    doubts: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return asdict(self)


def environment_of(run: AnyRun) -> Mapping[str, Any]:
    """The environment of a run's newest attempt, empty before the first.

    Raises:
        EvidenceError: the header does not hold.
    """
    attempts = run.attempts()
    return attempts[-1].header.environment if attempts else {}


def compare_environments(first: Mapping[str, Any], second: Mapping[str, Any]) -> EnvironmentComparison:
    """Compares two environments part by part; a part that one record lacks is a doubt."""
    parts = [_parts(each) for each in (first, second)]
    doubts = [
        f"The {name} were not compared: a record of the environment does not name them"
        for key, name in _PARTS.items()
        if (key in first) != (key in second) or (key not in first and key not in second)
    ]
    lacking = {kind for kind, key in _OF.items() if key not in first or key not in second}
    found = [
        EnvironmentDifference(*key, a[0] if a else None, b[0] if b else None, any(each[1] for each in (a, b) if each))
        for key in dict.fromkeys([*parts[0], *parts[1]])
        if key[0] not in lacking
        for a, b in [(parts[0].get(key), parts[1].get(key))]
        if a is None or b is None or a[0] != b[0]
    ]
    digests = first.get("digest"), second.get("digest")
    same = None if None in digests else digests[0] == digests[1]
    if same is False and not any(each.numeric for each in found):
        doubts.append("The digests differ, and the records do not name what: an earlier version wrote one of them")
    return EnvironmentComparison(same, tuple(sorted(found, key=lambda each: not each.numeric)), tuple(doubts))


_OF: Final = {"package": "packages", "device": "devices", "driver": "devices", "variable": "variables"}
"""Which part of the record each kind comes from."""


def _parts(environment: Mapping[str, Any]) -> dict[tuple[str, str], tuple[str, bool]]:
    """Value of each thing by kind and name, and whether it can move numbers."""
    return {(kind, name): (str(value), numeric) for kind, name, value, numeric in _things(environment)}


def _things(environment: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, bool]]:
    python = environment.get("python")
    if isinstance(python, Mapping):
        python = " ".join(str(python.get(key, "")) for key in ("implementation", "version"))
    if python is not None:
        yield "python", "python", python, True
    numeric = environment.get("numeric_packages", {})
    for name, version in environment.get("packages", {}).items():
        yield "package", name, version, name in numeric
    devices = environment.get("devices", ())
    kinds = environment.get("device_kinds", ())
    for name, number in Counter(str(device.get("name")) for device in devices).items():
        yield "device", name, number, name in kinds
    drivers = sorted({str(device["driver"]) for device in devices if device.get("driver")})
    if drivers:
        yield "driver", "driver", ", ".join(drivers), False
    variables = environment.get("variables", {})
    counted = numeric_variables(variables)
    for name, value in variables.items():
        yield "variable", name, value, name in counted
    system = environment.get("system", {})
    for name in _SYSTEM:
        if name in system:
            yield "system", name, system[name], False
