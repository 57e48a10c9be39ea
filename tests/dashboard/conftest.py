"""Real run directories, laid through the run log's own writers: curves, a spike, a restart, checkpoints, scores."""

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_records
import text_project
from audited_project import cut_checkpoint, lay_attempt, lay_project

from treering.config.canonical import digest_bytes
from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved import Resolved
from treering.config.resolved_blend import ResolvedBlend
from treering.config.schema import Experiment
from treering.data.blend.corpora import resolve_blend
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.text import Detokenizer
from treering.data.ngram_index.build import build_index
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory, checkpoint_name
from treering.runlog.records import AttemptEnd, AttemptHeader, Evaluation, FileRecord, Kernel, Parent, TaskDefinition
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter

CORPORA = {"pubmed": "0.5", "factbook": "0.3", "python": "0.2"}
TOKENS = {"pubmed": 2_400_000, "factbook": 900_000, "python": 1_700_000}
SEQUENCE = 256


def digest(text: str) -> str:
    return digest_bytes(text.encode())


@dataclass
class RunPlan:
    """What a made run looks like."""

    root: Path
    steps: int = 300
    seed: int = 1
    experiment: str = "demo"
    learning_rate: float = 1e-3
    weights: dict[str, str] = field(default_factory=lambda: dict(CORPORA))
    spike_at: int = 190
    restart_after: int = 0  # the checkpoint that a second attempt goes on from; 0: one attempt
    lost_steps: int = 17
    checkpoint_every: int = 100
    stop_at: int | None = None
    status: str | None = "finished"  # None: no end record
    reason: str = ""
    nan_at: int = 0
    ended_ago_s: float = 40.0
    step_s: float = 0.42
    overrides: tuple[str, ...] = ()
    pipeline: int = 1  # stages, of one replica; 1: two replicas
    ranks: int = 2
    device: str = ""  # sensor readings as of such a rank: "cuda", "cpu"; empty: none


def experiment_of(plan: RunPlan) -> Experiment:
    rampup = {"start": 4, "increment": 4, "samples": 480}
    tokens = (160 * 4 + 16 * max(1, plan.steps - 78)) * SEQUENCE
    return Experiment.model_validate(
        {
            "experiment": plan.experiment,
            "seed": plan.seed,
            "corpora": [
                {"name": name, "jsonl": f"{name}.jsonl", "kind": "prose", "licence": "CC0-1.0"} for name in plan.weights
            ],
            "tokenizer": {"vocabulary_size": 8192},
            "blend": {
                "seed": 7,
                "sequence_length": SEQUENCE,
                "components": [{"corpus": name, "weight": weight} for name, weight in plan.weights.items()],
            },
            "model": {"num_layers": 4, "hidden_size": 192, "num_attention_heads": 6, "padded_vocab_size": 8192},
            "optimizer": {"peak_learning_rate": plan.learning_rate, "min_learning_rate": plan.learning_rate / 10},
            "schedule": {
                "train_tokens": tokens,
                "global_batch_size": 16,
                "rampup": rampup,
                "warmup_tokens": 120 * SEQUENCE,
            },
            "parallel": {"micro_batch_size": 2, "cpu_processes": 2},
            "checkpoint": {"every_steps": plan.checkpoint_every},
            "validation": {"every_steps": 25, "samples": 16},
        }
    )


def resolved_of(plan: RunPlan) -> Resolved:
    blend = ResolvedBlend.model_validate(
        {
            "algorithm": "treering-1",
            "seed": 7,
            "sequence_length": SEQUENCE,
            "tokenizer": digest("tokenizer"),
            "components": [
                {
                    "corpus": name,
                    "weight": weight,
                    "digest": digest(f"corpus {name}"),
                    "num_tokens": TOKENS.get(name, 1_000_000),
                    "num_documents": TOKENS.get(name, 1_000_000) // 600,
                }
                for name, weight in plan.weights.items()
            ],
        }
    )
    return resolve(experiment_of(plan), blend, "test", plan.overrides)


def header_of(
    plan: RunPlan, resolved: Resolved, number: int, parent: Parent | None, started_at: float
) -> AttemptHeader:
    return run_records.header(
        resolved,
        number,
        parent=parent,
        started_at=started_at,
        host="node-17",
        code={"digest": run_records.CODE, "commit": "0f3c", "dirty": False},
        environment={
            "digest": run_records.ENVIRONMENT,
            "python": "3.11.2",
            "packages": {"torch": "2.13.0+cpu"},
            "device_kinds": ["NVIDIA H200" if plan.device == "cuda" else "Some Processor"],
        },
        layout=run_records.LAYOUT.model_copy(update={"pipeline": plan.pipeline, "data": plan.ranks // plan.pipeline}),
        devices=({"kind": "cpu", "name": "2 cores"},),
        kernels=(
            Kernel(operation="attention", requested="sdpa_auto", used="sdpa_math", reason="no fused kernel on CPU"),
            Kernel(operation="optimizer", requested="torch_fused", used="torch_fused"),
        ),
    )


class Clock:
    """The writer's clock of a made run: it ends `ended_ago_s` before now."""

    def __init__(self, now: float) -> None:
        self.now = now


def ring_values(
    plan: RunPlan, resolved: Resolved, step: int, clock: Clock, random: np.random.Generator
) -> dict[str, Any]:
    """Numbers of one step: a falling loss, a learning-rate that scales it, a spike with its run-up."""
    schedule = resolved.schedule
    start, end = schedule.sample_range(step)
    size = end - start
    fall = 3.35 + 5.6 * math.exp(-step / 38) + 0.9 * math.exp(-step / 190) - 120 * (plan.learning_rate - 1e-3)
    loss = fall * math.exp(0.35 * random.standard_normal() / math.sqrt(size * 24))
    norm = (0.55 + 2.2 * math.exp(-step / 24)) * math.exp(0.09 * random.standard_normal())
    if plan.spike_at and 0 <= step - plan.spike_at < 3:
        norm *= (3.0, 9.0, 4.0)[step - plan.spike_at]
        loss *= (1.0, 1.32, 1.12)[step - plan.spike_at]
    if step == plan.nan_at:
        loss = math.nan
    wait = 0.004 * math.exp(0.3 * random.standard_normal())
    seconds = plan.step_s * size / 16 * math.exp(0.03 * random.standard_normal())
    validation = None
    if step % 25 == 0:
        by_corpus = {name: fall + 0.07 + 0.21 * index for index, name in enumerate(plan.weights)}
        weighted = sum(float(plan.weights[name]) * value for name, value in by_corpus.items())
        validation = {"loss": weighted, "by_corpus": by_corpus}
        clock.now += 0.8
    clock.now += seconds
    tokens = size * SEQUENCE
    return run_records.ring_values(
        step,
        (start, end),
        SEQUENCE,
        applied=step != plan.nan_at,
        loss=loss,
        grad_norm=norm,
        learning_rate=schedule.step_learning_rate(step),
        time_s={
            "step": seconds,
            "data_wait": wait,
            "forward_backward": seconds * 0.73,
            "communication": seconds * 0.2,
            "optimizer": seconds * 0.05,
            **({"pipeline": seconds * 0.9, "pipeline_bubble": seconds * 0.27} if plan.pipeline > 1 else {}),
        },
        tokens_per_second=tokens / seconds,
        tflops_per_device=tokens * 6 * 3.5e6 / seconds / 2 / 1e12,
        flops_formula="megatron-2023",
        ended_at=clock.now,
        validation=validation,
        batch_digest=digest(f"{resolved.blend.digest} {start} {end}"),
    )


def write_telemetry(attempt: Path, device: str, ended_at: list[float]) -> None:
    """Two ranks, a reading in the middle of each step and one long before the first; rank 1 draws 20 W more."""
    (attempt / "telemetry").mkdir()
    for rank in (0, 1):
        lines = []
        for number, moment in enumerate([ended_at[0] - 300, *(end - 0.05 for end in ended_at)]):
            values: dict[str, float | None] = {
                "host/cpu_utilisation": 50.0,
                "host/memory_used": 2e9,
                "process/rss": 7e8,
                "rank/compute": 0.3 + 0.05 * rank,
            }
            if device == "cuda":
                values |= {"device/utilisation": 90.0, "device/power": 300.0 + number + 20 * rank}
                values |= {"device/memory_used": 6.5e10, "device/temperature": None}
            line = {"time": moment, "rank": rank, "values": values}
            if not number:
                line["reasons"] = (
                    {"device/temperature": "not supported"} if device == "cuda" else {"device": "no device"}
                )
            lines.append(json.dumps(line))
        lines[3:3] = ["{torn"]
        (attempt / "telemetry" / f"rank-{rank}.jsonl").write_text("\n".join(lines) + "\n")


def write_checkpoint(run: Path, resolved: Resolved, attempt: int, ring: Ring, created_at: float) -> CheckpointDirectory:
    folder = run / "checkpoints" / checkpoint_name(ring.step)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(64))
    manifest = run_records.manifest(
        resolved,
        attempt,
        ring,
        created_at=created_at,
        files=(FileRecord(path="model.safetensors", size=64, digest=digest_bytes(bytes(64))),),
    )
    write_evaluation(run, resolved, ring, manifest.write(folder / "manifest.json"))
    return CheckpointDirectory(folder)


def write_evaluation(run: Path, resolved: Resolved, ring: Ring, checkpoint: str) -> None:
    gain = 1 - math.exp(-ring.step / 150)
    items = 200
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for task, floor, top in (("lastword", 0.02, 0.19), ("cloze", 0.25, 0.47)):
        scores[task] = {}
        for shots in (0, 1, 4):
            value = floor + (top - floor) * gain + 0.012 * shots * gain
            error = math.sqrt(value * (1 - value) / (items - 1))
            scores[task][str(shots)] = {"acc": value, "acc_stderr": error, "items": float(items)}
    losses = {
        name: 3.5 + 3 * (1 - gain) + 0.2 * i for i, name in enumerate(c.corpus for c in resolved.blend.components)
    }
    evaluation = Evaluation(
        run=resolved.recipe.digest,
        step=ring.step,
        consumed_tokens=ring.consumed_tokens,
        checkpoint=checkpoint,
        harness="lm-eval 0.4.13",
        tasks={task: digest(task) for task in scores},
        definitions={
            task: TaskDefinition(version="2.0", prompts={shots: digest(f"{task} {shots}") for shots in by_shots})
            for task, by_shots in scores.items()
        },
        scores=scores,
        perplexity={
            name: {"loss": loss, "perplexity": math.exp(loss), "tokens": 16384.0} for name, loss in losses.items()
        },
        validation_loss=sum(losses.values()) / len(losses),
        unigram_entropy=7.1,
    )
    (run / "evaluations").mkdir(exist_ok=True)
    evaluation.write(run / "evaluations" / f"{checkpoint_name(ring.step)}.json")


def make_run(plan: RunPlan) -> Path:
    """Lays a whole run; returns its folder."""
    resolved = resolved_of(plan)
    run = plan.root / "runs" / resolved.run_id
    run.mkdir(parents=True)
    resolved.write(run / "resolved.json")
    random = np.random.default_rng(plan.seed)
    total = resolved.schedule.num_steps if plan.stop_at is None else plan.stop_at
    clock = Clock(time.time() - plan.ended_ago_s - total * plan.step_s)
    parent: Parent | None = None
    stretches = [(1, total)]
    if plan.restart_after:
        stretches = [(1, plan.restart_after + plan.lost_steps), (plan.restart_after + 1, total)]
    for number, (first, last) in enumerate(stretches, 1):
        attempt = run / "attempts" / f"{number:04d}"
        attempt.mkdir(parents=True)
        clock.now += 45 if number > 1 else 0
        header = header_of(plan, resolved, number, parent, clock.now)
        written = header.write(attempt / "header.json")
        ended_at: list[float] = []
        with RingWriter(attempt / "rings.jsonl", Ring, written) as writer:
            for step in range(first, last + 1):
                ring = writer.append(**ring_values(plan, resolved, step, clock, random))
                ended_at.append(ring.ended_at)
                if step % plan.checkpoint_every == 0 or step == resolved.schedule.num_steps:
                    checkpoint = write_checkpoint(run, resolved, number, ring, clock.now)
                    if step == plan.restart_after:
                        parent = run_records.parent(checkpoint)
        if plan.device:
            write_telemetry(attempt, plan.device, ended_at)
        if number == len(stretches) and plan.status is not None:
            end = AttemptEnd(
                status=plan.status, reason=plan.reason or f"{plan.status} by the test", step=last, ended_at=clock.now
            )
            end.write(attempt / "end.json")
    return run


@pytest.fixture
def lay_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`lay_run(steps=…)` makes a run below a project that the dashboard will show."""
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    return lambda **values: make_run(RunPlan(root=tmp_path, **values))


@pytest.fixture(scope="session")
def audited_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audited")
    lay_project(root)
    return root


@pytest.fixture
def audited(audited_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with real corpora and a run of two attempts that read them; the dashboard shows it."""
    root = tmp_path / "audited"
    shutil.copytree(audited_template, root)
    monkeypatch.setenv("TREERING_ROOT", str(root))
    return Project(root)


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Project, RunDirectory]:
    """A project with indexed corpora of longer documents and a run of 6 steps on them; the dashboard shows it."""
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    sections = {
        "seed": 7,
        "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
        "schedule": {"train_tokens": 32 * 48, "global_batch_size": 8},
        "parallel": {"micro_batch_size": 2, "data": 2},
        "checkpoint": {"every_steps": 6},
    }
    project = text_project.lay(tmp_path, text_project.experiment("tiny", **sections))
    experiment = load_experiment(tmp_path / "tiny.yaml")
    resolved = resolve(experiment, resolve_blend(experiment, project), "tiny.yaml")
    run = RunDirectory(project.run(resolved.run_id))
    run.path.mkdir(parents=True)
    resolved.write(run.path / "resolved.json")
    cut_checkpoint(run, 1, lay_attempt(project, run, 1, range(1, 7))[-1])
    for name in text_project.WORDS:
        build_index(Corpus.open(project.corpus(name)), Detokenizer(project.tokenizer), project.index)
    return project, run
