"""Small runs of several configs and seeds, with rings and evaluations whose numbers a test plants."""

import run_records
import run_writer

from treering.config.canonical import digest_json
from treering.runlog.directory import RunDirectory, checkpoint_name
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter

STEPS = 4


def lay_run(root, seed=1, *, layers=2, rate=1e-3, blend_seed=7, steps=STEPS, environment=None):
    """A run of a few steps without a checkpoint; runs of one blend read the same."""
    resolved = run_writer.resolved(seed)
    blend = resolved.blend.model_copy(update={"seed": blend_seed})
    recipe = resolved.recipe.model_copy(
        update={
            "blend": blend.digest,
            "model": resolved.recipe.model.model_copy(update={"num_layers": layers}),
            "optimizer": resolved.recipe.optimizer.model_copy(update={"peak_learning_rate": rate}),
        }
    )
    resolved = resolved.model_copy(update={"recipe": recipe, "blend": blend})
    run = RunDirectory(root / "runs" / resolved.run_id)
    attempt = run.path / "attempts" / "0001"
    attempt.mkdir(parents=True)
    resolved.write(run.path / "resolved.json")
    changes = {} if environment is None else {"environment": environment}
    digest = run_records.header(resolved, 1, **changes).write(attempt / "header.json")
    with RingWriter(attempt / "rings.jsonl", Ring, digest) as writer:
        for step in range(1, steps + 1):
            samples = resolved.schedule.sample_range(step)
            batch = digest_json([blend.digest, samples])
            values = run_records.ring_values(step, samples, blend.sequence_length, batch_digest=batch)
            writer.append(**values)
    return run


def evaluate(run, loss, accuracies=None, step=STEPS, items=True):
    """Writes the evaluation of a step.

    Args:
        run: the run.
        loss: held-out loss.
        accuracies: 0 or 1 for each item, by task.
        step: of the checkpoint.
        items: whether the record has results by item.
    """
    resolved, accuracies = run.resolved, accuracies or {}
    means = {task: sum(values) / len(values) for task, values in accuracies.items()}
    evaluation = run_records.Evaluation(
        run=resolved.recipe.digest,
        step=step,
        consumed_tokens=resolved.consumed_tokens(step),
        checkpoint=digest_json([run.id, step]),
        harness="lm-eval 0",
        tasks={task: digest_json(task) for task in accuracies},
        scores={
            task: {"0": {"acc": mean, "acc_stderr": (mean * (1 - mean) / len(accuracies[task])) ** 0.5}}
            for task, mean in means.items()
        },
        items={
            task: {"0": {"acc": {str(number): float(value) for number, value in enumerate(values)}}}
            for task, values in accuracies.items()
        }
        if items
        else None,
        perplexity={
            each.corpus: {"loss": loss, "perplexity": 2.718281828459045**loss, "tokens": 4096.0}
            for each in resolved.blend.components
        },
        validation_loss=loss,
        unigram_entropy=7.0,
    )
    folder = run.path / "evaluations"
    folder.mkdir(exist_ok=True)
    evaluation.write(folder / f"{checkpoint_name(step)}.json")
