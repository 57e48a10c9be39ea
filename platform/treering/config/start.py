"""Finds the run that an experiment starts from, and checks that the experiment fits it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from treering.config.ancestry import ResolvedStart, StartConfig
from treering.config.canonical import canonical_json, short
from treering.config.resolved import CONFIG_FILE, RUN_ID_LENGTH, ReadRange, Resolved, ranges_before
from treering.config.resolved_blend import ResolvedBlend
from treering.config.schedule import Schedule
from treering.config.schema import Experiment
from treering.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FoundStart:
    """Where a run starts, found in the folder of runs.

    Attributes:
        start: by content.
        other: config of the run that it starts from.
        folder: folder of that run.
        first_sample: number of the first sample of the data order, before batches are skipped.
    """

    start: ResolvedStart
    other: Resolved
    folder: Path
    first_sample: int

    @property
    def before(self) -> list[ReadRange]:
        """What was read up to there, from the root on."""
        return [*ranges_before(self.folder, self.other.recipe.start_from), ReadRange.of(self.other, self.start.step)]


def resolve_start(start: StartConfig, experiment: Experiment, runs: Path, source: str) -> FoundStart:
    """Finds the run that another one starts from.

    Args:
        start: as authored.
        experiment: the experiment that starts there.
        runs: folder of run directories.
        source: the experiment's file, for errors.

    Raises:
        ConfigError: no or several runs have that id, the run has no such step, or no schedule can be made.
        EvidenceError: the other run's config was changed.
    """
    found = sorted(runs.glob(f"{start.run[:RUN_ID_LENGTH]}*/{CONFIG_FILE}"))
    fitting = [
        (path.parent, each)
        for path, each in zip(found, map(Resolved.read, found), strict=True)
        if short(each.recipe.digest, len(start.run)) == start.run
    ]
    if len(fitting) != 1:
        names = ", ".join(each.run_id for _, each in fitting) or "no such run"
        raise ConfigError(
            source,
            "start_from.run",
            f"{start.run!r}: {names} in {runs}",
            "the id of one run there (`treering runs` lists them; a published folder is one: copy it to runs/<id>)",
        )
    folder, other = fitting[0]
    if not other.first_step <= start.step <= other.schedule.num_steps:
        raise ConfigError(
            source,
            "start_from.step",
            str(start.step),
            f"a step of run {other.run_id}: {other.first_step} to {other.schedule.num_steps}",
        )
    resolved = ResolvedStart(
        run=other.recipe.digest,
        step=start.step,
        consumed_samples=other.consumed_samples(start.step),
        schedule=start.schedule,
    )
    with schedule_written_in(source):
        schedule = Schedule.from_config(
            experiment.schedule,
            experiment.optimizer,
            experiment.blend.sequence_length,
            start_step=resolved.schedule_start_step,
        )
    first, end = schedule.samples_of(start.step + 1, start.step + start.skip_steps)
    before = other.schedule.skipped_samples if start.schedule == "continue" else 0
    resolved = resolved.model_copy(update={"skipped_samples": before + end - first})
    return FoundStart(resolved, other, folder, before + first)


@contextmanager
def schedule_written_in(source: str) -> Iterator[None]:
    """Names the file in errors of a schedule, which does not know where it was written.

    Raises:
        ConfigError: the error of the schedule, with the file.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(source, error.path, error.found, error.expected) from None


def check_orders_alike(blend: ResolvedBlend, other: Resolved, source: str) -> None:
    """Refuses to let corpora go on in another order of their samples: position 100 would be another sample there.

    Raises:
        ConfigError: seed or sequence length differ.
    """
    for field in ("seed", "sequence_length"):
        found, expected = getattr(blend, field), getattr(other.blend, field)
        if found != expected:
            raise ConfigError(
                source,
                f"blend.{field}",
                str(found),
                f"{expected} as run {other.run_id} has it: with start_from.data continue a corpus goes on in the order "
                f"in which that run read it (`--set blend.{field}={expected}`), or start_from.data by_schedule",
            )


def check_start_fits(resolved: Resolved, other: Resolved, source: str) -> None:
    """Refuses to start from a run whose weights mean something else, or at a place where the schedule is not.

    Raises:
        ConfigError: model, precision, tokenizer or sequence length differ, the schedule would be over already, or a
            schedule that continues has consumed another number of samples than the other run.
    """
    start = resolved.recipe.start_from
    if start is None:
        return
    mine, theirs = resolved.recipe, other.recipe
    for field, found, expected in (
        ("model", mine.model.model_dump(exclude={"dropout"}), theirs.model.model_dump(exclude={"dropout"})),
        ("precision", mine.precision, theirs.precision),
        ("tokenizer", mine.tokenizer, theirs.tokenizer),
        ("blend.sequence_length", resolved.blend.sequence_length, other.blend.sequence_length),
    ):
        if found != expected:
            raise ConfigError(
                source, field, canonical_json(found), f"{canonical_json(expected)} as run {other.run_id} has it: "
                "a start takes its weights and optimizer state as they are"
            )  # fmt: skip
    if resolved.schedule.num_steps <= start.step:
        raise ConfigError(
            source,
            "schedule.train_tokens",
            f"{mine.schedule.train_tokens}, which step {resolved.schedule.num_steps} reaches",
            f"more than the {resolved.consumed_tokens(start.step)} tokens consumed at step {start.step}; a schedule "
            "that continues counts from the root",
        )
    if start.schedule == "continue" and resolved.schedule.samples_after(start.step) != start.consumed_samples:
        raise ConfigError(
            source,
            "schedule",
            f"{resolved.schedule.samples_after(start.step)} samples consumed after step {start.step}",
            f"{start.consumed_samples} as run {other.run_id} had consumed: the same batch sizes up to there, or "
            "start_from.schedule restart",
        )
