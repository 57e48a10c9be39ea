"""What a store holds of a run, and the first difference between two such images.

An image of what a run's folder gives is made by shipping it into `treering.store.memory.MemoryRegistry`. An image of
what MLflow holds is read from it. Both have the form in which MLflow keeps values.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_SCORES: Final = "eval/"
_STALL: Final = "treering.stall"
"""A tag that counts seconds."""
_LATER: Final = ("treering.evaluation.", "treering.non_finite.", "treering.waits")
"""Beginnings of tags that may be left from what the run's folder no longer has."""

Point3 = tuple[int, int, float]
Points = Collection[Point3]


@dataclass(slots=True)
class Image:
    """A run in a store.

    Attributes:
        name: of the run.
        status: of the run.
        params: by name.
        tags: by name.
        points: of each metric: step, timestamp in milliseconds, value.
        datasets: name and digest.
        models: tags and params of each LoggedModel by its name.
    """

    name: str = ""
    status: str = ""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: Mapping[str, Points] = field(default_factory=dict)
    datasets: set[tuple[str, str]] = field(default_factory=set)
    models: dict[str, tuple[dict[str, str], dict[str, str]]] = field(default_factory=dict)

    def difference(self, held: "Image", *, rings_only: bool = False) -> str | None:
        """The first thing that the run's folder gives and a store holds otherwise.

        Args:
            held: what the store holds.
            rings_only: whether only metrics are compared that this image has.

        Returns:
            None where the store holds all of it. Scores and models of checkpoints that the folder no longer has may be
            there too, and what people added.
        """
        return next(self._differences(held, rings_only=rings_only), None)

    def _differences(self, held: "Image", *, rings_only: bool) -> Iterator[str]:
        yield from _unequal("param", self.params, held.params)
        names = self.points if rings_only else sorted({*self.points, *held.points})
        for name in names:
            yield from _unequal_points(name, self.points.get(name, ()), held.points.get(name, ()))
        if rings_only:
            return
        yield from _unequal("", {"name": self.name, "status": self.status}, {"name": held.name, "status": held.status})
        yield from _unequal("tag", {key: each for key, each in self.tags.items() if key != _STALL}, held.tags)
        for tag in sorted(held.tags.keys() - self.tags.keys()):
            if tag.startswith("treering.") and not tag.startswith(_LATER):
                yield f"tag {tag}: found {held.tags[tag]!r}, expected no such tag"
        for name, digest in sorted(self.datasets - held.datasets):
            yield f"dataset {name}: found none of digest {digest}"
        for name, (tags, params) in self.models.items():
            if name not in held.models:
                yield f"model {name}: missing"
                continue
            yield from _unequal(f"model {name}: tag", tags, held.models[name][0])
            yield from _unequal(f"model {name}: param", params, held.models[name][1])


def _unequal(what: str, expected: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    for key, value in expected.items():
        if found.get(key) != value:
            yield f"{what} {key}: found {found.get(key)!r}, expected {value!r}".strip()


def _unequal_points(name: str, expected: Points, found: Points) -> Iterator[str]:
    pairs: list[tuple[Point3 | None, Point3 | None]]
    if name.startswith(_SCORES):  # a checkpoint may be scored again, or be removed: the newest score counts
        newest, held = ({step: value for step, _, value in sorted(points, key=_order)} for points in (expected, found))
        pairs = [((step, 0, new), (step, 0, held[step]) if step in held else None) for step, new in newest.items()]
    else:
        one, other = sorted(expected, key=_order), sorted(found, key=_order)
        if len(one) == len(other):
            pairs = list(zip(one, other, strict=True))
        else:
            there = {point[:2] for point in other}
            wanted = {point[:2] for point in one}
            lacking = next((point for point in one if point[:2] not in there), None)
            extra = next((point for point in other if point[:2] not in wanted), other[-1] if other else None)
            pairs = [(lacking, None) if lacking else (None, extra)]
    for want, have in pairs:
        if want is None and have is not None:
            yield f"metric {name} at step {have[0]}: found {have[2]}, expected no value with that time"
        elif want is not None and have is None:
            yield f"metric {name} at step {want[0]}: found nothing, expected {want[2]}"
        elif want is not None and have is not None and not (want[:2] == have[:2] and _same(want[2], have[2])):
            yield f"metric {name} at step {want[0]}: found {have[2]} (step {have[0]}), expected {want[2]}"


def _order(point: Point3) -> Point3:
    return point[0], point[1], -math.inf if math.isnan(point[2]) else point[2]


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-12)
