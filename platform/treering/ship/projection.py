"""What a run looks like in MLflow: names, params, tags, datasets and points, as pure functions of the run log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from treering.collect.code import rule_of
from treering.config.canonical import canonical_json, short
from treering.config.resolved import Resolved
from treering.metrics.alarms import RULES, Alarm
from treering.metrics.compare import flatten
from treering.metrics.state import Condition
from treering.runlog.columns.rows import Integers, Series
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.folders import RunFolder
from treering.runlog.incidents import Incident
from treering.runlog.journal import Journal, notes_and_tags
from treering.runlog.records import AttemptHeader, Evaluation, RunState
from treering.runlog.reproductions import OUTCOMES, newest_reproduction_line
from treering.store.values import MAX_TAG_CHARACTERS, DatasetInput, Point, RunStatus, is_drawable

RUN_TAG: Final = "treering.run"
POSITION_TAG: Final = "treering.shipped"
SENSORS_TAG: Final = "treering.shipped_sensors"
EVENTS_TAG: Final = "treering.shipped_events"
DECIMATED_TAG: Final = "treering.decimated"
WAITS_TAG: Final = "treering.waits"
NOTE_TAG: Final = "mlflow.note.content"
TAGS_TAG: Final = "treering.tags"
PEOPLE_TAGS: Final = frozenset({NOTE_TAG, TAGS_TAG})
NON_FINITE_TAG: Final = "treering.non_finite"
NUM_NON_FINITE_TAG: Final = "treering.num_non_finite"
BRANCH_TAG: Final = "treering.branch"
PARENT_TAG: Final = "mlflow.parentRunId"
CHECKPOINT_TAG: Final = "treering.checkpoint"
SPIKE_METRIC: Final = "judge/spike"
INCIDENT_METRIC: Final = "run/incidents"
MAX_SPIKE_SCORE: Final = 1000.0
"""Highest value of `judge/spike`: a non-finite loss has an infinite z-score, which would flatten MLflow's chart."""

_STATUS: Final[Mapping[RunState, RunStatus]] = {
    "empty": "SCHEDULED",
    "running": "RUNNING",
    "finished": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
    "broken": "KILLED",
}


def run_name(experiment: str, run_id: str) -> str:
    """Name of the MLflow run: experiment and the beginning of the run's id."""
    return f"{experiment}-{run_id[:8]}"


def status_of(state: RunState) -> RunStatus:
    """MLflow's status for a run's state: a run whose processes died is KILLED, not RUNNING for ever."""
    return _STATUS[state]


def texts(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf of a JSON value under its dotted path, as text; items of named things under their names."""
    for path, leaf in flatten(value, prefix):
        yield path, leaf if isinstance(leaf, str) else canonical_json(leaf)


def run_params(resolved: Resolved) -> dict[str, str]:
    """Params that hold for the whole run: recipe, blend, names. What an attempt may change is under its attempt."""
    document = resolved.model_dump(mode="json")
    return {
        key: text
        for part in ("schema_version", "experiment", "description", "recipe", "blend", "overrides")
        for key, text in texts(document[part], part)
    }


def attempt_params(header: AttemptHeader) -> dict[str, str]:
    """Params of one attempt, under `attempts.0001.`: its config, layout and kernels."""
    values = {
        **header.config.model_dump(mode="json"),
        "origin": header.origin,
        "layout": header.layout.model_dump(mode="json"),
        "kernels": {kernel.operation: kernel.model_dump(mode="json") for kernel in header.kernels},
        "kernels_requested": header.config.kernels.model_dump(mode="json"),
        "code": header.code.get("digest"),
        "environment": header.environment.get("digest"),
    }
    return dict(texts(values, f"attempts.{header.attempt:04d}"))


def run_note(resolved: Resolved) -> str:
    """What the run is, in Markdown."""
    model = resolved.recipe.model
    tokens = resolved.recipe.schedule.train_tokens
    return (
        f"**{resolved.experiment}** {resolved.description}\n\nRun `{resolved.run_id}`: {model.num_layers} layers, "
        f"hidden size {model.hidden_size}, {tokens:,} tokens, {resolved.recipe.precision}. More by `treering show "
        f"{resolved.run_id}` and `treering audit`. Abandoned branches, if any, are nested below this run."
    )


def run_tags(run: RunDirectory) -> dict[str, str]:
    """Tags that never change under a run."""
    resolved = run.resolved
    return {
        RUN_TAG: resolved.recipe.digest,
        BRANCH_TAG: "current",
        "treering.run_id": resolved.run_id,
        **{f"treering.digest.{name}": digest for name, digest in resolved.digests.items()},
        "treering.digest.tokenizer": resolved.recipe.tokenizer or "declared",
        "mlflow.source.name": "treering train",
    }


def way_tags(attempts: Sequence[Any], segments: Sequence[Any]) -> dict[str, str]:
    """How many attempts a run has, and the way through them."""
    return {
        "treering.attempts": str(len(attempts)),
        "treering.path": " ".join(f"{segment.attempt.number:04d}:{segment.last_step or ''}" for segment in segments),
    }


def attempt_tags(attempts: Sequence[Any], segments: Sequence[Any]) -> dict[str, str]:
    """Tags of the newest attempt, and the way through all of them."""
    if not attempts:
        return {}
    header = attempts[-1].header
    tags = way_tags(attempts, segments) | {
        "treering.layout": str(header.layout),
        "treering.backend": f"{header.layout.device}/{header.layout.backend}",
        "treering.digest.code": str(header.code.get("digest")),
        "treering.code_rule": rule_of(header.code),
        "treering.digest.environment": str(header.environment.get("digest")),
        "treering.device_kinds": ", ".join(header.environment.get("device_kinds", ())),
        "treering.changed": "; ".join(header.changed),
    }
    if header.code.get("commit"):
        tags["mlflow.source.git.commit"] = str(header.code["commit"])
    if header.launch is not None:
        tags["treering.launcher"] = str(header.launch["launcher"])
        if job := header.launch.get("slurm", {}).get("job"):
            tags["treering.slurm_job"] = str(job)
    if header.nodes:
        tags["treering.nodes"] = str(len(header.nodes))
    if header.parent is not None:
        tags["treering.parent"] = (
            f"{short(header.parent.run)} attempt {header.parent.attempt} step {header.parent.step}"
        )
    return tags


def reproduction_tags(run: RunFolder) -> dict[str, str]:
    """What came out of the newest reproduction of a run that was compared, and when; none where there is none."""
    newest = newest_reproduction_line(run)
    if newest is None or not newest["compared"]:
        return {}
    return {
        "treering.reproduction": OUTCOMES[newest["identical"]],
        "treering.reproduction.verdict": newest["sentence"][:MAX_TAG_CHARACTERS],
        "treering.reproduction.at": f"{datetime.fromtimestamp(newest['at'], UTC):%Y-%m-%d %H:%M}",
    }


def people_tags(journal: Journal, note: str) -> dict[str, str]:
    """What people noted about a run and how they tagged it; MLflow shows the notes below the run's description.

    Args:
        journal: of the run.
        note: the description, in Markdown.

    Raises:
        EvidenceError: the journal was changed.
    """
    notes, tags = notes_and_tags(line.entry for line in journal.lines())
    if notes:
        lines = "".join(f"- {datetime.fromtimestamp(n.at, UTC):%Y-%m-%d %H:%M} {n.by}: {n.text}\n" for n in notes)
        note = f"{note}\n\n**Notes**\n\n{lines}"
    return {NOTE_TAG: note, TAGS_TAG: ", ".join(tags)}


def corpus_inputs(resolved: Resolved) -> list[DatasetInput]:
    """The blend's corpora that have content, as datasets."""
    return [
        DatasetInput(
            component.corpus,
            component.digest,
            "training",
            {"num_tokens": component.num_tokens, "num_documents": component.num_documents},
            {"treering.weight": component.weight, "treering.blend": resolved.blend.digest},
        )
        for component in resolved.blend.components
        if component.digest
    ]


def task_inputs(evaluation: Evaluation) -> list[DatasetInput]:
    """The tasks that a checkpoint was scored on, as datasets."""
    return [DatasetInput(task, digest, "evaluation") for task, digest in evaluation.tasks.items()]


def alarm_series(alarms: Iterable[Alarm], steps: Integers) -> dict[str, Series]:
    """The alarms of some steps as metrics: the z-score of spikes, 1 for each other rule that fires.

    Args:
        alarms: of these steps and of others.
        steps: rising.
    """
    found: dict[str, Series] = {}
    row_of = {step: row for row, step in enumerate(steps.tolist())} if alarms else {}
    for alarm in alarms:
        row = row_of.get(alarm.step)
        if row is None:
            continue
        key = f"judge/{alarm.rule}" if alarm.z is None else SPIKE_METRIC
        series = found.setdefault(key, Series.missing(len(steps)))
        value = 1.0 if alarm.z is None else min(alarm.z, MAX_SPIKE_SCORE)
        series.values[row] = max(value, series.values[row]) if series.known[row] else value
        series.known[row] = True
    return found


def incident_points(incidents: Sequence[tuple[int, Incident]]) -> list[Point]:
    """How many incidents a run has had after each of them, at the last step before it; with their attempts' numbers."""
    return [
        Point(INCIDENT_METRIC, float(count), incident.step, round(incident.at * 1000))
        for count, (_attempt, incident) in enumerate(incidents, 1)
    ]


def incident_tags(incidents: Sequence[tuple[int, Incident]]) -> dict[str, str]:
    """All incidents of a run in words, with their attempts' numbers; nothing where there are none."""
    if not incidents:
        return {}
    entries = [{"attempt": attempt, **incident.model_dump(mode="json")} for attempt, incident in incidents]
    return {"treering.incidents": list_tag(entries), "treering.num_incidents": str(len(incidents))}


def alarm_tags(alarms: Sequence[Alarm]) -> dict[str, str]:
    """All alarms of a run: how many each rule raised, and what each rule found; nothing where there are none."""
    if not alarms:
        return {}
    by_rule = {rule: [alarm.to_dict() for alarm in alarms if alarm.rule == rule] for rule in RULES}
    raised = {rule: found for rule, found in by_rule.items() if found}
    spikes = [alarm.to_dict() for alarm in alarms if alarm.z is not None]
    tags = {"treering.alarms": canonical_json({rule: len(found) for rule, found in raised.items()})}
    tags |= {f"treering.alarm.{rule}": list_tag(found) for rule, found in raised.items()}
    if spikes:
        tags |= {"treering.spikes": list_tag(spikes), "treering.num_spikes": str(len(spikes))}
    return tags


def state_tags(found: Condition) -> dict[str, str]:
    """The state, and why a stalled run counts as that; the reason goes when the run goes on."""
    return {"treering.state": found.state, "treering.stall": found.stall}


def evaluation_points(evaluation: Evaluation, timestamp_ms: int) -> list[Point]:
    """Scores of one checkpoint, each with the dataset that it was measured on."""

    def point(key: str, value: float, dataset: tuple[str, str] | None = None) -> Point:
        return Point(key, float(value), evaluation.step, timestamp_ms, dataset=dataset)

    points = [
        point(
            f"eval/{task}/{shots}-shot/{metric}",
            value,
            (task, evaluation.tasks[task]) if task in evaluation.tasks else None,
        )
        for task, by_shots in evaluation.scores.items()
        for shots, metrics in by_shots.items()
        for metric, value in metrics.items()
    ]
    points += [
        point(f"eval/{metric}/{corpus}", value)
        for corpus, metrics in evaluation.perplexity.items()
        for metric, value in metrics.items()
    ]
    points.append(point("eval/validation_loss", evaluation.validation_loss))
    points.append(point("eval/unigram_entropy", evaluation.unigram_entropy))
    return points


def checkpoint_tags(checkpoint: CheckpointDirectory) -> dict[str, str]:
    """Tags of a checkpoint's LoggedModel."""
    manifest = checkpoint.manifest
    return {
        CHECKPOINT_TAG: checkpoint.digest,
        RUN_TAG: manifest.run,
        "treering.step": str(manifest.step),
        "treering.attempt": str(manifest.attempt),
        "treering.ring": manifest.ring,
        "treering.blend": manifest.blend,
        "treering.code": manifest.code,
        "treering.environment": manifest.environment,
    }


def checkpoint_params(checkpoint: CheckpointDirectory) -> dict[str, str]:
    """Params of a checkpoint's LoggedModel."""
    manifest = checkpoint.manifest
    return {
        "step": str(manifest.step),
        "consumed_samples": str(manifest.consumed_samples),
        "consumed_tokens": str(manifest.consumed_tokens),
        "applied_steps": str(manifest.applied_steps),
        "layout": str(manifest.layout),
        "bytes": str(sum(file.size for file in manifest.files)),
    }


def non_finite(values: Iterable[tuple[int, str, float]]) -> list[dict[str, Any]]:
    """Those of the values (step, metric, value) that are stored as NaN, for a tag."""
    return [
        {"step": step, "metric": metric, "value": value} for step, metric, value in values if not is_drawable(value)
    ]


def decimated(run_id: str) -> str:
    """That MLflow has a part of the numbers only, and where the rest is."""
    return (
        f"Of the rings after number 10,000, MLflow has the lowest and the highest value of each bucket of rings. The "
        f"run log has every ring: treering.find_run(Path('runs'), '{run_id}'), or attempts/*/columns/rows-*.parquet"
    )


def list_tag(entries: Sequence[Mapping[str, Any]]) -> str:
    """JSON list for a tag; if it is too long for MLflow, as many of the last entries as fit."""
    texts: list[str] = []
    length = 2
    for entry in reversed(entries):
        text = canonical_json(entry)
        length += len(text) + 1
        if length > MAX_TAG_CHARACTERS:
            break
        texts.append(text)
    return f"[{','.join(reversed(texts))}]"
