"""Run logs of Treering's trainer, written with the run log's own writers: every record is whole, nothing is trained."""

import json
import os
from contextlib import contextmanager

import run_records

from treering.config.canonical import digest_json
from treering.config.model import ModelConfig, OptimizerConfig, ScheduleConfig
from treering.config.operation import (
    AttemptConfig,
    CheckpointConfig,
    KernelConfig,
    ParallelConfig,
    SpikeConfig,
    TelemetryConfig,
    ValidationConfig,
)
from treering.config.resolved import Recipe, Resolved
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.runlog.directory import RunDirectory, checkpoint_name
from treering.runlog.incidents import Incident, append_incident
from treering.runlog.lock import acquire
from treering.runlog.records import AttemptEnd, Evaluation, FileRecord, Kernel
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter

STARTED_AT = 1_700_000_000.0
BATCH, SEQUENCE = 8, 64


def sha(text):
    return digest_json(text)


def resolved(seed=1, description="a tiny run", overrides=()):
    blend = ResolvedBlend(
        algorithm="treering-1",
        seed=7,
        sequence_length=SEQUENCE,
        components=(
            ResolvedComponent(corpus="books", weight="0.75", digest=sha("books"), num_tokens=5000, num_documents=50),
            ResolvedComponent(corpus="code", weight="0.25", digest=sha("code"), num_tokens=3000, num_documents=30),
        ),
        tokenizer=sha("tokenizer"),
    )
    return Resolved(
        experiment="tiny",
        description=description,
        recipe=Recipe(
            model=ModelConfig(num_layers=2, hidden_size=32, num_attention_heads=4, padded_vocab_size=128),
            optimizer=OptimizerConfig(peak_learning_rate=1e-3, min_learning_rate=1e-4),
            schedule=ScheduleConfig(train_tokens=400 * BATCH * SEQUENCE, global_batch_size=BATCH),
            precision="fp32",
            seed=seed,
            blend=blend.digest,
            tokenizer=blend.tokenizer,
        ),
        blend=blend,
        attempt=AttemptConfig(
            parallel=ParallelConfig(micro_batch_size=4),
            kernels=KernelConfig(),
            checkpoint=CheckpointConfig(every_steps=10),
            validation=ValidationConfig(every_steps=10, samples=4),
            telemetry=TelemetryConfig(),
            spikes=SpikeConfig(),
        ),
        overrides=overrides,
    )


LAYOUT = run_records.LAYOUT.model_copy(update={"micro_batch_size": 4})


class Writer:
    """Writes a run as the trainer does: header, rings, checkpoints, end."""

    def __init__(self, project, seed=1, description="a tiny run", overrides=()):
        self.resolved = resolved(seed, description, overrides)
        self.run = RunDirectory(project.runs / self.resolved.run_id)
        self.run.path.mkdir(parents=True)
        self.resolved.write(self.run.path / "resolved.json")
        self.attempt = 0
        self.rings = []
        self.lock = None

    def start(self, parent=None, devices=("Some Processor",), **changes):
        """A new attempt, going on from a checkpoint directory or from the beginning."""
        self.attempt += 1
        self.directory = self.run.path / "attempts" / f"{self.attempt:04d}"
        (self.directory / "telemetry").mkdir(parents=True)
        values = {
            "parent": parent and run_records.parent(parent),
            "origin": "resume" if parent else "start" if self.attempt == 1 else "restart",
            "started_at": STARTED_AT + 1000 * self.attempt,
            "host": "node-1",
            "layout": LAYOUT,
            "code": {"digest": run_records.CODE, "commit": "c" * 40, "dirty": False, "diff": ""},
            "environment": {"digest": run_records.ENVIRONMENT, "device_kinds": list(devices)},
            "kernels": (
                Kernel(operation="optimizer", requested="torch_fused", used="torch", reason="no GPU"),
                Kernel(operation="attention", requested="sdpa_auto", used="sdpa_math"),
            ),
        }
        header = run_records.header(self.resolved, self.attempt, **(values | changes))
        self.writer = RingWriter(self.directory / "rings.jsonl", Ring, header.write(self.directory / "header.json"))
        self.step = parent.step if parent else 0
        return self

    def lay(self, count, **overrides):
        """Rings; `overrides` maps a field to a function of the step."""
        for _ in range(count):
            self.step += 1
            step = self.step
            values = {
                "loss": 4.0 - 0.001 * step,
                "grad_norm": 0.5 + 0.001 * (step % 5),
                "time_s": {"step": 0.5, "data_wait": 0.1},
                "tflops_per_device": 156.0,
                "flops_formula": "megatron-2023",
                "ended_at": STARTED_AT + 1000 * self.attempt + step,
                "validation": {"loss": 3.5, "by_corpus": {"books": 3.4, "code": 3.8}} if step % 10 == 0 else None,
            }
            values |= {key: function(step) for key, function in overrides.items()}
            samples = ((step - 1) * BATCH, step * BATCH)
            self.rings.append(self.writer.append(**run_records.ring_values(step, samples, SEQUENCE, **values)))
        return self

    def save(self):
        """A checkpoint after the last ring."""
        ring: Ring = self.rings[-1]
        path = self.run.path / "checkpoints" / checkpoint_name(ring.step)
        path.mkdir(parents=True, exist_ok=True)
        run_records.manifest(
            self.resolved,
            self.attempt,
            ring,
            layout=LAYOUT,
            created_at=ring.ended_at,
            files=(FileRecord(path="layer_00.safetensors", size=1000, digest=sha("file")),),
        ).write(path / "manifest.json")
        return self

    def evaluate(self, step, accuracy=0.5):
        """Scores of the checkpoint after `step`."""
        checkpoint = next(c for c in self.run.checkpoints() if c.step == step)
        folder = self.run.path / "evaluations"
        folder.mkdir(exist_ok=True)
        Evaluation(
            run=self.resolved.recipe.digest,
            step=step,
            consumed_tokens=step * BATCH * SEQUENCE,
            checkpoint=checkpoint.digest,
            harness="lm-eval 0.4.13",
            tasks={"cloze": sha("cloze")},
            scores={"cloze": {"0": {"accuracy": accuracy, "accuracy_stderr": 0.05, "items": 100}}},
            perplexity={"books": {"loss": 3.0, "perplexity": 20.0855, "tokens": 4096}},
            validation_loss=3.1,
            unigram_entropy=5.2,
        ).write(folder / f"{checkpoint_name(step)}.json")
        return self

    def befall(self, kind, **values):
        """An incident after the last ring."""
        at = STARTED_AT + 1000 * self.attempt + self.step + 0.5
        append_incident(self.directory, Incident(step=self.step, kind=kind, at=at, **values))
        return self

    def telemetry(self, rank, rows):
        """Sensor lines: (seconds after the attempt's start, values)."""
        with (self.directory / "telemetry" / f"rank-{rank}.jsonl").open("a") as file:
            for seconds, values in rows:
                time_s = STARTED_AT + 1000 * self.attempt + seconds
                file.write(json.dumps({"time": time_s, "rank": rank, "values": values}) + "\n")
        return self

    def end(self, status="finished", reason="the schedule's end"):
        """The attempt says how it ended."""
        self.writer.close()
        AttemptEnd(status=status, reason=reason, step=self.step, ended_at=STARTED_AT + 1000 * self.attempt + 900).write(
            self.directory / "end.json"
        )
        return self

    def hold(self):
        """The processes of the run are alive."""
        self.lock = acquire(self.run.lock)
        return self

    def die(self):
        """All processes of the run are gone."""
        if not (self.directory / "end.json").exists():
            self.writer.close()
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None
        return self


@contextmanager
def run_writers(project):
    """Gives a function that starts writing a run; at the end the locks are dropped."""
    writers = []

    def write(seed=1, **values):
        writers.append(Writer(project, seed, **values))
        return writers[-1]

    yield write
    for writer in writers:
        if writer.lock is not None:
            os.close(writer.lock)
