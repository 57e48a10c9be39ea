"""Reads runs from disk: the registry, the dashboard and the audit all start here.

    runs/<id>/resolved.json
              lock
              attempts/0001/{header.json, rings.jsonl, incidents.jsonl, end.json, telemetry/rank-N.jsonl, logs/}
              checkpoints/step-00000300/{manifest.json, …}
              universal/step-00000300/{manifest.json, …}    the same checkpoint, converted for another layout
              evaluations/{step-00000300.json, continuations/step-00000300.json, journal.jsonl}
              journal.jsonl

The published checkpoint has the same form, cut to one checkpoint and the rings of its ancestry; the runs that it
started from are carried along below it, in `ancestors/<id>/`.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from treering.config.canonical import short
from treering.config.model import Digest
from treering.config.resolved import ANCESTORS, CONFIG_FILE, RUN_ID_LENGTH, Resolved, ancestor_folder
from treering.errors import EvidenceError
from treering.runlog.ancestry import PathSegment, path_of, rings_along
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.folders import RunFolder
from treering.runlog.incidents import Incident
from treering.runlog.journal import JOURNAL, Journal
from treering.runlog.records import CheckpointManifest, Evaluation
from treering.runlog.ring import Ring

MANIFEST_FILE = "manifest.json"
HOOKS_FILE = "hooks.json"
UNIVERSAL = "universal"
EVALUATIONS = "evaluations"

_CHECKPOINT_NAME = re.compile(r"^step-(\d{8,})$")


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step-{step:08d}"


def is_checkpoint_name(name: str) -> bool:
    """Whether a folder of that name is a complete checkpoint."""
    return _CHECKPOINT_NAME.match(name) is not None


def evaluations_beside(published: Path) -> Path:
    """The folder of a published run's evaluations: beside the folder of the run, which only stage `train` writes."""
    return published.with_name(f"{published.name}.{EVALUATIONS}")


class CheckpointDirectory:
    """One complete checkpoint.

    Args:
        path: `checkpoints/step-NNNNNNNN`.
        run: the run that it belongs to; default the run whose folder contains it.
    """

    def __init__(self, path: Path, run: "RunDirectory | None" = None) -> None:
        self.path = path
        self._run = run

    @property
    def manifest_file(self) -> Path:
        """The checkpoint's `manifest.json`."""
        return self.path / MANIFEST_FILE

    @property
    def hooks_file(self) -> Path:
        """The state of the training's hooks; exists where a hook has state."""
        return self.path / HOOKS_FILE

    @cached_property
    def _manifest(self) -> tuple[CheckpointManifest, str]:
        return CheckpointManifest.read(self.manifest_file)

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
        return self.run.conversions_folder / self.path.name

    @property
    def conversion_file(self) -> Path:
        """The manifest of that form."""
        return self.conversion / MANIFEST_FILE


class RunDirectory(RunFolder):
    """One run on disk.

    Args:
        path: `runs/<id>`, or a published checkpoint's folder.
    """

    @property
    def config_file(self) -> Path:
        """The run's `resolved.json`."""
        return self.path / CONFIG_FILE

    @property
    def journal_file(self) -> Path:
        """The run's `journal.jsonl`."""
        return self.path / JOURNAL

    @property
    def evaluation_journal_file(self) -> Path:
        """The `journal.jsonl` of the evaluations."""
        return self.evaluations_folder / JOURNAL

    def checkpoint_folder(self, step: int) -> Path:
        """The folder of the checkpoint after `step` steps, whether the checkpoint exists or not."""
        return self.checkpoints_folder / checkpoint_name(step)

    @property
    def conversions_folder(self) -> Path:
        """The folder of the checkpoints in universal form."""
        return self.path / UNIVERSAL

    def conversion_folder(self, step: int) -> Path:
        """The folder of a step's checkpoint in universal form, whether the checkpoint was converted or not."""
        return self.conversions_folder / checkpoint_name(step)

    @cached_property
    def resolved(self) -> Resolved:
        """The run's config.

        Raises:
            EvidenceError: missing or changed.
        """
        return Resolved.read(self.config_file)

    @property
    def id(self) -> str:
        """The run's id in short."""
        return self.resolved.run_id

    def attempts(self, *, headless: bool = False) -> list[AttemptDirectory]:
        """All attempts that wrote a header, oldest first; with `headless` those as well that lost it and have rings."""
        found = [AttemptDirectory(path) for path in self.attempt_folders()]
        return [each for each in found if each.started or (headless and each.rings_file.exists())]

    def attempt(self, number: int) -> AttemptDirectory:
        """One attempt by number.

        Raises:
            EvidenceError: it has left no header.
        """
        attempt = AttemptDirectory(self.attempt_folder(number))
        if not attempt.started:
            raise EvidenceError(
                f"{attempt.path}: attempt {number} is named by a record but has no header", file=attempt.header_file
            )
        return attempt

    def incidents(self) -> list[tuple[int, Incident]]:
        """The incidents of all attempts in order, each with its attempt's number.

        Raises:
            EvidenceError: a line is not an incident.
        """
        return [(attempt.number, incident) for attempt in self.attempts() for incident in attempt.incidents()]

    def checkpoints(self) -> list[CheckpointDirectory]:
        """All complete checkpoints, oldest step first."""
        paths = self.checkpoints_folder.glob("step-*")
        found = [CheckpointDirectory(path) for path in paths if is_checkpoint_name(path.name)]
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def superseded(self) -> list[CheckpointDirectory]:
        """Complete checkpoints that a later attempt wrote again, in the order of the attempts that wrote them first."""
        found = [path for path in self.path.glob("superseded-*/step-*") if is_checkpoint_name(path.name)]
        return [CheckpointDirectory(path) for path in sorted(found)]

    def evaluations(self) -> list[Evaluation]:
        """Scores of the run's checkpoints, by step."""
        return [Evaluation.read(path)[0] for path in self.evaluation_files()]

    def evaluation_files(self) -> list[Path]:
        """The records of the evaluations, by step."""
        return sorted(self.evaluations_folder.glob("step-*.json"))

    def analysis_files(self, analysis: str) -> list[Path]:
        """The records of one kind beside the evaluations, such as `continuations`, by step."""
        return sorted((self.evaluations_folder / analysis).glob("step-*.json"))

    @property
    def journal(self) -> Journal:
        """What happened to the run besides its steps; runs of earlier versions have none.

        Raises:
            EvidenceError: neither config nor header says which run it is.
        """
        return Journal.of(self.path, self._recipe)

    @property
    def evaluation_journal(self) -> Journal:
        """One entry for each evaluation; runs of earlier versions have none.

        Raises:
            EvidenceError: neither config nor header says which run it is.
        """
        return Journal.of(self.evaluations_folder, self._recipe)

    @property
    def evaluations_folder(self) -> Path:
        """The folder of the evaluations: inside the run's; of a published run beside it, see `carry_evaluations`."""
        beside = evaluations_beside(self.path)
        inside = self.path / EVALUATIONS
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
                f"{last.digest if last else 'nothing'}",
                file=checkpoint.manifest_file,
                found=checkpoint.manifest.ring,
                expected=last.digest if last else None,
            )
