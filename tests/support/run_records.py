"""The records of a run with every field filled, as pure functions: a test states only the fields it is about."""

from typing import Any

from treering.config.canonical import digest_bytes, digest_json
from treering.config.resolved import Resolved
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.records import AttemptHeader, AttemptLayout, CheckpointManifest, Evaluation, Parent
from treering.runlog.ring import Ring

LAYOUT = AttemptLayout(tensor=1, pipeline=1, data=2, micro_batch_size=2, device="cpu", backend="gloo")
CODE, ENVIRONMENT = digest_bytes(b"code"), digest_bytes(b"environment")


def header(resolved: Resolved, number: int, /, **changes: Any) -> AttemptHeader:
    """The header of attempt `number`: with `parent` among the changes it resumes, without it it starts."""
    fields = {
        "attempt": number,
        "run": resolved.recipe.digest,
        "blend": resolved.blend.digest,
        "parent": None,
        "origin": "resume" if changes.get("parent") else "start",
        "changed": (),
        "continue_changed": False,
        "started_at": 1.0,
        "host": "node",
        "process": 1,
        "config": resolved.attempt,
        "layout": LAYOUT,
        "code": {"digest": CODE},
        "environment": {"digest": ENVIRONMENT},
        "devices": (),
        "kernels": (),
        "corpora": {component.corpus: component.digest for component in resolved.blend.components},
        "upstream": None,
    }
    return AttemptHeader(**(fields | changes))


def ring_values(step: int, samples: tuple[int, int], sequence_length: int, /, **changes: Any) -> dict[str, Any]:
    """The fields of the ring of a step that reads the samples [start, end) of the data order."""
    start, end = samples
    fields = {
        "step": step,
        "sample_start": start,
        "sample_end": end,
        "consumed_samples": end,
        "consumed_tokens": end * sequence_length,
        "applied": True,
        "loss": 6.0 - step / 10,
        "grad_norm": 1.0,
        "learning_rate": 1e-3,
        "global_batch_size": end - start,
        "loss_scale": None,
        "time_s": {"step": 0.125},
        "tokens_per_second": 1024.0,
        "tflops_per_device": None,
        "flops_formula": None,
        "ended_at": float(step),
        "validation": None,
        "batch_digest": digest_json([start, end]),
    }
    return fields | changes


def manifest(resolved: Resolved, attempt: int, ring: Ring, /, **changes: Any) -> CheckpointManifest:
    """The manifest of a checkpoint that an attempt cut after `ring`; it names no files."""
    fields = {
        "run": resolved.recipe.digest,
        "attempt": attempt,
        "step": ring.step,
        "consumed_samples": ring.consumed_samples,
        "consumed_tokens": ring.consumed_tokens,
        "applied_steps": ring.step,
        "ring": ring.digest,
        "blend": resolved.blend.digest,
        "tokenizer": resolved.blend.tokenizer,
        "code": CODE,
        "environment": ENVIRONMENT,
        "upstream": None,
        "layout": LAYOUT,
        "created_at": 2.0,
        "files": (),
    }
    return CheckpointManifest(**(fields | changes))


def parent(checkpoint: CheckpointDirectory) -> Parent:
    """What the header of an attempt names that goes on from `checkpoint`."""
    cut = checkpoint.manifest
    return Parent(run=cut.run, attempt=cut.attempt, step=cut.step, ring=cut.ring, checkpoint=checkpoint.digest)


def evaluation(resolved: Resolved, checkpoint: CheckpointDirectory, /, **changes: Any) -> Evaluation:
    """Scores of a checkpoint; without changes there are none."""
    fields = {
        "run": resolved.recipe.digest,
        "step": checkpoint.step,
        "consumed_tokens": checkpoint.manifest.consumed_tokens,
        "checkpoint": checkpoint.digest,
        "harness": "lm-eval 0",
        "tasks": {},
        "scores": {},
        "perplexity": {},
        "validation_loss": 5.0,
        "unigram_entropy": 6.0,
    }
    return Evaluation(**(fields | changes))
