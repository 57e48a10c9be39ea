"""Brings one run's MLflow run up to date with its run log.

**Branches.** One top-level MLflow run shows one Treering run, only the rings of its current path. MLflow cannot take
a metric back, so when an attempt goes on from before what was shipped (a crash after the last checkpoint, a rollback,
changed code that starts over), the path is shipped into a fresh MLflow run, and the old one is kept, nested below it,
as the abandoned branch. If nothing beyond the point of return was shipped, the same MLflow run goes on.

**The position of shipping** is a tag of the MLflow run, written in the same call as its metrics, after them.
A shipper that dies in between sends some points again; MLflow stores equal points once. Everything else that a shipper
must know is in MLflow or in the columns of the rings, so a restart costs the same however long the run is.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from treering.config.canonical import parse_json
from treering.errors import TreeringError
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyAttempt
from treering.runlog.folders import END_FILE, HEADER_FILE, RunFolder
from treering.runlog.incidents import INCIDENTS_FILE
from treering.runlog.journal import Promoted
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.records import RunState
from treering.runlog.ring import RINGS_FILE
from treering.ship import decimation, projection
from treering.ship.batches import batches
from treering.ship.own_run import OwnRun
from treering.ship.promotions import promotions_of
from treering.ship.recorded_run import RecordedRun
from treering.ship.sensors import SensorShipper
from treering.ship.source import AnySegment, Model, Source
from treering.ship.tail import Position
from treering.ship.target import ShipReport, one_shipper
from treering.ship.windows import Stretch, digest_at, holds, is_within_bucket, num_rings, windows
from treering.store.memory import Writable
from treering.store.values import MAX_METRICS, Alias, Point, StoredRun

TARGET: Final = "mlflow"
"""Name of the target."""


def source_of(run: RunFolder) -> Source:
    """What MLflow is to show of a run."""
    if isinstance(run, RecordedRunDirectory):
        return RecordedRun(run)
    return OwnRun(run if isinstance(run, RunDirectory) else RunDirectory(run.path))


class MlflowShipper:
    """Ships one run, again and again; everything it remembers between two passes can be found again.

    Args:
        run: the run.
        registry: where to.
        until: ships the rings up to this position alone, and nothing else; None: everything.
    """

    def __init__(self, run: RunFolder, registry: Writable, until: Position | None = None) -> None:
        self._folder = run
        self._registry = registry
        self._until = until
        self._forget()

    def _forget(self) -> None:
        self._source = source_of(self._folder)
        self._stored: StoredRun | None = None
        self._shipped = Position(0, 0, "")
        self._sensors: SensorShipper | None = None
        self._tags: dict[str, str] = {}
        self._params_of: set[int] = set()
        self._models_of = ""
        self._promotions: dict[str, Promoted] = {}
        self._status = ""
        self._done: tuple[object, ...] = ()

    def ship(self) -> ShipReport:
        """One pass: everything that is durable now.

        Raises:
            StoreError: the registry does not answer; the next pass goes on from what it holds.
            EvidenceError: the run log is damaged; nothing after the damage was shipped.
            TreeringError: the run's config cannot be read.
        """
        with one_shipper(self._folder, TARGET):
            try:
                return self._ship()
            except TreeringError:
                self._forget()
                raise

    def _ship(self) -> ShipReport:
        # The state first: a run that ends during this pass is seen as running, and the next pass sees all of its rings.
        state, state_tags = self._source.condition()
        seen = (state, tuple(state_tags.items()), *_signature(self._source))
        if self._stored is not None and seen == self._done:
            return self._report(state, {})
        segments, attempts = self._source.segments(), self._source.attempts()
        if not segments:
            return ShipReport(TARGET, self._source.id, state)
        stretches = _stretches(segments, ended=state != "running")
        stored, note = self._current_run(segments, stretches)
        if self._until is not None:
            self._ship_rings(stored, attempts, _up_to(stretches, self._until), None)
            return self._report(state, {})
        if projection.WAITS_TAG in self._tags and attempts[-1].end is None:
            stretches[-1] = replace(stretches[-1], ended=False)
        for attempt in attempts:
            self._ship_params(stored, attempt)
        horizon = stretches[-1].columns.head().last_step
        sent = {"ring": self._ship_rings(stored, attempts, stretches, horizon)}
        if self._sensors is not None:
            self._sensors.ship(attempts, stretches, self._shipped)
        self._ship_events(stored)
        tags = self._source.changing_tags(attempts, segments) | state_tags
        if stretches[-1].before + num_rings(stretches[-1].columns, None) > decimation.WHOLE:
            tags[projection.DECIMATED_TAG] = projection.decimated(self._source.id)
        known = projection.NOTE_TAG in self._tags
        news = self._ship_tags(stored, tags)
        if known and not news.isdisjoint(projection.PEOPLE_TAGS):
            note = ", ".join(text for text in (note, "notes and tags of people") if text)
        sent |= self._ship_models(stored, segments)
        self._ship_promotions(stored)
        self._ship_status(stored, state, attempts[-1], stretches[-1])
        self._done = seen
        return self._report(state, sent, note)

    def _report(self, state: str, sent: dict[str, int], note: str = "") -> ShipReport:
        whole = {"ring": 0, "checkpoint": 0, "evaluation": 0} | sent
        return ShipReport(TARGET, self._source.id, state, self._stored.run_id if self._stored else None, whole, note)

    def _current_run(self, segments: Sequence[AnySegment], stretches: list[Stretch]) -> tuple[StoredRun, str]:
        """The MLflow run of the current path, and what was put aside for it."""
        if self._stored is not None and holds(stretches, self._shipped) and not _goes_on(stretches, self._shipped):
            return self._stored, ""
        self._forget()
        source = self._source
        experiment = self._registry.experiment(source.experiment)
        stored, note, waits = self._found(experiment, segments, stretches)
        shipped = Position.parse(stored.tags.get(projection.POSITION_TAG, "")) if stored else None
        if shipped and not holds(stretches, shipped):
            shipped = None
        if stored is None:
            start = round(segments[0].attempt.header.started_at * 1000)
            stored = self._registry.create_run(experiment, source.name, start, source.tags() | waits)
        if shipped is None:
            shipped = Position(stretches[0].attempt, 0, stretches[0].begin)
            # A param can be written once; names and overrides of a run that starts again may differ from the first.
            missing = {key: value for key, value in source.params().items() if key not in stored.params}
            self._registry.log_params(stored.run_id, missing)
            self._registry.log_datasets(stored.run_id, source.datasets())
            self._registry.log(stored.run_id, tags={projection.POSITION_TAG: str(shipped)})
        for old in (*self._runs(experiment, "abandoned"), *self._runs(experiment, "replaced")):
            if old.tags.get(projection.PARENT_TAG) != stored.run_id:
                self._registry.log(old.run_id, tags={projection.PARENT_TAG: stored.run_id})
        self._stored, self._shipped, self._tags, self._status = stored, shipped, dict(stored.tags), stored.status
        self._sensors = SensorShipper(self._registry, stored)
        return stored, note

    def _found(
        self, experiment: str, segments: Sequence[AnySegment], stretches: Sequence[Stretch]
    ) -> tuple[StoredRun | None, str, dict[str, str]]:
        """The MLflow run that can go on; where there is none, what was put aside, and tags of the one to make."""
        found = self._runs(experiment, "current")
        for double in found[1:]:
            self.put_aside(double, "replaced", "a second one")
        stored = found[0] if found else None
        shipped = Position.parse(stored.tags.get(projection.POSITION_TAG, "")) if stored else None
        if stored is None or shipped is None:
            return stored, "", {}
        if not holds(stretches, shipped):
            # Without a step, an attempt that died before its first ring left nothing to put aside.
            if shipped.step == 0 and any(each.header_digest == shipped.digest for each in self._source.attempts()):
                return stored, "", {}
            parent = segments[-1].attempt.header.parent
            self.put_aside(stored, "abandoned", f"after step {parent.step}" if parent else "from the start")
            return None, "an abandoned branch moved aside", {}
        if _goes_on(stretches, shipped):
            self.put_aside(stored, "replaced", "the attempt went on")
            waits = {projection.WAITS_TAG: "for the end of an attempt: its lock cannot be seen here"}
            return None, "an attempt that had seemed to be dead went on: sent again", waits
        return stored, "", {}

    def _runs(self, experiment: str, branch: str) -> list[StoredRun]:
        return self._registry.find_runs(
            experiment, {projection.RUN_TAG: self._source.identity, projection.BRANCH_TAG: branch}
        )

    def put_aside(self, old: StoredRun, branch: str, why: str) -> None:
        """Marks an MLflow run as one that does not show the current path, and deletes its LoggedModels.

        The tag comes last: after an interruption the next pass does all of it again.

        Args:
            old: the run.
            branch: value of its tag: `abandoned`, or `replaced`.
            why: in words.

        Raises:
            StoreError: MLflow does not answer.
        """
        for model in self._registry.models(old.experiment_id, old.run_id, projection.CHECKPOINT_TAG).values():
            self._registry.delete_model(model)
        self._registry.rename(old.run_id, f"{self._source.name} ({branch} {why})")
        if old.status == "RUNNING":
            self._registry.set_status(old.run_id, "KILLED", None)
        self._registry.log(old.run_id, tags={projection.BRANCH_TAG: branch, f"treering.{branch}": why})

    def _ship_params(self, stored: StoredRun, attempt: AnyAttempt) -> None:
        if attempt.number in self._params_of:
            return
        params = self._source.attempt_params(attempt)
        missing = {key: value for key, value in params.items() if key not in stored.params}
        self._registry.log_params(stored.run_id, missing)
        self._params_of.add(attempt.number)

    def _ship_rings(
        self, stored: StoredRun, attempts: Sequence[AnyAttempt], stretches: Sequence[Stretch], horizon: int | None
    ) -> int:
        """Sends the rings beyond the shipped position; returns how many."""
        by_number = {attempt.number: attempt for attempt in attempts}
        alarms = self._source.alarms() if any(stretch.columns.head().rings for stretch in stretches) else ()
        non_finite = list(parse_json(self._tags.get(projection.NON_FINITE_TAG, "[]")))
        num_non_finite = int(self._tags.get(projection.NUM_NON_FINITE_TAG, 0))
        count = 0
        for stretch in stretches:
            if stretch.attempt < self._shipped.attempt:
                continue
            after = self._shipped.step if stretch.attempt == self._shipped.attempt else 0
            attempt = by_number[stretch.attempt]
            upto = horizon if stretch is stretches[-1] else None
            for window in windows(stretch, after, upto, partial(self._source.derived, attempt)):
                for batch in batches(window, alarms):
                    tags = {}
                    if batch.non_finite:
                        non_finite += batch.non_finite
                        num_non_finite += len(batch.non_finite)
                        tags[projection.NON_FINITE_TAG] = projection.list_tag(non_finite)
                        tags[projection.NUM_NON_FINITE_TAG] = str(num_non_finite)
                    position = Position(stretch.attempt, batch.last_step, digest_at(stretch, batch.last_step))
                    self._send(stored, batch.points, {projection.POSITION_TAG: str(position), **tags})
                    self._shipped = position
                    count += batch.rings
        self._ship_tags(stored, projection.alarm_tags(alarms))
        return count

    def _send(self, stored: StoredRun, points: Sequence[Point], tags: dict[str, str]) -> None:
        """Sends points in as many calls as they need, with the tags in the last one."""
        starts = range(0, len(points), MAX_METRICS) or (0,)
        for start in starts:
            own = tags if start == starts[-1] else {}
            self._registry.log(stored.run_id, points[start : start + MAX_METRICS], own)
        self._tags |= tags

    def _ship_events(self, stored: StoredRun) -> None:
        """Sends the points of what is not in rings, and the tags that list all of it."""
        points, tags = self._source.events()
        start = int(self._tags.get(projection.EVENTS_TAG, 0))
        if points[start:]:
            self._send(stored, points[start:], {**tags, projection.EVENTS_TAG: str(len(points))})

    def _ship_tags(self, stored: StoredRun, tags: dict[str, str]) -> set[str]:
        news = {key: value for key, value in tags.items() if self._tags.get(key) != value}
        if news:
            self._registry.log(stored.run_id, tags=news)
            self._tags |= news
        return set(news)

    def _ship_models(self, stored: StoredRun, segments: Sequence[AnySegment]) -> dict[str, int]:
        """A LoggedModel for each checkpoint on the path, and its scores when they are there or have changed."""
        fingerprint = repr([_states(self._source.files()), [(s.attempt.number, s.last_step) for s in segments]])
        if self._models_of == fingerprint:
            return {}
        stored = self._registry.get_run(stored.run_id)
        models = self._registry.models(stored.experiment_id, stored.run_id, projection.CHECKPOINT_TAG)
        made = scored = 0
        for model in self._source.models(segments):
            model_id = models.get(model.digest)
            if model_id is None:
                made += 1
                model_id = self._registry.create_model(
                    stored.experiment_id, stored.run_id, model.name, model.tags, model.params
                )
            if model_id not in stored.output_models:
                self._registry.finish_model(stored.run_id, model_id, model.step)
            scored += self._ship_scores(stored, model, model_id)
        self._models_of = fingerprint
        return {"checkpoint": made, "evaluation": scored}

    def _ship_promotions(self, stored: StoredRun) -> None:
        """Gives the run's promoted checkpoints their aliases, where no other run of the experiment got them later."""
        promotions = promotions_of(self._source.run)
        if not promotions or promotions == self._promotions:
            return
        models = self._registry.models(stored.experiment_id, stored.run_id, projection.CHECKPOINT_TAG)
        for alias, entry in promotions.items():
            if entry.checkpoint in models:
                identity = projection.CHECKPOINT_TAG, entry.checkpoint
                given = Alias(self._source.experiment, alias, identity, entry.at)
                self._registry.promote(stored.run_id, models[entry.checkpoint], given)
        self._promotions = promotions

    def _ship_scores(self, stored: StoredRun, model: Model, model_id: str) -> int:
        tag = f"treering.evaluation.{model.key}"
        if model.scores is None or stored.tags.get(tag) == model.scores.digest:
            return 0
        self._registry.log_datasets(stored.run_id, model.scores.datasets)
        points = [replace(point, model_id=model_id) for point in model.scores.points]
        tags = {tag: model.scores.digest, "treering.harness": model.scores.harness}
        if bad := projection.non_finite((point.step, point.key, point.value) for point in points):
            tags[f"{projection.NON_FINITE_TAG}.{model.key}"] = projection.list_tag(bad)
        self._send(stored, points, tags)
        return 1

    def _ship_status(self, stored: StoredRun, state: RunState, newest: AnyAttempt, stretch: Stretch) -> None:
        status = projection.status_of(state)
        if self._status == status:
            return
        end = newest.end
        rings = [] if end else stretch.columns.newest(1)
        ended_at = end.ended_at if end else rings[-1].ended_at if rings else newest.header.started_at
        self._registry.set_status(stored.run_id, status, round(ended_at * 1000))
        self._status = status


def _stretches(segments: Sequence[AnySegment], *, ended: bool) -> list[Stretch]:
    found: list[Stretch] = []
    before = 0
    for segment in segments:
        columns = AttemptColumns(segment.attempt)
        last = segment is segments[-1]
        begin = segment.attempt.header_digest
        found.append(Stretch(segment.attempt.number, begin, columns, segment.last_step, before, not last or ended))
        if not last:
            before += num_rings(columns, segment.last_step)
    return found


def _up_to(stretches: Sequence[Stretch], position: Position) -> list[Stretch]:
    """The stretches up to a position, as if they had ended there; none where the path begins after it."""
    found = [each for each in stretches if each.attempt <= position.attempt]
    return [*found[:-1], *(replace(last, last_step=position.step, ended=True) for last in found[-1:])]


def _goes_on(stretches: Sequence[Stretch], position: Position) -> bool:
    """Whether rings follow inside a bucket that was sent when its attempt seemed to have ended."""
    stretch = next((each for each in stretches if each.attempt == position.attempt), None)
    if stretch is None or position.step == 0:
        return False
    end = stretch.columns.head().last_step if stretch.last_step is None else stretch.last_step
    return position.step < end and is_within_bucket(stretch, position.step)


def _signature(source: Source) -> tuple[object, ...]:
    """Changes when anything in the run's folder does that is shipped; reads no content."""
    files = [
        path
        for folder in source.run.attempt_folders()
        for path in (folder / HEADER_FILE, folder / RINGS_FILE, folder / INCIDENTS_FILE, folder / END_FILE)
    ]
    return (_states([*files, *source.files()]),)


def _states(files: Sequence[Any]) -> tuple[object, ...]:
    found = []
    for file in files:
        try:
            state = file.stat()
        except OSError:
            continue
        found.append((str(file), state.st_size, state.st_mtime_ns))
    return tuple(found)
