"""What differs between runs: config by dotted path; the scores of an evaluation.

Reads run directories; the compare page and the command line print what this finds. `metrics.same_data` compares what
runs were fed, `metrics.verdicts` judges scores.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from treering.collect.code import rule_of
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import RunDirectory
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory
from treering.runlog.records import Evaluation

ABSENT: Final = "—"
"""Stands where a document has no such path."""

_NAMES = ("corpus", "operation", "name")
_NO_METRICS = ("items", "examples", "truncated")
STDERR: Final = "_stderr"
"""Ends the name of a standard error; before it comes the metric's name."""

_FILTER = re.compile("[,.]")
_HEADLINES = ("acc", "acc_norm", "exact_match", "em", "f1", "mcc", "word_perplexity")


@dataclass(frozen=True, slots=True)
class Difference:
    """One dotted path at which documents differ.

    Attributes:
        path: dotted path; items of a list of named things are called by their name, others by index.
        values: the value in each document, in the order in which they were given; `ABSENT` where there is none.
    """

    path: str
    values: tuple[Any, ...]


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON document as (dotted path, value); an empty section is a leaf."""
    items: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping) and value:
        items = ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple) and value:
        items = ((_item_name(item, index), item) for index, item in enumerate(value))
    else:
        yield prefix, value
        return
    for key, item in items:
        yield from flatten(item, f"{prefix}.{key}" if prefix else key)


def _item_name(item: Any, index: int) -> str:
    if isinstance(item, Mapping):
        for key in _NAMES:
            if key in item:
                return str(item[key])
    return str(index)


def differences(documents: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Every dotted path whose value is not the same in all documents, in the order of their first appearance."""
    flat = [dict(flatten(document)) for document in documents]
    paths = list(dict.fromkeys(path for leaves in flat for path in leaves))
    found = []
    for path in paths:
        values = tuple(leaves.get(path, ABSENT) for leaves in flat)
        if any(value != values[0] for value in values[1:]):
            found.append(Difference(path, values))
    return found


def comparable(run: RunDirectory, attempt: AttemptDirectory | None = None) -> dict[str, Any]:
    """What of a run is compared with other runs: its config, and what an attempt ran with.

    Digests of code by two rules differ in any case, so the rule is compared beside the digest.

    Args:
        run: the run.
        attempt: an attempt on its path; None: its newest.

    Raises:
        EvidenceError: the config or the attempt's header is missing or was changed.
    """
    resolved = run.resolved
    document: dict[str, Any] = {
        "experiment": resolved.experiment,
        "recipe": resolved.recipe.model_dump(mode="json"),
        "blend": resolved.blend.model_dump(mode="json"),
        "attempt": resolved.attempt.model_dump(mode="json"),
    }
    attempt = attempt or next(reversed(run.attempts()), None)
    if attempt is not None:
        header = attempt.header
        document["ran"] = {
            "layout": header.layout.model_dump(mode="json"),
            "kernels": {kernel.operation: kernel.used for kernel in header.kernels},
            "code": header.code.get("digest"),
            "code_rule": rule_of(header.code),
            "environment": header.environment.get("digest"),
        }
    return document


def comparable_recorded(run: RecordedRunDirectory, attempt: RecordedAttempt | None = None) -> dict[str, Any]:
    """The same of a run that another trainer reported.

    Raises:
        EvidenceError: the run's record or the attempt's header is missing or was changed.
    """
    record = run.record
    document: dict[str, Any] = {"experiment": record.experiment, "config": record.config, "blend": record.blend}
    attempt = attempt or next(reversed(run.attempts()), None)
    if attempt is not None:
        header = attempt.header
        code = {name: header.code.get(name) for name in ("script", "digest", "commit", "dirty") if name in header.code}
        ran = {"world_size": header.world_size, "code": code, "environment": header.environment.get("digest")}
        document["ran"] = ran
    return document


@dataclass(frozen=True, slots=True)
class Score:
    """One number of an evaluation.

    Attributes:
        task: name of the task.
        shots: examples in the prompt.
        metric: name as the harness gives it, without its filter.
        value: the score.
        stderr: its standard error; NaN where the harness gives none.
        items: how many items were scored; 0 where it does not say.
    """

    task: str
    shots: int
    metric: str
    value: float
    stderr: float
    items: int


def scores(evaluation: Evaluation) -> list[Score]:
    """The scores of one checkpoint, flat."""
    found = []
    for task, by_shots in evaluation.scores.items():
        for shots, metrics in by_shots.items():
            items = int(metrics.get("items", 0))
            for metric, value in metrics.items():
                if metric in _NO_METRICS or STDERR in metric:
                    continue
                stderr = metrics.get(_stderr_key(metric), math.nan)
                found.append(Score(task, int(shots), metric, value, stderr, items))
    return found


def _stderr_key(metric: str) -> str:
    """`acc` -> `acc_stderr`; the harness's own `acc,none` -> `acc_stderr,none`."""
    name, comma, chosen = metric.partition(",")
    return f"{name}{STDERR}{comma}{chosen}"


def headline(metrics: Sequence[str]) -> str:
    """The metric of a task if only one is shown: accuracy if the task has it, else the first in the alphabet.

    The harness may name a filter behind a comma or a dot: `exact_match.strict-match`.
    """
    by_name = {_FILTER.split(metric)[0]: metric for metric in sorted(metrics, reverse=True)}
    return next((by_name[name] for name in _HEADLINES if name in by_name), min(metrics))


def headline_scores(evaluation: Evaluation) -> list[Score]:
    """One score for each task and number of shots."""
    found = scores(evaluation)
    chosen = {task: headline([s.metric for s in found if s.task == task]) for task in evaluation.scores}
    return [score for score in found if score.metric == chosen[score.task]]
