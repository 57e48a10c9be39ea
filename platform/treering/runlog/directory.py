"""Reads runs from disk: the registry, the dashboard and the audit all start here.

    runs/<id>/resolved.json
              lock
              attempts/0001/{header.json, rings.jsonl, incidents.jsonl, end.json, telemetry/rank-N.jsonl, logs/}
              checkpoints/step-00000300/{manifest.json, …}
              universal/step-00000300/{manifest.json, …}    the same checkpoint, converted for another layout
              evaluations/{step-00000300.json, journal.jsonl}
              journal.jsonl

The published checkpoint has the same form, cut to one checkpoint and the rings of its ancestry; the runs that it
started from are carried along below it, in `ancestors/<id>/`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from treering.config.canonical import short
from treering.config.model import Digest
from treering.config.resolve import ANCESTORS, RUN_ID_LENGTH, Resolved, ancestor_folder
from treering.errors import EvidenceError, NotFoundError
from treering.runlog.incidents import Incident, read_incidents
from treering.runlog.journal import JOURNAL, Journal
from treering.runlog.lock import is_held
from treering.runlog.records import AttemptEnd, AttemptHeader, CheckpointManifest, Evaluation
from treering.runlog.ring import Ring, first_ring, last_ring, read_rings

RunState = Literal["empty", "running", "finished", "interrupted", "failed", "broken"]


_CHECKPOINT_NAME = re.compile(r"^step-(\d{8,})$")
_ATTEMPT_NAME = re.compile(r"^\d{4,}$")
_RANK_FILE = re.compile(r"^rank-\d+\.jsonl$")


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step-{step:08d}"


class AttemptDirectory:
    """One process start of a run.

    Args:
        path: `attempts/NNNN`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.name)

    @cached_property
    def _header(self) -> tuple[AttemptHeader, str]:
        return AttemptHeader.read(self.path / "header.json")

    @property
    def header(self) -> AttemptHeader:
        """What the attempt was started with.

        Raises:
            EvidenceError: missing or changed.
        """
        return self._header[0]

    @property
    def header_digest(self) -> str:
        """`prev` of the first ring."""
        return self._header[1]

    @property
    def has_header(self) -> bool:
        """Whether the header is there and whole."""
        try:
            return bool(self._header)
        except EvidenceError:
            return False

    @property
    def started(self) -> bool:
        """Whether the header was written; an attempt that died before has nothing to say."""
        return (self.path / "header.json").exists()

    @property
    def rings_file(self) -> Path:
        """The attempt's `rings.jsonl`."""
        return self.path / "rings.jsonl"

    def rings(self) -> Iterator[Ring]:
        """All durable rings in order, the chain checked.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        return read_rings(self.rings_file, self.header_digest)

    def headless_rings(self) -> Iterator[Ring]:
        """The rings that are there, the chain checked from the first of them on: what came before it is not known.

        Raises:
            EvidenceError: a ring after the first was changed, removed or put in, or the first is none.
        """
        first = first_ring(self.rings_file)
        return iter(()) if first is None else read_rings(self.rings_file, first.prev)

    def first_step(self) -> int:
        """The step of the first ring that is there, 0 where there is none; no chain checked.

        Raises:
            EvidenceError: that ring was changed.
        """
        ring = first_ring(self.rings_file)
        return 0 if ring is None else ring.step

    def last_step(self) -> int:
        """The last step with a durable ring, 0 where there is none; read from the end of the file, no chain checked.

        Raises:
            EvidenceError: the last ring was changed.
        """
        ring = last_ring(self.rings_file)
        return 0 if ring is None else ring.step

    @property
    def end(self) -> AttemptEnd | None:
        """How the attempt ended, None while it runs or if it was killed."""
        path = self.path / "end.json"
        return AttemptEnd.read(path)[0] if path.exists() else None

    def incidents(self) -> list[Incident]:
        """What befell the attempt from outside its numbers.

        Raises:
            EvidenceError: a line is no incident.
        """
        return read_incidents(self.path)

    def telemetry_files(self) -> list[Path]:
        """One JSON Lines file of sensor readings for each rank, in order of ranks."""
        found = [path for path in (self.path / "telemetry").glob("rank-*.jsonl") if _RANK_FILE.match(path.name)]
        return sorted(found, key=lambda path: int(path.stem.removeprefix("rank-")))


class CheckpointDirectory:
    """One complete checkpoint.

    Args:
        path: `checkpoints/step-NNNNNNNN`.
        run: the run that it belongs to; default the one whose folder it lies in.
    """

    def __init__(self, path: Path, run: "RunDirectory | None" = None) -> None:
        self.path = path
        self._run = run

    @cached_property
    def _manifest(self) -> tuple[CheckpointManifest, str]:
        return CheckpointManifest.read(self.path / "manifest.json")

    @property
    def manifest(self) -> CheckpointManifest:
        """What the checkpoint is.

        Raises:
            EvidenceError: missing or changed.
        """
        return self._manifest[0]

    @property
    def has_manifest(self) -> bool:
        """Whether the manifest is there and whole."""
        try:
            return bool(self._manifest)
        except EvidenceError:
            return False

    @property
    def digest(self) -> str:
        """The manifest's digest: the checkpoint's identity."""
        return self._manifest[1]

    @property
    def step(self) -> int:
        """The step it was cut after, from its folder's name."""
        return int(self.path.name.removeprefix("step-"))

    @property
    def run(self) -> "RunDirectory":
        """The run that the checkpoint belongs to."""
        return self._run or RunDirectory(self.path.parent.parent)

    @property
    def conversion(self) -> Path:
        """Folder of the checkpoint in universal form, whether it was converted or not."""
        return self.run.path / "universal" / self.path.name


@dataclass(frozen=True, slots=True)
class PathSegment:
    """A stretch of rings of one attempt on the way from a run's root to a checkpoint.

    Attributes:
        run: the run that the attempt belongs to.
        attempt: whose rings these are.
        last_step: last step of the stretch that counts; later rings of the attempt lie off the path.
    """

    run: "RunDirectory"
    attempt: AttemptDirectory
    last_step: int | None

    def rings(self) -> Iterator[Ring]:
        """The rings of the stretch.

        Raises:
            EvidenceError: the chain is broken, or it ends before `last_step`.
        """
        step = 0
        for ring in self.attempt.rings():
            if self.last_step is not None and ring.step > self.last_step:
                break
            step = ring.step
            yield ring
            if step == self.last_step:
                return  # what follows lies off the path, whole or not
        if self.last_step is not None and step != self.last_step:
            raise EvidenceError(
                f"{self.attempt.rings_file}: the rings end at step {step}, the path needs them to step {self.last_step}"
            )


class RunDirectory:
    """One run on disk.

    Args:
        path: `runs/<id>`, or a published checkpoint's folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def resolved(self) -> Resolved:
        """The run's config.

        Raises:
            EvidenceError: missing or changed.
        """
        return Resolved.read(self.path / "resolved.json")

    @property
    def id(self) -> str:
        """The run's id in short."""
        return self.resolved.run_id

    def attempts(self, *, headless: bool = False) -> list[AttemptDirectory]:
        """All attempts that wrote a header, oldest first; with `headless` those as well that lost it and have rings."""
        folder = self.path / "attempts"
        found = [AttemptDirectory(path) for path in folder.glob("*") if _ATTEMPT_NAME.match(path.name)]
        there = [each for each in found if each.started or (headless and each.rings_file.exists())]
        return sorted(there, key=lambda attempt: attempt.number)

    def attempt(self, number: int) -> AttemptDirectory:
        """One attempt by number.

        Raises:
            EvidenceError: it has left no header.
        """
        attempt = AttemptDirectory(self.path / "attempts" / f"{number:04d}")
        if not attempt.started:
            raise EvidenceError(f"{attempt.path}: attempt {number} is named by a record but has no header")
        return attempt

    def incidents(self) -> list[tuple[int, Incident]]:
        """What befell the attempts, in order, each with its attempt's number.

        Raises:
            EvidenceError: a line is no incident.
        """
        return [(attempt.number, incident) for attempt in self.attempts() for incident in attempt.incidents()]

    def checkpoints(self) -> list[CheckpointDirectory]:
        """All complete checkpoints, oldest step first."""
        folder = self.path / "checkpoints"
        found = [CheckpointDirectory(path) for path in folder.glob("step-*") if _CHECKPOINT_NAME.match(path.name)]
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def superseded(self) -> list[CheckpointDirectory]:
        """Complete checkpoints that a later attempt wrote again, in the order of the attempts that wrote them first."""
        found = [path for path in self.path.glob("superseded-*/step-*") if _CHECKPOINT_NAME.match(path.name)]
        return [CheckpointDirectory(path) for path in sorted(found)]

    def evaluations(self) -> list[Evaluation]:
        """Scores of the run's checkpoints, by step."""
        return [Evaluation.read(path)[0] for path in sorted(self.evaluations_folder.glob("step-*.json"))]

    @property
    def journal(self) -> Journal:
        """What happened to the run besides its steps; runs of earlier versions have none.

        Raises:
            EvidenceError: neither config nor header says which run it is.
        """
        return Journal(self.path / JOURNAL, self._recipe)

    @property
    def evaluation_journal(self) -> Journal:
        """One entry for each evaluation; runs of earlier versions have none.

        Raises:
            EvidenceError: neither config nor header says which run it is.
        """
        return Journal(self.evaluations_folder / JOURNAL, self._recipe)

    @property
    def evaluations_folder(self) -> Path:
        """The folder of the evaluations: inside the run's; of a published run beside it, see `carry_evaluations`."""
        beside = self.path.with_name(f"{self.path.name}.evaluations")
        inside = self.path / "evaluations"
        if inside.exists():
            return inside
        try:
            return beside if beside.is_dir() or self.is_cut else inside
        except EvidenceError:  # nothing says which run it is
            return inside

    @property
    def is_cut(self) -> bool:
        """Whether this is a copy of a run, cut to one checkpoint: a published one, or one that another run carries."""
        folder = self.path.resolve()
        return folder.parent.name == ANCESTORS or folder.name != short(self._recipe, RUN_ID_LENGTH)

    @property
    def _recipe(self) -> Digest:
        try:
            return self.resolved.recipe.digest
        except EvidenceError:
            for attempt in self.attempts():
                if attempt.has_header:
                    return attempt.header.run
            raise

    @property
    def lock(self) -> Path:
        """The file whose lock the training processes hold."""
        return self.path / "lock"

    def state(self) -> RunState:
        """What is the matter with the run; `broken` is a run whose processes died without a word."""
        if is_held(self.lock):
            return "running"
        attempts = self.attempts()
        if not attempts:
            return "empty"
        end = attempts[-1].end
        return end.status if end else "broken"

    def ancestor(self, digest: Digest) -> "RunDirectory":
        """The run that this one starts from: carried along below a published run, else beside it in the same folder."""
        return RunDirectory(ancestor_folder(self.path, digest))

    def path_to(self, checkpoint: CheckpointDirectory | None = None, *, own: bool = False) -> list[PathSegment]:
        """The attempts that led to a checkpoint (or to the newest ring), from the root on.

        Args:
            checkpoint: its end; default the newest ring.
            own: only the part in this run, whatever the runs are that it starts from.

        Raises:
            EvidenceError: a record on the way is missing or names one that differs.
        """
        if checkpoint is not None:
            manifest = checkpoint.manifest
            return path_of(PathSegment(self, self.attempt(manifest.attempt), manifest.step), own=own)
        attempts = self.attempts()
        return path_of(PathSegment(self, attempts[-1], None), own=own) if attempts else []

    def path_rings(self, checkpoint: CheckpointDirectory | None = None) -> Iterator[Ring]:
        """The rings on the way to a checkpoint (or to the newest ring), the chain checked across attempts.

        Raises:
            EvidenceError: a ring or a seam does not hold.
        """
        last: Ring | None = None
        for ring in rings_along(self.path_to(checkpoint)):
            last = ring
            yield ring
        if checkpoint is not None and (last is None or last.digest != checkpoint.manifest.ring):
            raise EvidenceError(
                f"{checkpoint.path}: was cut at ring {checkpoint.manifest.ring}, but the path ends at "
                f"{last.digest if last else 'nothing'}"
            )


def rings_along(segments: Sequence[PathSegment], *, whole: bool = True) -> Iterator[Ring]:
    """The rings of a path, the chain checked across attempts.

    Args:
        segments: of the path.
        whole: whether the first stretch begins at the root; else nothing is said of what came before it.

    Raises:
        EvidenceError: a ring or a seam does not hold.
    """
    last: Ring | None = None
    for segment in segments:
        parent = segment.attempt.header.parent
        if parent is not None and (whole or last is not None) and (last is None or last.digest != parent.ring):
            raise EvidenceError(
                f"{segment.attempt.path}: goes on from ring {parent.ring} of step {parent.step}, but "
                f"{last.digest if last else 'nothing'} stands there"
            )
        for ring in segment.rings():
            if last is not None and ring.step != last.step + 1:
                raise EvidenceError(f"{segment.attempt.rings_file}: step {ring.step} follows step {last.step}")
            last = ring
            yield ring


def path_of(last: PathSegment, *, own: bool = False) -> list[PathSegment]:
    """The attempts that led to a stretch of one, from the root on, with it.

    Args:
        last: the stretch.
        own: stop where the path leads into another run.

    Raises:
        EvidenceError: a record on the way is missing or names one that differs.
    """
    segments = [last]
    seen = {segments[0].attempt.path}
    while (parent := segments[0].attempt.header.parent) is not None:
        run = segments[0].run
        if parent.run != run.resolved.recipe.digest:
            if own:
                break
            run = run.ancestor(parent.run)
        try:
            attempt = run.attempt(parent.attempt)
        except EvidenceError as error:
            raise EvidenceError(f"{segments[0].attempt.path / 'header.json'}: {error}") from None
        segments.insert(0, PathSegment(run, attempt, parent.step))
        if segments[0].attempt.path in seen:
            raise EvidenceError(
                f"{segments[0].attempt.path / 'header.json'}: the attempt stands twice on its own path: a header names "
                "a parent that came after it, so one of the headers was rewritten"
            )
        seen.add(segments[0].attempt.path)
    return segments


def find_runs(folder: Path) -> list[RunDirectory]:
    """All runs below a folder, newest activity last."""
    found = [RunDirectory(path.parent) for path in folder.glob("*/resolved.json")]
    return sorted(found, key=_last_activity)


def runs_without_config(folder: Path) -> list[RunDirectory]:
    """The folders of runs that have lost their `resolved.json` and still hold attempts or checkpoints."""
    left = {path.parent for name in ("attempts", "checkpoints") for path in folder.glob(f"*/{name}")}
    return [RunDirectory(path) for path in sorted(left) if not (path / "resolved.json").exists()]


def _last_activity(run: RunDirectory) -> float:
    files = (*(attempt.rings_file for attempt in run.attempts()), run.path / "resolved.json")
    return max(_modified_at(file) for file in files)


def _modified_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # not there yet, or its run is being removed
        return 0.0


def find_run(folder: Path, prefix: str) -> RunDirectory:
    """The one run whose id starts with `prefix`; a path to a run's folder is taken as well.

    Raises:
        NotFoundError: none or several fit.
    """
    if (Path(prefix) / "resolved.json").exists():
        return RunDirectory(Path(prefix))
    wanted = short(prefix, RUN_ID_LENGTH)
    found = [run for run in find_runs(folder) if run.path.name.startswith(wanted)]
    found = found or [run for run in runs_without_config(folder) if run.path.name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(_no_run(folder, prefix, wanted))
    names = ", ".join(run.path.name for run in found)
    raise NotFoundError(f"{folder}: {prefix!r} fits several runs ({names}); give more characters")


def _no_run(folder: Path, prefix: str, wanted: str) -> str:
    if not folder.is_dir():
        return (
            f"{folder.parent.absolute()}: no project with runs, since {folder.name}/ is missing, and {prefix!r} is no "
            "folder here; change to the folder of a project, or give the path of a run"
        )
    if re.fullmatch("[0-9a-f]+", wanted) is None:
        return f"{prefix!r} is no folder here, and no run's id, which is of 0-9 and a-f; `treering runs` lists the runs"
    return f"{folder}: no run starts with {prefix!r}; `treering runs` lists them"


def named_checkpoint(runs: Path, name: str) -> CheckpointDirectory:
    """A checkpoint by its folder, or the newest one of a run or of a published checkpoint's folder.

    Args:
        runs: folder of all runs.
        name: a folder, or any unique prefix of a run's id.

    Raises:
        NotFoundError: there is none, or several runs fit.
    """
    if "/" in name or Path(name).exists():
        return find_checkpoint(Path(name))
    return find_checkpoint(find_run(runs, name).path)


def find_checkpoint(path: Path) -> CheckpointDirectory:
    """A checkpoint by its folder, or the newest one of a run's or a published checkpoint's folder.

    Raises:
        NotFoundError: there is none.
    """
    if len(path.parts) < 3 or ".." in path.parts:  # the run is found by going up, which needs something to go up
        path = path.resolve()
    if (path / "manifest.json").exists():
        if not _CHECKPOINT_NAME.match(path.name):
            raise NotFoundError(
                f"{path}: no checkpoint's folder by its name, expected one like runs/<id>/checkpoints/"
                f"{checkpoint_name(300)}: a checkpoint is audited where its run log lies, or as published"
            )
        return CheckpointDirectory(path)
    if _CHECKPOINT_NAME.match(path.name) and path.is_dir() and (path.parent.parent / "resolved.json").exists():
        return CheckpointDirectory(path)  # without its manifest: whoever reads it is told so
    checkpoints = RunDirectory(path).checkpoints()
    if (
        not checkpoints
        and _CHECKPOINT_NAME.match(path.name)
        and (others := RunDirectory(path.parent.parent).checkpoints())
    ):
        raise NotFoundError(
            f"{path}: no such checkpoint; run {path.parent.parent.name} has those of the steps "
            f"{', '.join(str(checkpoint.step) for checkpoint in others)}; `treering batch RUN STEP` shows any step"
        )
    if not checkpoints:
        raise NotFoundError(
            f"{path}: no checkpoint there; expected a folder like runs/<id>/checkpoints/{checkpoint_name(300)}; "
            "`treering runs` lists runs and their checkpoints"
        )
    return checkpoints[-1]
