"""A resolved experiment: what the trainer takes, and what `resolved.json` of a run contains.

Every default is written out, every part has its digest. The *recipe* (model, optimizer, schedule, precision, seed,
blend, tokenizer, and the checkpoint of another run that it starts from, if any) names the run; the *attempt* part may
change under it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ValidationError

from treering.config.ancestry import ResolvedStart
from treering.config.canonical import digest_json, parse_json, short
from treering.config.model import (
    Digest,
    GrowingSection,
    ModelConfig,
    OptimizerConfig,
    Precision,
    ScheduleConfig,
    Section,
)
from treering.config.operation import AttemptConfig
from treering.config.resolved_blend import (
    ResolvedBlend,
    check_types,
)
from treering.config.schedule import Schedule
from treering.config.schema import SCHEMA_VERSION
from treering.errors import EvidenceError
from treering.files import read_bytes, write_durably

CONFIG_FILE = "resolved.json"
"""A run's config, in the folder of the run."""
RUN_ID_LENGTH = 16
ANCESTORS = "ancestors"
"""Folder of a published run that holds the records of the runs that it starts from."""


class Recipe(GrowingSection):
    """What makes two trainings the same training; its digest is the run's id."""

    added = frozenset({"start_from"})

    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    precision: Precision
    seed: int
    blend: Digest
    tokenizer: Digest | None
    start_from: ResolvedStart | None = None

    @property
    def digest(self) -> str:
        """The run's id."""
        return digest_json(self.model_dump(mode="json"))


class Resolved(Section):
    """A resolved experiment: what `resolved.json` of a run holds and the only config that the trainer takes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    experiment: str
    description: str
    recipe: Recipe
    blend: ResolvedBlend
    attempt: AttemptConfig
    overrides: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        """Name of the run's directory: the first hex characters of the recipe's digest."""
        return short(self.recipe.digest, RUN_ID_LENGTH)

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each part, by name."""
        return {
            "recipe": self.recipe.digest,
            "blend": self.blend.digest,
            "attempt": digest_json(self.attempt.model_dump(mode="json")),
        }

    @property
    def schedule(self) -> Schedule:
        """The schedule as functions of step and consumed samples."""
        start = self.recipe.start_from
        return Schedule.from_config(
            self.recipe.schedule,
            self.recipe.optimizer,
            self.blend.sequence_length,
            start_step=0 if start is None else start.schedule_start_step,
            skipped_samples=0 if start is None else start.skipped_samples,
        )

    @property
    def first_step(self) -> int:
        """The first step that this run does; the ones before are another run's."""
        return 1 if self.recipe.start_from is None else self.recipe.start_from.step + 1

    def consumed_samples(self, step: int) -> int:
        """Samples that the path up to and with a step has read, those of the runs before this one included."""
        start = self.recipe.start_from
        before = start.consumed_samples if start is not None and start.schedule == "restart" else 0
        return before + self.schedule.samples_after(step)

    def consumed_tokens(self, step: int) -> int:
        """The same in tokens."""
        return self.consumed_samples(step) * self.blend.sequence_length

    def to_json(self) -> dict[str, Any]:
        """The document that is stored and printed: values, and the digests recomputed from them."""
        return {**self.model_dump(mode="json"), "run": self.run_id, "digests": self.digests}

    def write(self, path: Path) -> None:
        """Writes `resolved.json` durably."""
        write_durably(path, json.dumps(self.to_json(), indent=2, sort_keys=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a `resolved.json` and checks it against its own digests.

        Raises:
            EvidenceError: the file is missing, unreadable, or its values do not give the digests it names.
        """
        try:
            document = parse_json(read_bytes(path))
            run, digests = document.pop("run"), dict(document.pop("digests"))
            resolved = cls.model_validate(document)
            check_types(path, resolved, document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise EvidenceError(
                f"{path}: not a resolved config ({place}: {first['msg']})",
                file=path,
                found=first["input"],
                expected=f"{place}: {first['msg']}",
            ) from error
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise EvidenceError(
                f"{path}: not a resolved config ({error})", file=path, found=str(error), expected="a resolved config"
            ) from error
        written = {name: digest_json(document[name]) for name in ("recipe", "attempt")}  # a field may have been dropped
        for name, digest in (resolved.digests | written).items():
            if digests.get(name) != digest:
                raise EvidenceError(
                    f"{path}: {name} digest {digests.get(name)} was written, {digest} recomputed: the file was edited",
                    file=path,
                    found=digests.get(name),
                    expected=digest,
                )
        if run != resolved.run_id:
            text = f"{path}: run {run} was written, {resolved.run_id} recomputed: the file was edited"
            raise EvidenceError(text, file=path, found=run, expected=resolved.run_id)
        return resolved


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Samples [lo, hi) of one data order that a run reads.

    Attributes:
        run: the run's id.
        blend: the order's blend.
        lo: number of the first sample.
        hi: end of the range, exclusive.
    """

    run: str
    blend: ResolvedBlend
    lo: int
    hi: int

    @classmethod
    def of(cls, resolved: Resolved, last_step: int) -> Self:
        """What a run reads from its first step to `last_step`, by its recipe."""
        lo, hi = resolved.schedule.samples_of(resolved.first_step, last_step)
        return cls(resolved.run_id, resolved.blend, lo, hi)


def ancestor_folder(run: Path, digest: str) -> Path:
    """The folder of the run that another one starts from: below a published run, else beside the run's folder."""
    name = short(digest, RUN_ID_LENGTH)
    carried = run / ANCESTORS / name
    return carried if carried.exists() else run.parent / name


def ranges_before(folder: Path, start: ResolvedStart | None) -> list[ReadRange]:
    """What was read up to the place where a run starts, by the recipes of the runs before it, from the root on.

    Args:
        folder: the run's folder; need not exist.
        start: where the run starts, None if from nothing.

    Raises:
        EvidenceError: the config of a run before it is missing or was changed.
    """
    ranges: list[ReadRange] = []
    while start is not None:
        folder = ancestor_folder(folder, start.run)
        resolved = Resolved.read(folder / CONFIG_FILE)
        if resolved.recipe.digest != start.run:
            raise EvidenceError(
                f"{folder / CONFIG_FILE}: recipe {resolved.recipe.digest}, expected {start.run}, from which "
                "a later run starts",
                file=folder / CONFIG_FILE,
                found=resolved.recipe.digest,
                expected=start.run,
            )
        ranges.insert(0, ReadRange.of(resolved, start.step))
        start = resolved.recipe.start_from
    return ranges
