"""A sweep: a grid of values in YAML, each point of which is one run of an experiment.

    experiment: ../demo.yaml
    grid:
      optimizer.peak_learning_rate: [1.0e-3, 2.0e-3]
      seed: [1, 2, 3]

The path of the experiment is relative to the folder of the file. The last line of the grid varies fastest.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import Field
from pydantic_core import PydanticCustomError

from treering.config.load import read_mapping, validate_section
from treering.config.model import Section, contradiction

MOST_RUNS: Final = 10_000
"""A grid with more points is a mistake."""


class SweepConfig(Section):
    """What a sweep's file holds."""

    experiment: str = Field(description="the experiment's YAML file, from the folder of the sweep's file")
    grid: dict[str, list[Any]] = Field(min_length=1, description="values to try, by dotted path as `--set` takes it")

    def contradictions(self) -> Iterator[Iterator[PydanticCustomError]]:
        """Lines without a value or with one twice, and grids without end."""
        yield self._lines()
        yield self._size()

    def _lines(self) -> Iterator[PydanticCustomError]:
        for path, values in self.grid.items():
            if not all(path.split(".")) or "=" in path:
                yield contradiction("grid", repr(path), "a dotted path such as optimizer.peak_learning_rate")
            if not values:
                yield contradiction("grid", f"{path} without a value", "a list of values")
            if twice := [value for number, value in enumerate(values) if value in values[:number]]:
                yield contradiction("grid", f"{path} with {twice[0]!r} twice", "each value once")

    def _size(self) -> Iterator[PydanticCustomError]:
        runs = math.prod(map(len, self.grid.values()))
        if runs > MOST_RUNS:
            yield contradiction("grid", f"{runs:,} runs", f"at most {MOST_RUNS:,}")


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a grid.

    Attributes:
        values: by dotted path.
    """

    values: Mapping[str, Any]

    @property
    def overrides(self) -> tuple[str, ...]:
        """The point as `--set` takes it."""
        return tuple(f"{path}={_yaml(value)}" for path, value in self.values.items())


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as its file describes it.

    Attributes:
        experiment: the experiment's file.
        points: the grid, the last line varying fastest.
    """

    experiment: Path
    points: tuple[Point, ...]


def load_sweep(file: Path) -> Sweep:
    """Reads a sweep's file.

    Raises:
        ConfigError: the file cannot be read, or is not a sweep.
    """
    document = read_mapping(file, "a YAML file with `experiment` and `grid`; docs/trainer.md shows one")
    found = validate_section(file, SweepConfig, document)
    points = tuple(Point(dict(zip(found.grid, values, strict=True))) for values in product(*found.grid.values()))
    return Sweep(file.parent / found.experiment, points)


def _yaml(value: Any) -> str:
    """A value on one line, read back as the same value."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
