"""Brings one run's MLflow run up to date with its run log.

**Branches.** One top-level MLflow run shows one Treering run, only the rings of its current path. MLflow cannot take
a metric back, so when an attempt goes on from before what was shipped (a crash after the last checkpoint, a rollback,
changed code that starts over), the path is shipped into a fresh MLflow run, and the old one is kept, nested below it,
as the abandoned branch. If nothing beyond the point of return was shipped, the same MLflow run goes on.

**The position of shipping** is a tag of the MLflow run, written in the same call as its metrics, after them.
A shipper that dies in between sends some points again; MLflow stores equal points once.
"""

from typing import Final

from treering.config.canonical import digest_json
from treering.errors import EvidenceError, TreeringError
from treering.metrics.alarms import Alarm
from treering.metrics.flops import ModelShape
from treering.metrics.path_alarms import judge_of
from treering.metrics.state import condition
from treering.runlog.ancestry import PathSegment
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import MANIFEST_FILE, CheckpointDirectory, RunDirectory
from treering.runlog.records import RunState
from treering.runlog.ring import Ring
from treering.ship import projection
from treering.ship.tail import Position, RingTail, TelemetryTail, is_on_path, own_segments
from treering.ship.target import ShipReport, one_shipper
from treering.store.registry import MAX_METRICS, Point, Registry, StoredRun

TARGET: Final = "mlflow"
"""Name of the target."""


class MlflowShipper:
    """Ships one run, again and again; everything it remembers between two passes can be found again.

    Args:
        run: the run.
        registry: where to.
    """

    def __init__(self, run: RunDirectory, registry: Registry) -> None:
        self._run = run
        self._registry = registry
        self._forget()

    def _forget(self) -> None:
        self._stored: StoredRun | None = None
        self._shipped: Position | None = None
        self._tail = RingTail(self._run)
        self._telemetry: tuple[int, TelemetryTail] | None = None
        self._judge = judge_of(self._run)
        self._alarms: list[Alarm] = []
        self._non_finite: list[dict[str, object]] = []
        self._tags: dict[str, str] = {}
        self._params_of: set[int] = set()
        self._num_incidents = 0

    def ship(self) -> ShipReport:
        """One pass: everything that is durable now.

        Raises:
            StoreError: the registry does not answer; the next pass goes on from what it holds.
            EvidenceError: the run log is damaged; nothing after the damage was shipped.
            TreeringError: the run's config cannot be read.
        """
        with one_shipper(self._run, TARGET):
            try:
                return self._ship()
            except TreeringError:
                self._forget()
                raise

    def _ship(self) -> ShipReport:
        # The state first: a run that ends during this pass is seen as running, and the next pass sees all of its rings.
        found = condition(self._run)
        state: RunState = "running" if found.state == "stalled" else found.state
        segments = own_segments(self._run)
        attempts = self._run.attempts()
        if not segments:
            return ShipReport(TARGET, self._run.id, state)
        stored, abandoned = self._current_run(segments, attempts)
        for attempt in attempts:
            if attempt.number not in self._params_of:
                self._registry.log_params(stored.run_id, projection.attempt_params(attempt.header))
                self._params_of.add(attempt.number)
        rings, last = self._ship_rings(stored, segments)
        incidents = self._ship_incidents(stored)
        tags = {**projection.attempt_tags(attempts, segments), **incidents, **projection.state_tags(found)}
        self._ship_tags(stored, tags)
        models, evaluations = self._ship_checkpoints(stored, segments)
        self._ship_status(stored, state, attempts[-1], last)
        sent = {"ring": rings, "checkpoint": models, "evaluation": evaluations}
        note = "an abandoned branch moved aside" if abandoned else ""
        return ShipReport(TARGET, self._run.id, state, stored.run_id, sent, note)

    def _current_run(self, segments: list[PathSegment], attempts: list[AttemptDirectory]) -> tuple[StoredRun, bool]:
        """The MLflow run of the current path; True if an earlier one had to be put aside for it."""
        if self._tail.rewound(segments):
            self._forget()
        if self._stored is not None:
            return self._stored, False
        resolved = self._run.resolved
        experiment = self._registry.experiment(resolved.experiment)
        identity = {projection.RUN_TAG: resolved.recipe.digest}
        current = self._registry.find_runs(experiment, {**identity, projection.BRANCH_TAG: "current"})
        stored = current[0] if current else None
        shipped = Position.parse(stored.tags.get(projection.POSITION_TAG, "")) if stored else None
        abandoned = False
        if stored and shipped and not is_on_path(shipped, segments):
            if shipped.step > 0 or not _has_header(attempts, shipped):
                self._put_aside(stored, segments)
                stored, abandoned = None, True
            shipped = None  # without a step, an attempt that died before its first ring left nothing to put aside
        if stored is None:
            start = round(segments[0].attempt.header.started_at * 1000)
            name = projection.run_name(resolved)
            stored = self._registry.create_run(experiment, name, start, projection.run_tags(self._run))
        if shipped is None:
            first = segments[0].attempt
            shipped = Position(first.number, 0, first.header_digest)
            # A param can be written once; names and overrides of a run that starts again may differ from the first.
            params = projection.run_params(resolved)
            self._registry.log_params(stored.run_id, {k: v for k, v in params.items() if k not in stored.params})
            self._registry.log_datasets(stored.run_id, projection.corpus_inputs(resolved))
            self._registry.log(stored.run_id, tags={projection.POSITION_TAG: str(shipped)})
        for branch in self._registry.find_runs(experiment, {**identity, projection.BRANCH_TAG: "abandoned"}):
            if branch.tags.get(projection.PARENT_TAG) != stored.run_id:
                self._registry.log(branch.run_id, tags={projection.PARENT_TAG: stored.run_id})
        self._stored, self._shipped = stored, shipped
        return stored, abandoned

    def _put_aside(self, old: StoredRun, segments: list[PathSegment]) -> None:
        """Marks what was shipped as an abandoned branch, and deletes its LoggedModels.

        The tag comes last: after an interruption the next pass does all of it again.
        """
        for model in self._registry.models(old.experiment_id, old.run_id, projection.CHECKPOINT_TAG).values():
            self._registry.delete_model(model)
        parent = segments[-1].attempt.header.parent
        after = f"after step {parent.step}" if parent else "from the start"
        self._registry.rename(old.run_id, f"{projection.run_name(self._run.resolved)} (abandoned {after})")
        if old.status == "RUNNING":
            self._registry.set_status(old.run_id, "KILLED", None)
        self._registry.log(old.run_id, tags={projection.BRANCH_TAG: "abandoned", "treering.abandoned": after})

    def _ship_rings(self, stored: StoredRun, segments: list[PathSegment]) -> tuple[int, Ring | None]:
        """Sends the rings beyond the shipped position; returns how many, and the newest ring of all if any is new."""
        points: list[Point] = []
        resolved = self._run.resolved
        shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
        count, last, position = 0, None, self._shipped
        for attempt, ring in self._tail.new_rings(segments):
            last = ring
            alarms = self._judge.update(ring)
            self._alarms += alarms
            new = projection.ring_points(ring, attempt.header, shape, self._sensors(attempt, ring), alarms)
            self._non_finite += projection.non_finite(new)
            if self._shipped and (attempt.number, ring.step) <= (self._shipped.attempt, self._shipped.step):
                continue
            if len(points) + len(new) > MAX_METRICS:
                self._send(stored, points, position)
                points = []
            points += new
            position = Position(attempt.number, ring.step, ring.digest)
            count += 1
        if points:
            self._send(stored, points, position)
        return count, last

    def _send(self, stored: StoredRun, points: list[Point], position: Position | None) -> None:
        self._registry.log(stored.run_id, points, {projection.POSITION_TAG: str(position)})
        self._shipped = position

    def _ship_incidents(self, stored: StoredRun) -> dict[str, str]:
        """Sends a point for each new incident, of attempts off the path as well; returns the tags that list all."""
        incidents = self._run.incidents()
        points = projection.incident_points(incidents)
        for start in range(self._num_incidents, len(points), MAX_METRICS):
            self._registry.log(stored.run_id, points[start : start + MAX_METRICS])
        self._num_incidents = len(points)
        return projection.incident_tags(incidents)

    def _sensors(self, attempt: AttemptDirectory, ring: Ring) -> dict[str, float]:
        if self._telemetry is None or self._telemetry[0] != attempt.number:
            self._telemetry = (attempt.number, TelemetryTail(attempt))
        return self._telemetry[1].until(ring.ended_at)

    def _ship_tags(self, stored: StoredRun, tags: dict[str, str]) -> None:
        tags |= projection.alarm_tags(self._alarms)
        if self._non_finite:
            tags["treering.non_finite"] = projection.list_tag(self._non_finite)
            tags["treering.num_non_finite"] = str(len(self._non_finite))
        news = {key: value for key, value in tags.items() if self._tags.get(key) != value}
        if news:
            self._registry.log(stored.run_id, tags=news)
            self._tags |= news

    def _ship_checkpoints(self, stored: StoredRun, segments: list[PathSegment]) -> tuple[int, int]:
        """A LoggedModel for each checkpoint on the path, and its scores when they are there or have changed."""
        fingerprint = _fingerprint(self._run, segments)
        if self._tags.get("checkpoints") == fingerprint:
            return 0, 0
        checkpoints = [checkpoint for checkpoint in self._run.checkpoints() if _is_cut_from(checkpoint, segments)]
        evaluations = {evaluation.checkpoint: evaluation for evaluation in self._run.evaluations()}
        stored = self._registry.get_run(stored.run_id)
        models = self._registry.models(stored.experiment_id, stored.run_id, projection.CHECKPOINT_TAG)
        made = scored = 0
        for checkpoint in checkpoints:
            model = models.get(checkpoint.digest)
            if model is None:
                made += 1
                model = self._registry.create_model(
                    stored.experiment_id,
                    stored.run_id,
                    projection.checkpoint_name(self._run.resolved, checkpoint),
                    projection.checkpoint_tags(checkpoint),
                    projection.checkpoint_params(checkpoint),
                )
            if model not in stored.output_models:
                self._registry.finish_model(stored.run_id, model, checkpoint.step)
            evaluation = evaluations.get(checkpoint.digest)
            if evaluation is None:
                continue
            tag = f"treering.evaluation.{checkpoint.path.name}"
            digest = digest_json(evaluation.model_dump(mode="json"))
            if stored.tags.get(tag) != digest:
                scored += 1
                path = self._run.evaluations_folder / f"{checkpoint.path.name}.json"
                points = projection.evaluation_points(evaluation, model, round(path.stat().st_mtime * 1000))
                self._registry.log_datasets(stored.run_id, projection.task_inputs(evaluation))
                for start in range(0, len(points), MAX_METRICS):
                    self._registry.log(stored.run_id, points[start : start + MAX_METRICS])
                tags = {tag: digest, "treering.harness": evaluation.harness}
                if not_finite := projection.non_finite(points):
                    tags[f"treering.non_finite.{checkpoint.path.name}"] = projection.list_tag(not_finite)
                self._registry.log(stored.run_id, tags=tags)
        self._tags["checkpoints"] = fingerprint
        return made, scored

    def _ship_status(self, stored: StoredRun, state: RunState, newest: AttemptDirectory, last: Ring | None) -> None:
        status = projection.status_of(state)
        if self._tags.get("status", stored.status) == status:
            return
        end = newest.end
        ended_at = end.ended_at if end else last.ended_at if last else _last_write(newest)
        self._registry.set_status(stored.run_id, status, round(ended_at * 1000))
        self._tags["status"] = status


def _has_header(attempts: list[AttemptDirectory], position: Position) -> bool:
    return any(a.number == position.attempt and a.header_digest == position.digest for a in attempts)


def _is_cut_from(checkpoint: CheckpointDirectory, segments: list[PathSegment]) -> bool:
    """Whether the checkpoint is on the path; a checkpoint that is being replaced does not count."""
    try:
        manifest = checkpoint.manifest
    except EvidenceError:
        return False
    return any(segment.holds(manifest.attempt, manifest.step) for segment in segments)


def _fingerprint(run: RunDirectory, segments: list[PathSegment]) -> str:
    """Changes when a checkpoint or its scores appear or are replaced, or the path turns; reads no content."""
    files = sorted(
        [
            *run.checkpoints_folder.glob(f"step-*/{MANIFEST_FILE}"),
            *run.evaluations_folder.glob("step-*.json"),
        ]
    )
    return repr([[(str(f), f.stat().st_mtime_ns) for f in files], [(s.attempt.number, s.last_step) for s in segments]])


def _last_write(attempt: AttemptDirectory) -> float:
    file = attempt.rings_file
    return file.stat().st_mtime if file.exists() else attempt.header.started_at
