"""Two runs side by side: the first step at which their data differ, and the first at which their numbers do.

Then what else differs: config, code, environment, layout. Compares runs of Treering's trainer and runs that another
trainer recorded, in any combination, as far as both recorded the same.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from treering.errors import EvidenceError
from treering.metrics.compare import Difference, comparable, comparable_recorded, differences
from treering.metrics.doubts import Doubt
from treering.metrics.environments import EnvironmentComparison, compare_environments
from treering.project import Project
from treering.reproduce.code import CodeComparison, compare_code
from treering.reproduce.data import ReadComparison, compare_reads
from treering.reproduce.growth import UNIT_ROUNDOFF, Growth, judge_growth, precision_of
from treering.reproduce.numbers import NumbersComparison, common_losses, compare_numbers, path_columns
from treering.reproduce.seeds import SeedVerdict, judge_by_seeds
from treering.reproduce.sentence import difference_sentence
from treering.reproduce.weights import StepWeights, WeightsComparison, compare_weights
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun, runs_of_any_trainer
from treering.runlog.recorded_directory import RecordedAttempt, RecordedSegment

State = Literal["identical", "data", "numbers", "weights", "unknown"]

_LAYOUT = ("layout", "kernels", "world_size")
"""What a header says of the layout, in the part `ran` of what is compared of a run."""
_REMEDY = "`treering verify` names the damaged file; restore it from a copy"


@dataclass(frozen=True, slots=True)
class RunDifference:
    """What differs between two runs.

    Code, environment and layout are those of the attempts that did the first differing step, else the newest step.

    Attributes:
        first: id of the first run.
        second: id of the second run.
        data: what both read; None where the rings do not hold.
        numbers: what both computed; None likewise.
        growth: whether the difference of numbers is rounding noise; None where none differs, or other data explain it.
        config: settings that differ, by dotted path; None where the configs are of two kinds.
        layout: parallel layout and kernels that differ, by dotted path.
        code: functions, classes and constants; None where a header is missing.
        environment: packages, devices, drivers and variables; None where a header is missing.
        doubts: what limits the answer, with what helps.
        missing: first and last of the steps asked for that a run does not have at its end; None where none lacks.
        longer: where all steps were asked for, the run that goes on behind the end of the other, and its last step;
            None where both end together.
        weights: the weights of common checkpoints; None where nobody looked.
        seeds: whether a difference of results is within what seeds do; None where nobody looked, or nothing differs.
    """

    first: str
    second: str
    data: ReadComparison | None
    numbers: NumbersComparison | None
    growth: Growth | None
    config: tuple[Difference, ...] | None
    layout: tuple[Difference, ...]
    code: CodeComparison | None
    environment: EnvironmentComparison | None
    doubts: tuple[Doubt, ...]
    missing: tuple[int, int] | None = None
    longer: tuple[Literal["first", "second"], int] | None = None
    weights: WeightsComparison | None = None
    seeds: SeedVerdict | None = None

    @property
    def state(self) -> State:
        """`identical`, or what differs first: `data`, `numbers` of the same data, or `weights` behind equal numbers.

        `unknown` without evidence, or where nothing differs and steps that were asked for are missing, or no number
        was compared that the weights decide.
        """
        data, numbers = self.first_data_step, self.first_numbers_step
        if data is not None and (numbers is None or data <= numbers):
            return "data"
        if numbers is not None:
            return "numbers"
        if self.numbers is None or not self.numbers.compared_steps:
            return "unknown"
        if self.other_weights:
            return "weights"
        return "identical" if self.missing is None and self.numbers.result_steps else "unknown"

    @property
    def other_weights(self) -> StepWeights | None:
        """The first compared step after which weights, or the optimizer's state, differ."""
        steps = () if self.weights is None else self.weights.steps
        return next((each for each in steps if each.differs), None)

    @property
    def first_data_step(self) -> int | None:
        """The first step with other data."""
        return None if self.data is None else self.data.first_step

    @property
    def first_numbers_step(self) -> int | None:
        """The first step with other numbers."""
        return None if self.numbers is None else self.numbers.first_step

    @property
    def first_step(self) -> int | None:
        """The first step at which anything differs."""
        return min((each for each in (self.first_data_step, self.first_numbers_step) if each is not None), default=None)

    @property
    def same_data(self) -> bool | None:
        """Whether the data were the same up to and with the first differing step; None where that is not known."""
        if self.data is None or not self.data.compared_steps:
            return None
        return self.state != "data"

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values; numbers may be NaN or infinite."""
        return {
            "state": self.state,
            "sentence": difference_sentence(self),
            "first_step": self.first_step,
            **asdict(self),
        }


def compare_runs(
    first: AnyRun, second: AnyRun, steps: range | None = None, project: Project | None = None
) -> RunDifference:
    """Compares two runs along the path of each.

    Args:
        first: one run.
        second: the other run.
        steps: the steps that count; None: all that both have.
        project: where the corpora are; without it the documents that differ are not named.

    Returns:
        The difference. Evidence that is missing or does not hold is a doubt of it.

    Raises:
        EvidenceError: nothing says which run a folder holds.
    """
    doubts: list[Doubt] = []
    data = numbers = growth = missing = longer = None
    try:
        data = compare_reads(first, second, project, steps)
        paths = path_columns(first), path_columns(second)
        numbers = compare_numbers(*paths, steps)
        missing, longer = _missing(paths, steps), None if steps else _longer(*paths)
        if numbers.first_step is not None and (data.first_step is None or numbers.first_step < data.first_step):
            end = steps if data.first_step is None else range(numbers.first_step, data.first_step)
            growth = judge_growth(numbers, common_losses(*paths, end), *_rounded(first, second, paths))
        doubts += [*data.doubts, *_doubts_of(data, numbers)]
    except EvidenceError as error:
        doubts.append(Doubt("missing", f"the steps of both runs: {error}", _REMEDY))
    starts = [each.first_step for each in (data, numbers) if each is not None and each.first_step is not None]
    step = min(starts, default=None if steps is None else steps.stop - 1)
    attempts: list[AttemptDirectory | RecordedAttempt] = []
    try:
        attempts = [attempt_of(run, step) for run in (first, second)]
    except EvidenceError as error:
        doubts.append(Doubt("missing", f"code, environment and layout: {error}", _REMEDY))
    environment = compare_environments(*(each.header.environment for each in attempts)) if attempts else None
    code = None
    if attempts:
        folders = [first.path, second.path, *([project.root] if project else ())]
        code = compare_code(attempts[0].header.code, attempts[1].header.code, folders)
        doubts += code.doubts
    config: tuple[Difference, ...] | None = None
    layout: tuple[Difference, ...] = ()
    if type(first) is type(second):
        try:
            config, layout = _settings((first, second), attempts)
        except EvidenceError as error:
            doubts.append(Doubt("missing", f"the configs: {error}", _REMEDY))
    else:
        text = "the configs, which are of two trainers and have no common form"
        doubts.append(Doubt("missing", text, "`treering show RUN --full` shows each"))
    return RunDifference(
        first.id,
        second.id,
        data,
        numbers,
        growth,
        config,
        layout,
        code,
        environment,
        tuple(doubts),
        missing,
        longer,
    )


def complete(
    found: RunDifference, first: AnyRun, second: AnyRun, project: Project, steps: range | None = None
) -> RunDifference:
    """The same difference with weights and seeds, which take longer: torch is loaded, and other runs are read.

    Args:
        found: what `compare_runs` found.
        first: one run.
        second: the other run.
        project: whose runs show what seeds do.
        steps: the weights after these are compared; None: all that both runs have.
    """
    doubts = list(found.doubts)
    weights = seeds = None
    try:
        weights = compare_weights(first, second, found.first_step, steps)
        doubts += weights.doubts
        if found.first_step is not None or any(each.differs for each in weights.steps):
            seeds = judge_by_seeds(first, second, runs_of_any_trainer(project.runs))
    except EvidenceError as error:
        doubts.append(Doubt("missing", f"weights and results: {error}", _REMEDY))
    return replace(found, doubts=tuple(doubts), weights=weights, seeds=seeds)


def attempt_of(run: AnyRun, step: int | None) -> AttemptDirectory | RecordedAttempt:
    """The attempt on a run's path that did a step; without a step, or behind the newest one, the newest attempt.

    Raises:
        EvidenceError: the run has no attempt, or a header is missing or was changed.
    """
    path: Sequence[PathSegment | RecordedSegment] = (
        run.path_to() if isinstance(run, RunDirectory) else run.path_to_end()
    )
    if not path:
        raise EvidenceError(f"{run.path}: found no attempt with a header, expected one", file=run.attempts_folder)
    ends = [each.attempt for each in path if step is not None and each.last_step and step <= each.last_step]
    return ends[0] if ends else path[-1].attempt


def _missing(paths: Sequence[PathColumns], steps: range | None) -> tuple[int, int] | None:
    """The steps at the end of those asked for that one of the runs does not have."""
    end = min(path.last_step for path in paths)
    return None if not steps or end >= steps[-1] else (max(end + 1, steps[0]), steps[-1])


def _longer(first: PathColumns, second: PathColumns) -> tuple[Literal["first", "second"], int] | None:
    """The run that goes on behind the end of the other one, and its last step."""
    if first.last_step == second.last_step:
        return None
    return ("first", first.last_step) if first.last_step > second.last_step else ("second", second.last_step)


def _rounded(first: AnyRun, second: AnyRun, paths: tuple[PathColumns, PathColumns]) -> tuple[str | None, float | None]:
    """The coarser precision of two runs and the tokens of a step, each None where a run does not say."""
    precisions: list[str | None] = []
    tokens: list[float | None] = []
    for run, path in zip((first, second), paths, strict=True):
        if isinstance(run, RunDirectory):
            precisions.append(run.resolved.recipe.precision)
            tokens.append(run.resolved.consumed_tokens(path.last_step) / path.last_step if path.last_step else None)
        else:
            precisions.append(precision_of(run.record.config))
            rings, total = sum(columns.head().rings for columns, _ in path.stretches), path.tokens()
            tokens.append(total / rings if total and rings else None)
    precision = None if None in precisions else max(precisions, key=lambda each: UNIT_ROUNDOFF[each or ""])
    return precision, None if None in tokens else min(each for each in tokens if each is not None)


def _settings(
    runs: Sequence[AnyRun], attempts: Sequence[AttemptDirectory | RecordedAttempt]
) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    """What differs of the configs, and of the layouts.

    Raises:
        EvidenceError: a config is missing or was changed.
    """
    documents = [_document(run, attempt) for run, attempt in zip(runs, attempts or (None, None), strict=True)]
    ran = [document.pop("ran", {}) for document in documents]
    layouts = [{name: each[name] for name in _LAYOUT if name in each} for each in ran]
    return tuple(differences(documents)), tuple(differences(layouts))


def _document(run: AnyRun, attempt: AttemptDirectory | RecordedAttempt | None) -> dict[str, Any]:
    if isinstance(run, RunDirectory):
        return comparable(run, attempt if isinstance(attempt, AttemptDirectory) else None)
    return comparable_recorded(run, attempt if isinstance(attempt, RecordedAttempt) else None)


def _doubts_of(data: ReadComparison, numbers: NumbersComparison) -> list[Doubt]:
    found = []
    if not numbers.compared_steps:
        text = "the numbers: no step of both runs has the same metric"
        found.append(Doubt("missing", text, "report the metrics of both runs under one name, such as loss"))
    elif not numbers.result_steps and numbers.first_step is None:
        text = (
            f"{', '.join(numbers.compared)}: these numbers are equal, but they are not known to depend on the weights"
        )
        found.append(Doubt("missing", text, "report a number that the weights decide in both runs, such as loss"))
    if numbers.one_sided:
        text = ", ".join(f"{name} of {count:,} steps" for name, count in numbers.one_sided.items())
        remedy = "measure it at the same steps in both; held-out losses need their corpora"
        found.append(Doubt("limited", f"{text}: only one of the runs measured that", remedy))
    if 0 < data.compared_steps < numbers.compared_steps:
        steps = f"{data.compared_steps:,} of {numbers.compared_steps:,} steps"
        text = f"the data of {steps}: not both runs recorded the rest"
        found.append(Doubt("limited", text, "pass tokens= to every run.step"))
    if numbers.not_decisive:
        names = ", ".join(f"{each.name} from step {each.step:,}" for each in numbers.not_decisive)
        text = f"metrics that the catalog does not know differ ({names}); they were not counted"
        found.append(Doubt("limited", text, "they may be of the machine, such as a time: compare them yourself"))
    return found
