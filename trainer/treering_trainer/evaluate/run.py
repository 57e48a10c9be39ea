"""Evaluates the checkpoints of a run on all cores, and writes each record as soon as it is complete.

The work is divided into parts: one task with all its shots, or the perplexities, of one checkpoint. Every worker
computes on one thread, so that the numbers do not depend on the number of cores.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from treering.config.canonical import short
from treering.config.operation import EvaluationConfig
from treering.errors import EvidenceError, TrainingError
from treering.metrics.compare import headline_scores
from treering.progress import Say
from treering.runlog.chronicle import finish_evaluations, write_evaluation
from treering.runlog.directory import CheckpointDirectory, checkpoint_name
from treering.runlog.records import Evaluation, TaskDefinition
from treering_trainer.checkpointing import checkpoint as checkpoint_files
from treering_trainer.checkpointing.inference import load_model
from treering_trainer.evaluate import perplexity
from treering_trainer.evaluate.checkpoint_lm import CheckpointLM
from treering_trainer.evaluate.harness import TaskScores, run_task
from treering_trainer.evaluate.inputs import Inputs
from treering_trainer.evaluate.parts import PERPLEXITY, PartStore, unchanged_parts
from treering_trainer.evaluate.stock import StockTask
from treering_trainer.monitor.processes import die_with_parent


def evaluate_checkpoints(
    checkpoints: Sequence[CheckpointDirectory],
    inputs: Inputs,
    records: Path,
    say: Say,
    device: str = "cpu",
    *,
    unfinished: Path,
) -> list[Evaluation]:
    """Scores checkpoints and writes `<records>/step-NNNNNNNN.json`; skips those that are scored already.

    Args:
        checkpoints: of one run, by step.
        inputs: the tasks, held-out samples and settings.
        records: the run's `evaluations/`.
        say: where progress goes.
        device: `cpu` (one worker a core), or a GPU such as `cuda:0` (one worker).
        unfinished: folder that keeps the parts of the run's unfinished records.

    Returns:
        One record a checkpoint, in the same order.

    Raises:
        EvidenceError: a checkpoint differs from its manifest; raised when the others are scored.
        TrainingError: a worker died, or a checkpoint's weights are not finite.
    """
    records.mkdir(parents=True, exist_ok=True)
    if checkpoints:
        finish_evaluations(records, checkpoints[0].manifest.run)
    done: dict[int, Evaluation] = {}
    pending: dict[int, CheckpointDirectory] = {}
    damaged: list[EvidenceError] = []
    stores: dict[int, PartStore] = {}
    for checkpoint in checkpoints:
        record = _read(records, checkpoint)
        if record is not None and _is_same(record, checkpoint, inputs):
            say(f"  step {checkpoint.step}: already scored")
            done[checkpoint.step] = record
            continue
        try:
            checkpoint_files.verify(checkpoint)
        except EvidenceError as error:
            say(f"  step {checkpoint.step}: differs from its manifest, is not scored")
            damaged.append(error)
        else:
            pending[checkpoint.step] = checkpoint
            earlier = {} if record is None else unchanged_parts(record, checkpoint, inputs, device)
            stores[checkpoint.step] = PartStore(unfinished, checkpoint, inputs, device, earlier)
    for step, parts in _scored_parts(pending, stores, inputs, say, device):
        record = _record(pending[step], inputs, parts).model_copy(update={"device": device})
        done[step] = write_evaluation(records, record)
        stores[step].drop()
    if damaged:
        raise damaged[0]
    return [done[checkpoint.step] for checkpoint in checkpoints]


def _read(records: Path, checkpoint: CheckpointDirectory) -> Evaluation | None:
    """The record of a checkpoint; a damaged one does not count."""
    try:
        return Evaluation.read(records / f"{checkpoint_name(checkpoint.step)}.json")[0]
    except EvidenceError:
        return None


def _is_same(record: Evaluation, checkpoint: CheckpointDirectory, inputs: Inputs) -> bool:
    """Whether the same harness scored the checkpoint on the same inputs."""
    return (
        record.checkpoint == checkpoint.digest
        and record.harness == inputs.harness
        and _without_files(record.settings) == _without_files(inputs.settings)  # `tasks` has the digests of the files
        and record.tasks == inputs.task_digests
        and record.corpora == inputs.corpus_digests
        and record.items is not None  # a comparison of checkpoints needs results by item
    )


def _without_files(settings: EvaluationConfig | None) -> EvaluationConfig | None:
    if settings is None:
        return None
    tasks = tuple(task.model_copy(update={"files": ""}) for task in settings.tasks)
    return settings.model_copy(update={"tasks": tasks})


def _scored_parts(
    pending: dict[int, CheckpointDirectory], stores: dict[int, PartStore], inputs: Inputs, say: Say, device: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Runs all parts of all checkpoints; yields (step, part -> result) when the last part of a checkpoint is done.

    Parts that an interrupted evaluation finished are not run again.

    Raises:
        TrainingError: a worker died.
        KeyboardInterrupt: the user interrupted.
    """
    names = [PERPLEXITY, *(task.name for task in inputs.tasks)]
    parts: dict[int, dict[str, Any]] = {
        step: {name: found for name in names if (found := stores[step].read(name)) is not None} for step in pending
    }
    for step, found in parts.items():
        if found:
            say(f"  step {step}: goes on; {len(found)} of {len(names)} parts were scored before")
        if len(found) == len(names):
            yield step, found
    left = [(step, name) for step, found in parts.items() for name in names if name not in found]
    if not left:
        return
    total = len(names) * len(pending)
    # Forked workers have what was imported and read here.
    context = multiprocessing.get_context("fork")
    workers = min(len(os.sched_getaffinity(0)), len(left)) if device == "cpu" else 1
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(inputs, device, os.getpid())
    )
    try:
        waiting: dict[Future[Any], tuple[int, str]] = {
            pool.submit(_score_part, pending[step].path, name): (step, name) for step, name in left
        }
        for number, future in enumerate(as_completed(waiting), total - len(left) + 1):
            step, name = waiting[future]
            parts[step][name] = future.result()
            stores[step].write(name, parts[step][name])
            say(f"  step {step}: {name} ({number} of {total})")
            if len(parts[step]) == len(names):
                yield step, parts[step]
    except BrokenProcessPool as error:
        raise TrainingError(
            "evaluation: a worker process died (out of memory?); lower evaluation.max_items, or run it again: "
            "finished scores are kept"
        ) from error
    except KeyboardInterrupt:
        for worker in multiprocessing.active_children():  # workers ignore SIGINT, and a part may last a minute
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


_worker: dict[str, Any] = {}
"""What a worker keeps between parts: the inputs, and the last checkpoint that it loaded."""


def _start_worker(inputs: Inputs, device: str, parent: int) -> None:
    die_with_parent(parent)  # workers of a killed evaluation would wait for ever
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _worker.update(inputs=inputs, device=device, path=None, lm=None)


def _score_part(path: Path, name: str) -> Any:
    """Scores one part of one checkpoint, in a worker."""
    inputs: Inputs = _worker["inputs"]
    if _worker["path"] != path:
        model = load_model(CheckpointDirectory(path)).to(_worker["device"])
        _worker.update(
            path=path, lm=CheckpointLM(model, inputs.load_tokenizer(), inputs.end_of_document, inputs.load_spelling)
        )
    lm: CheckpointLM = _worker["lm"]
    if name == PERPLEXITY:
        return perplexity.losses(lm.model, inputs.corpora)
    task = next(task for task in inputs.tasks if task.name == name)
    scores = {str(shots): run_task(lm, task, shots, inputs.max_items(task)) for shots in inputs.shots(task)}
    lm.forget()
    return scores


def _record(checkpoint: CheckpointDirectory, inputs: Inputs, parts: dict[str, Any]) -> Evaluation:
    manifest = checkpoint.manifest
    losses: dict[str, float] = parts[PERPLEXITY]
    tasks: dict[str, dict[str, TaskScores]] = {task.name: parts[task.name] for task in inputs.tasks}
    return Evaluation(
        run=manifest.run,
        step=manifest.step,
        consumed_tokens=manifest.consumed_tokens,
        checkpoint=checkpoint.digest,
        harness=inputs.harness,
        settings=inputs.settings,
        tasks=inputs.task_digests,
        corpora=inputs.corpus_digests,
        scores={name: {shots: found.metrics for shots, found in by.items()} for name, by in tasks.items()},
        items={name: {shots: found.items for shots, found in by.items()} for name, by in tasks.items()},
        fields={
            name: fields
            for name, by in tasks.items()
            if (fields := {shots: found.fields for shots, found in by.items() if found.fields})
        },
        definitions={
            task.name: TaskDefinition(
                version=task.version if isinstance(task, StockTask) else None,
                files=dict(task.digests) if isinstance(task, StockTask) else {},
                prompts={shots: found.prompts for shots, found in tasks[task.name].items()},
            )
            for task in inputs.tasks
        },
        perplexity={
            name: {
                "loss": loss,
                "perplexity": perplexity.perplexity(loss),
                "tokens": float(inputs.corpora[name].samples[:, 1:].size),
                "unigram_entropy": perplexity.unigram_entropy(inputs.corpora[name].samples),
            }
            for name, loss in losses.items()
        },
        validation_loss=perplexity.weighted(losses, inputs.corpora),
        unigram_entropy=perplexity.blend_unigram_entropy(inputs.corpora),
    )


def describe(record: Evaluation) -> str:
    """A record in a line, for progress."""
    best = {score.task: score for score in sorted(headline_scores(record), key=lambda score: score.shots)}
    scores = (f"{name} {score.value:.3f}" for name, score in best.items())
    found = ", ".join((f"held-out loss {record.validation_loss:.3f}", *scores))
    return f"step {record.step}: {found} ({short(record.checkpoint)})"


def shortfalls(record: Evaluation) -> list[str]:
    """Where prompts held fewer examples than asked for, or contexts were cut: a line for each such score."""
    found = []
    for task, by_shots in record.scores.items():
        for shots, numbers in sorted(by_shots.items(), key=lambda entry: int(entry[0])):
            if numbers["examples"] < int(shots):
                found.append(
                    f"{task}, {shots}-shot: {numbers['examples']:.2f} examples a prompt on average, "
                    "since the sequence or the task holds no more"
                )
            if numbers["truncated"]:
                found.append(
                    f"{task}, {shots}-shot: {numbers['truncated']:.0f} of {numbers['items']:.0f} contexts were cut on "
                    "the left, since they are longer than the sequence"
                )
    return found
