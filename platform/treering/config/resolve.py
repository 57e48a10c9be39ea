"""From an authored experiment and a resolved blend to what the trainer takes.

Every default is written out, every part has its digest. The *recipe* (model, optimizer, schedule, precision, seed,
blend, tokenizer, and where it starts from if not from nothing) names the run; the *attempt* part may change under it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from treering.config.ancestry import Count, ResolvedStart, StartConfig
from treering.config.canonical import canonical_json, digest_json, parse_json, said_otherwise, short
from treering.config.model import (
    Digest,
    GrowingSection,
    ModelConfig,
    OptimizerConfig,
    PositiveInt,
    Precision,
    ScheduleConfig,
    Section,
    contradiction,
)
from treering.config.operation import (
    CheckpointConfig,
    HookConfig,
    KernelConfig,
    ParallelConfig,
    SpikeConfig,
    TelemetryConfig,
    ValidationConfig,
)
from treering.config.schedule import Schedule
from treering.config.schema import SCHEMA_VERSION, Experiment
from treering.errors import ConfigError, EvidenceError, UserError
from treering.files import read_bytes, write_durably

CONFIG_FILE = "resolved.json"
"""A run's config, in the folder of the run."""
RUN_ID_LENGTH = 16
ANCESTORS = "ancestors"
"""Folder of a published run that holds the records of the runs that it starts from."""


def _check_types(path: Path, section: Section, document: dict[str, Any]) -> None:
    """Refuses a value that was read as another type than it is written in, such as a number in quotes.

    Raises:
        EvidenceError: there is one.
    """
    for field, expected, found in said_otherwise(section.model_dump(mode="json"), document):
        text = f"{path}: {field} is {found!r}, expected {expected!r}: a value of another type"
        raise EvidenceError(text, file=path, found=found, expected=expected)


class ResolvedComponent(Section):
    """One corpus of a resolved blend; without a digest it is *declared*: it can be planned, never trained on."""

    corpus: str
    weight: str
    digest: Digest | None
    num_tokens: PositiveInt
    num_documents: PositiveInt | None


class Continuation(Section):
    """Where a data order begins that goes on from another order."""

    sample: Count = Field(description="number of the order's first sample; lower numbers belong to the other order")
    positions: tuple[Annotated[int, Field(ge=0, le=2**62)], ...] = Field(
        description="by component: how many samples of its corpus lie before that sample, counted over all epochs"
    )


class ResolvedBlend(GrowingSection):
    """Corpora by content, weights, seed, and where it goes on from another blend: the identity of a data order."""

    added = frozenset({"continues"})

    algorithm: Literal["treering-1"]
    seed: int
    sequence_length: PositiveInt
    components: tuple[ResolvedComponent, ...]
    tokenizer: Digest | None
    continues: Continuation | None = None

    @model_validator(mode="after")
    def _a_position_for_each_component(self) -> Self:
        if self.continues is not None and len(self.continues.positions) != len(self.components):
            raise contradiction(
                "continues.positions", f"{len(self.continues.positions)} positions", f"{len(self.components)}"
            )
        return self

    @property
    def digest(self) -> str:
        """Identity of the data order: algorithm, components (digest and weight, in order), seed, sequence length.

        An order that goes on from another one adds its first sample and the position of each corpus there. Names and
        sizes stay outside: a corpus is its content. A declared component enters by its name.
        """
        origin = {} if self.continues is None else {"continues": self.continues.model_dump(mode="json")}
        return digest_json(
            {
                **origin,
                "algorithm": self.algorithm,
                "components": [
                    {"digest": component.digest, "weight": component.weight}
                    if component.digest
                    else {"declared": component.corpus, "weight": component.weight}
                    for component in self.components
                ],
                "seed": self.seed,
                "sequence_length": self.sequence_length,
            }
        )

    @property
    def alone(self) -> Self:
        """The blend without the order that it goes on from, as stage `blend` writes it."""
        return self.model_copy(update={"continues": None})

    @property
    def declared(self) -> tuple[str, ...]:
        """Names of the components without content."""
        return tuple(component.corpus for component in self.components if component.digest is None)

    def write(self, path: Path) -> None:
        """Writes the blend with its digest beside it, for people and for `read`'s check."""
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"digest": self.digest, **self.model_dump(mode="json")}
        write_durably(path, json.dumps(document, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads what `write` wrote.

        Raises:
            UserError: there is no such file.
            EvidenceError: its content does not fit its digest.
        """
        try:
            document = parse_json(read_bytes(path))
            claimed = document.pop("digest")
            blend = cls.model_validate(document)
            _check_types(path, blend, document)
        except FileNotFoundError:
            raise UserError(f"{path}: no blend there; `dvc repro blend` makes it") from None
        except (OSError, ValueError, KeyError, AttributeError, TypeError, ValidationError) as error:
            raise EvidenceError(
                f"{path}: not a resolved blend ({error}); `dvc repro -f blend` makes it anew", file=path
            ) from error
        if claimed != blend.digest:
            raise EvidenceError(
                f"{path}: digest {claimed} was written, {blend.digest} recomputed: the file was edited; "
                "`dvc repro -f blend` makes it anew",
                file=path,
                found=claimed,
                expected=blend.digest,
                remedy="`dvc repro -f blend` makes it anew",
            )
        return blend


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


class AttemptConfig(GrowingSection):
    """What an attempt was started with; may change under a run."""

    added = frozenset({"hooks"})

    parallel: ParallelConfig
    kernels: KernelConfig
    checkpoint: CheckpointConfig
    validation: ValidationConfig | None
    telemetry: TelemetryConfig
    spikes: SpikeConfig
    hooks: tuple[HookConfig, ...] = ()


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
            _check_types(path, resolved, document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise EvidenceError(f"{path}: not a resolved config ({place}: {first['msg']})", file=path) from error
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise EvidenceError(f"{path}: not a resolved config ({error})", file=path) from error
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
                "a later run starts"
            )
        ranges.insert(0, ReadRange.of(resolved, start.step))
        start = resolved.recipe.start_from
    return ranges


def declared_blend(experiment: Experiment) -> ResolvedBlend:
    """A blend whose corpora have no content yet, from what the experiment declares: enough to plan, not to train.

    A corpus that declares no token count is planned with one sample's worth.
    """
    corpora = {corpus.name: corpus for corpus in experiment.corpora}
    length = experiment.blend.sequence_length
    return ResolvedBlend(
        algorithm=experiment.blend.algorithm,
        seed=experiment.blend.seed,
        sequence_length=length,
        components=tuple(
            ResolvedComponent(
                corpus=component.corpus,
                weight=component.weight,
                digest=None,
                num_tokens=corpora[component.corpus].declared_tokens or length + 1,
                num_documents=None,
            )
            for component in experiment.blend.components
        ),
        tokenizer=None,
    )


def check_blend_fits(experiment: Experiment, blend: ResolvedBlend, source: str) -> None:
    """Refuses a resolved blend that was made from another `blend` section than this experiment's.

    Raises:
        ConfigError: seed, sequence length, algorithm, corpora or weights differ.
    """
    wanted = experiment.blend
    for field, expected, found in (
        ("algorithm", wanted.algorithm, blend.algorithm),
        ("seed", wanted.seed, blend.seed),
        ("sequence_length", wanted.sequence_length, blend.sequence_length),
        (
            "components",
            {component.corpus: component.weight for component in wanted.components},
            {component.corpus: component.weight for component in blend.components},
        ),
    ):
        if expected != found:
            raise ConfigError(
                source, f"blend.{field}", canonical_json(found), f"{canonical_json(expected)} as the experiment says; "
                "`dvc repro blend` resolves it anew"
            )  # fmt: skip


def resolve_start(start: StartConfig, experiment: Experiment, runs: Path, source: str) -> "FoundStart":
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
    with _written_in(source):
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


Continue = Callable[[ResolvedBlend, FoundStart], ResolvedBlend]
"""Makes a blend go on from what the runs before it have read."""


@contextmanager
def _written_in(source: str) -> Iterator[None]:
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
            schedule that goes on stands elsewhere than the other one did.
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


def resolve(
    experiment: Experiment,
    blend: ResolvedBlend,
    source: str,
    overrides: tuple[str, ...] = (),
    *,
    runs: Path = Path("runs"),
    continue_blend: Continue | None = None,
) -> Resolved:
    """Joins an experiment and a resolved blend; commands call `treering.data.blend.continuation.resolve_run`.

    Args:
        experiment: the authored config.
        blend: what stage `blend` wrote, or `declared_blend`.
        source: the experiment's file, for errors.
        overrides: the `--set` texts that led to `experiment`, kept on record.
        runs: folder of run directories, for an experiment that starts from another run.
        continue_blend: makes the blend go on from the other run's, for `start_from.data: continue`.

    Raises:
        ConfigError: the blend is not this experiment's, a stage of the batch schedule cannot be cut into micro-batches,
            or the run to start from is missing or does not fit.
    """
    check_blend_fits(experiment, blend, source)
    found = None
    if experiment.start_from is not None:
        found = resolve_start(experiment.start_from, experiment, runs, source)
        if experiment.start_from.data == "continue":
            check_orders_alike(blend, found.other, source)
            assert continue_blend is not None, "resolve_run of treering.data.blend.continuation knows how"  # noqa: S101
            blend = continue_blend(blend, found)
    model = experiment.model
    resolved = Resolved(
        experiment=experiment.experiment,
        description=experiment.description,
        recipe=Recipe(
            model=model.model_copy(update={"ffn_hidden_size": model.ffn_width, "init_std": model.weight_std}),
            optimizer=experiment.optimizer.model_copy(update={"loss_scale": experiment.loss_scale}),
            schedule=experiment.schedule.model_copy(update={"decay_tokens": experiment.schedule.decay_end_tokens}),
            precision=experiment.precision,
            seed=experiment.seed,
            blend=blend.digest,
            tokenizer=blend.tokenizer,
            start_from=None if found is None else found.start,
        ),
        blend=blend,
        attempt=AttemptConfig(
            parallel=experiment.parallel,
            kernels=experiment.kernels,
            checkpoint=experiment.checkpoint,
            validation=experiment.validation,
            telemetry=experiment.telemetry,
            hooks=experiment.hooks,
            spikes=experiment.spikes,
        ),
        overrides=overrides,
    )
    with _written_in(source):
        schedule = resolved.schedule
    if found is not None:
        check_start_fits(resolved, found.other, source)
    layout = experiment.parallel.layout(1)
    offending = layout.unfit_stage(schedule)
    if offending is not None:
        raise ConfigError(
            source,
            "schedule",
            f"a stage with global batch {offending.batch_size} from step {offending.first_step} on",
            layout.stage_rule,
        )
    return resolved
