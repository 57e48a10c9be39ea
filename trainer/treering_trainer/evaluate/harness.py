"""Scores a checkpoint on one task by lm-eval."""

import contextlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from lm_eval import evaluator
from lm_eval.api.metrics import mean_stderr
from lm_eval.api.task import Task

from treering.config.canonical import digest_json
from treering.errors import UserError
from treering.runlog.records import EXAMPLES, LOG_LIKELIHOOD
from treering_trainer.evaluate.checkpoint_lm import CheckpointLM
from treering_trainer.evaluate.influence import RATIOS, influence
from treering_trainer.evaluate.recorded import right_choice
from treering_trainer.evaluate.stock import REFUSED, StockTask, told
from treering_trainer.evaluate.tasks import TaskFile, build_task

BOOTSTRAP_ITERATIONS = 1000
"""Resamples for the standard error of a perplexity; lm-eval seeds them."""

_ROUNDING: Final = 1e-9
_STDERR: Final = "_stderr"
_NO_FILTER: Final = "none"
_LIKELIHOODS: Final = ("loglikelihood", "multiple_choice", "loglikelihood_rolling")

Sample = Mapping[str, Any]
"""What lm-eval keeps of an item that it scored."""


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The scores of one task with one number of shots.

    Attributes:
        metrics: each metric with its `_stderr`, and `items`, `examples`, `truncated` as in `runlog.records.Evaluation`.
        items: by metric and id of the item: what the metrics are the means of, and `log_likelihood`, that of the right
            answer, or of the text, in nats.
        fields: by field and id of the item, as in `runlog.records.Evaluation`.
        prompts: digest of all prompts with their answers.
    """

    metrics: dict[str, float]
    items: dict[str, dict[str, float]]
    fields: dict[str, dict[str, str]]
    prompts: str


def run_task(lm: CheckpointLM, source: TaskFile | StockTask, shots: int, max_items: int | None) -> TaskScores:
    """Scores a checkpoint on one task.

    Args:
        lm: the checkpoint.
        source: the task.
        shots: examples in the prompt; of a task file fewer if the sequence has no room.
        max_items: how many items of the file to score, from its first on; None scores all.

    Raises:
        UserError: a record of the user's file cannot be read, or has no answer.
    """
    lm.truncated = 0
    if isinstance(source, TaskFile):
        task: Any = build_task(source, shots, count=lambda text: len(lm.tok_encode(text)), room=lm.max_length)
        results = _evaluate(lm, source.name, task, max_items)
    else:
        try:
            task = source.build(shots, lm.reads)
            results = _evaluate(lm, source.name, task, max_items)
        except REFUSED as error:
            raise UserError(f"evaluation.tasks: {source.name}: a record: {told(error)}; mend its files") from error
    samples: list[Sample] = results["samples"][source.name]
    first = [sample for sample in samples if sample["filter"] == samples[0]["filter"]]
    metrics = dict(_metrics(results["results"][source.name]))
    ids = {int(sample["doc_id"]): source.item_id(int(sample["doc_id"])) for sample in first}
    if not metrics:
        raise UserError(f"evaluation.tasks: {source.name}: found no metric that is a finite number; leave the task out")
    items = _items(samples, metrics, ids)
    if task.OUTPUT_TYPE in _LIKELIHOODS:
        items[LOG_LIKELIHOOD] = {ids[int(sample["doc_id"])]: log_likelihood(task, sample) for sample in first}
    if isinstance(source, TaskFile):
        numbers, fields = task.sampler.taken, {}
    else:
        numbers = [len(read) for read in task.examples.values()] or [shots]  # a class of its own records none
        fields = dict(_fields(source.fields, first, ids, task.examples))
    return TaskScores(
        metrics={
            **metrics,
            "items": float(len(first)),
            "examples": sum(numbers) / len(numbers) if numbers else 0.0,
            "truncated": float(lm.truncated),
        },
        items=items,
        fields=fields,
        prompts=digest_json([sample["arguments"] for sample in first]),
    )


def _evaluate(lm: CheckpointLM, name: str, task: Task, limit: int | None) -> Mapping[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()):  # lm-eval prints when it bootstraps
        found: Mapping[str, Any] = evaluator.evaluate(
            lm,
            {"tasks": {name: task}, "groups": {}, "group_map": {}},
            limit=limit,
            bootstrap_iters=BOOTSTRAP_ITERATIONS,
            log_samples=True,
        )
    return found


def _named(metric: str, chosen: str) -> str:
    """`exact_match` and the filter `strict-match` -> `exact_match.strict-match`."""
    return metric if chosen == _NO_FILTER else f"{metric}.{chosen}"


def _metrics(results: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers among the results: lm-eval writes `N/A` where it has no standard error."""
    for key, value in results.items():
        metric, comma, chosen = key.partition(",")
        if comma and isinstance(value, int | float | np.number) and math.isfinite(value):
            base = metric.removesuffix(_STDERR)
            yield _named(base, chosen) + metric.removeprefix(base), float(value)


def _items(samples: Sequence[Sample], metrics: dict[str, float], ids: Mapping[int, str]) -> dict[str, dict[str, float]]:
    """By metric and item the values that the metric is the mean of, for metrics that are means.

    A perplexity of whole texts gets its values and its standard error here: see `influence`.
    """
    values: dict[str, dict[str, Any]] = {}
    for sample in samples:
        for metric in sample["metrics"]:
            by_item = values.setdefault(_named(metric, sample["filter"]), {})
            by_item[ids[int(sample["doc_id"])]] = sample[metric]
    found = {}
    for metric, given in values.items():
        ratio = metric in RATIOS and metric in metrics
        by_item = influence(metric, given) if ratio else given
        if ratio and len(by_item) > 1:
            metrics[f"{metric}{_STDERR}"] = float(mean_stderr(list(by_item.values())))
        if metric in metrics and all(isinstance(value, int | float | np.number) for value in by_item.values()):
            mean = math.fsum(by_item.values()) / len(by_item)
            if math.isclose(mean, metrics[metric], rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                found[metric] = {name: float(value) for name, value in by_item.items()}
    return found


def log_likelihood(task: Task, sample: Sample) -> float:
    """Log-likelihood of an item's target, of its right choice, or of the whole text."""
    answers = sample["filtered_resps"]
    if task.OUTPUT_TYPE == "loglikelihood_rolling":
        return float(answers[0])
    right = right_choice(task, sample["doc"]) if task.OUTPUT_TYPE == "multiple_choice" else 0
    return float(answers[right][0])


def _fields(
    names: Sequence[str], samples: Sequence[Sample], ids: Mapping[int, str], read: Mapping[int, Sequence[str]]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The fields that the definition lists, and the labels of the examples."""
    for name in names:
        yield name, {ids[int(each["doc_id"])]: str(each["doc"].get(name, "")) for each in samples}
    if names and read:
        yield EXAMPLES, {ids[number]: " ".join(labels) for number, labels in read.items()}
