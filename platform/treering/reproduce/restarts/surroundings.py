"""What may change at a restart by intent: the environment, the layout, and whatever else two headers name."""

from collections.abc import Mapping
from typing import Any

from treering.metrics.compare import differences
from treering.metrics.environments import compare_environments
from treering.reproduce.listed import listed
from treering.reproduce.restarts.border import Aspect


def environment_aspect(before: Mapping[str, Any], now: Mapping[str, Any]) -> Aspect:
    """Whether everything of two environments that can move numbers is the same."""
    found = compare_environments(before, now)
    if found.same_digest:
        return Aspect("environment", "consistent", "the same digest")
    names = [f"{each.kind} {each.name}" for each in found.differences if each.numeric]
    return Aspect("environment", "changed", f"environment changed ({listed(names) or 'not known what'})")


def compared_aspect(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Aspect:
    """Whether two documents are the same; else what differs, by dotted path."""
    found = [f"{each.path} {each.values[0]} to {each.values[1]}" for each in differences([before, now])]
    if found:
        return Aspect(name, "changed", f"{name} changed ({listed(found)})")
    return Aspect(name, "consistent", "the same")
