"""A checkpoint as a model of lm-eval, and the scoring of one task with it."""

import contextlib
import io
import logging
from dataclasses import dataclass
from typing import Any, Final

from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM

from treering.data.corpus.tokenizer import TextTokenizer
from treering.errors import UserError
from treering.runlog.records import LOG_LIKELIHOOD
from treering_trainer.checkpointing.inference import LanguageModel
from treering_trainer.evaluate.scoring import Continuation, Score, score_continuations, truncate
from treering_trainer.evaluate.tasks import TaskFile, build_task, item_id

# lm-eval's hints are about options of its command line.
logging.getLogger("lm_eval").setLevel(logging.ERROR)

BOOTSTRAP_ITERATIONS = 1000
"""Resamples for the standard error of a perplexity; lm-eval seeds them."""


_MEANS: Final = ("acc", "acc_norm")
"""Metrics that are means over items; a perplexity is not."""


class CheckpointLM(TemplateLM):
    """A loaded checkpoint as lm-eval sees it; contexts longer than the sequence are cut on the left.

    Args:
        model: the loaded model.
        tokenizer: the tokenizer of the run's corpora.
        end_of_document: token before a text without context.
    """

    def __init__(self, model: LanguageModel, tokenizer: TextTokenizer, end_of_document: int) -> None:
        super().__init__()
        self.model = model
        self.codec = tokenizer
        self.truncated = 0
        self._end_of_document = end_of_document
        self._known: dict[Continuation, Score] = {}

    @property
    def eot_token_id(self) -> int:
        """End of document, the context of a text without context."""
        return self._end_of_document

    @property
    def max_length(self) -> int:
        """Tokens of a sequence."""
        return self.model.sequence_length

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:  # noqa: ARG002 - lm-eval's signature
        """Token ids of a text."""
        return list(self.codec.encode(string).ids)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Log-likelihood of each request, and whether each of its tokens was the most probable one.

        Raises:
            UserError: a continuation is longer than a sequence.
        """
        wanted = [Continuation(tuple(context), tuple(tokens)) for _, context, tokens in requests]
        fitting = []
        for continuation, (texts, _context, _tokens) in zip(wanted, requests, strict=True):
            try:
                fitting.append(truncate(continuation, self.model.sequence_length))
            except ValueError as error:
                raise UserError(f"evaluation: {texts[1][:60]!r}…: {error}; shorten the task's continuations") from error
        # The choices of an item share their context, so the item counts once.
        self.truncated += len({full.context for full, cut in zip(wanted, fitting, strict=True) if full != cut})
        # If no further example fits, prompts with more shots are equal to those with fewer, and are scored once.
        unknown = [continuation for continuation in dict.fromkeys(fitting) if continuation not in self._known]
        for number, score in score_continuations(self.model, unknown):
            self._known[unknown[number]] = score
        return [(self._known[each].log_likelihood, self._known[each].greedy) for each in fitting]

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Scores continuations of contexts, without a progress bar."""
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def forget(self) -> None:
        """Drops the scores that are kept for repeated prompts."""
        self._known.clear()

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Not used by our tasks: `perplexity` measures on token corpora.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("perplexity is measured on token corpora")

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Not used by our tasks.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("no task generates text")


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The scores of one task with one number of shots.

    Attributes:
        metrics: each metric with its `_stderr`, and `items`, `examples`, `truncated` as in `runlog.records.Evaluation`.
        items: by metric and id of the item: accuracies, whose means are the metrics, and `log_likelihood`, that of the
            right answer in nats.
    """

    metrics: dict[str, float]
    items: dict[str, dict[str, float]]


def run_task(lm: CheckpointLM, file: TaskFile, shots: int, max_items: int) -> TaskScores:
    """Scores a checkpoint on one task.

    Args:
        lm: the checkpoint.
        file: the task.
        shots: examples in the prompt, fewer if the sequence has no room.
        max_items: how many items of the file to score, from its first on.
    """
    task = build_task(file, shots, count=lambda text: len(lm.tok_encode(text)), room=lm.max_length)
    lm.truncated = 0
    with contextlib.redirect_stdout(io.StringIO()):  # lm-eval prints when it bootstraps
        results = evaluator.evaluate(
            lm,
            {"tasks": {file.name: task}, "groups": {}, "group_map": {}},
            limit=min(max_items, len(file.items)),
            bootstrap_iters=BOOTSTRAP_ITERATIONS,
            log_samples=True,
        )
    found = {
        key.removesuffix(",none"): float(value)
        for key, value in results["results"][file.name].items()
        if key.endswith(",none")
    }
    taken = task.sampler.taken
    metrics = {
        **found,
        "items": float(results["n-samples"][file.name]["effective"]),
        "examples": sum(taken) / len(taken) if taken else 0.0,
        "truncated": float(lm.truncated),
    }
    samples = results["samples"][file.name]
    items = {
        metric: {item_id(file, int(sample["doc_id"])): float(sample[metric]) for sample in samples}
        for metric in metrics
        if metric in _MEANS
    }
    items[LOG_LIKELIHOOD] = {item_id(file, int(sample["doc_id"])): _log_likelihood(file, sample) for sample in samples}
    return TaskScores(metrics, items)


def _log_likelihood(file: TaskFile, sample: dict[str, Any]) -> float:
    """Log-likelihood of an item's target, or of its right choice."""
    right = file.items[int(sample["doc_id"])].get("gold", 0)
    return float(sample["filtered_resps"][right][0])
