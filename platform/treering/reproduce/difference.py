"""Two runs side by side: the first step at which their data differ, and the first at which their numbers do.

Then what else differs: config, code, environment, layout. Compares runs of Treering's trainer and runs that another
trainer recorded, in any combination, as far as both recorded the same.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from treering.errors import EvidenceError
from treering.metrics.compare import Difference, comparable, comparable_recorded, differences
from treering.metrics.doubts import Doubt
from treering.metrics.environments import EnvironmentComparison, compare_environments
from treering.project import Project
from treering.reproduce.code import CodeComparison, compare_code
from treering.reproduce.data import ReadComparison, compare_reads
from treering.reproduce.numbers import NumbersComparison, compare_numbers, path_columns
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.metric_catalog import METRICS
from treering.runlog.recorded_directory import RecordedAttempt, RecordedSegment

State = Literal["identical", "data", "numbers", "unknown"]

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
        config: settings that differ, by dotted path; None where the configs are of two kinds.
        layout: parallel layout and kernels that differ, by dotted path.
        code: functions, classes and constants; None where a header is missing.
        environment: packages, devices, drivers and variables; None where a header is missing.
        doubts: what limits the answer, with what helps.
    """

    first: str
    second: str
    data: ReadComparison | None
    numbers: NumbersComparison | None
    config: tuple[Difference, ...] | None
    layout: tuple[Difference, ...]
    code: CodeComparison | None
    environment: EnvironmentComparison | None
    doubts: tuple[Doubt, ...]

    @property
    def state(self) -> State:
        """`identical`, or what differs first: `data`, or `numbers` of the same data; `unknown` without evidence."""
        data, numbers = self.first_data_step, self.first_numbers_step
        if data is not None and (numbers is None or data <= numbers):
            return "data"
        if numbers is not None:
            return "numbers"
        return "identical" if self.numbers is not None and self.numbers.compared_steps else "unknown"

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
    """
    doubts: list[Doubt] = []
    data = numbers = None
    try:
        data = compare_reads(first, second, project, steps)
        numbers = compare_numbers(path_columns(first), path_columns(second), steps)
        doubts += [*data.doubts, *_doubts_of(numbers)]
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
    return RunDifference(first.id, second.id, data, numbers, config, layout, code, environment, tuple(doubts))


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


def _doubts_of(numbers: NumbersComparison) -> list[Doubt]:
    found = []
    if not numbers.compared_steps:
        text = "the numbers: no step of both runs has the same metric"
        found.append(Doubt("missing", text, "report the metrics of both runs under one name, such as loss"))
    for name, count in numbers.one_sided.items():
        text = f"{_title(name)} of {count:,} steps, which only one of the runs measured"
        found.append(Doubt("limited", text, "measure it at the same steps in both"))
    if numbers.not_decisive:
        names = ", ".join(f"{each.name} from step {each.step:,}" for each in numbers.not_decisive)
        text = f"metrics that the catalog does not know differ ({names}); they were not counted"
        found.append(Doubt("limited", text, "they may be of the machine, such as a time: compare them yourself"))
    return found


def difference_sentence(found: RunDifference) -> str:
    """The answer in a sentence."""
    data, numbers = found.data, found.numbers
    if found.state == "unknown" or data is None or numbers is None:
        return f"Whether the runs are the same is not known: {found.doubts[0].text}."
    if found.state == "identical":
        same = "the same data, and the same" if found.same_data else "what they read is not known; the same"
        names = ", ".join(_title(each) for each in numbers.compared)
        return f"Identical to the last bit over {numbers.compared_steps:,} steps: {same} {names}."
    if found.state == "data":
        place = f": {data.place.text.split(': ', 1)[-1]}" if data.place else ""
        after = "" if numbers.first_step is None else f" Their numbers differ from step {numbers.first_step:,}."
        return f"The data differ from step {data.first_step:,}{place}.{after}"
    same = "Same data" if found.same_data else "What they read is not known"
    values = "; ".join(
        f"{_title(each.name)} {each.first!r} against {each.second!r} (relative {each.relative:.2g})"
        for each in numbers.at_first
    )
    return (
        f"{same}, numbers differ from step {numbers.first_step:,} after {numbers.equal_steps:,} equal ones: {values}."
    )


def _title(key: str) -> str:
    return METRICS[key].title.lower() if key in METRICS else key
