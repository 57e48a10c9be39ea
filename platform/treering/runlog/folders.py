"""What the folders of all runs have, whichever trainer wrote them: a lock, and attempts with a header and an end."""

import re
from functools import cached_property
from pathlib import Path
from typing import Final, Generic, TypeVar

from treering.errors import EvidenceError
from treering.runlog.lock import is_held
from treering.runlog.mirror import MIRROR_FILE, Mirror
from treering.runlog.records import AttemptEnd, Record, RunState
from treering.runlog.ring import RINGS_FILE
from treering.runlog.ring_file import stored
from treering.runlog.telemetry.reading import TelemetryFolder

HEADER_FILE: Final = "header.json"
END_FILE: Final = "end.json"
ATTEMPTS: Final = "attempts"
TELEMETRY: Final = "telemetry"
CHECKPOINTS: Final = "checkpoints"

_ATTEMPT_NAME = re.compile(r"^\d{4,}$")

H = TypeVar("H", bound=Record)


class AttemptFolder(Generic[H]):
    """One process start of a run.

    Args:
        path: `attempts/NNNN`.
    """

    header_kind: type[H]
    """What `header.json` holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.name)

    @property
    def header_file(self) -> Path:
        """The attempt's `header.json`."""
        return self.path / HEADER_FILE

    @property
    def rings_file(self) -> Path:
        """The attempt's `rings.jsonl`, or `rings.jsonl.zst` after it was compressed."""
        return stored(self.path / RINGS_FILE)

    @property
    def end_file(self) -> Path:
        """The attempt's `end.json`; an attempt that runs or was killed has no such file."""
        return self.path / END_FILE

    @cached_property
    def _header(self) -> tuple[H, str]:
        return self.header_kind.read(self.header_file)

    @cached_property
    def telemetry(self) -> TelemetryFolder:
        """The readings of sensors."""
        return TelemetryFolder(self.path / TELEMETRY)

    @property
    def header(self) -> H:
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
    def started(self) -> bool:
        """Whether the header was written; an attempt that died before has no records."""
        return self.header_file.exists()

    @property
    def end(self) -> AttemptEnd | None:
        """How the attempt ended, None while it runs or if it was killed."""
        return AttemptEnd.read(self.end_file)[0] if self.end_file.exists() else None


class RunFolder:
    """One run on disk.

    Args:
        path: `runs/<id>`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lock(self) -> Path:
        """The file whose lock the training processes hold."""
        return self.path / "lock"

    @property
    def attempts_folder(self) -> Path:
        """The folder of the attempts."""
        return self.path / ATTEMPTS

    def attempt_folder(self, number: int) -> Path:
        """The folder of an attempt, whether the attempt exists or not."""
        return self.attempts_folder / f"{number:04d}"

    def attempt_folders(self) -> list[Path]:
        """The folders of all attempts, whether they have a header or not, in order."""
        found = [path for path in self.attempts_folder.glob("*") if _ATTEMPT_NAME.match(path.name)]
        return sorted(found, key=lambda path: int(path.name))

    def plain_ring_files(self) -> list[Path]:
        """The files of rings of all attempts and ranks that are not compressed."""
        return sorted((*self.attempts_folder.glob(f"*/{RINGS_FILE}"), *self.attempts_folder.glob("*/ranks/*.jsonl")))

    @property
    def checkpoints_folder(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def mirror_file(self) -> Path:
        """The mark of a mirrored run; a run that was trained here has no such file."""
        return self.path / MIRROR_FILE

    @property
    def mirror(self) -> Mirror | None:
        """Where a mirrored run is from, None for a run that was trained here.

        Raises:
            EvidenceError: the mark was changed.
        """
        return Mirror.read(self.mirror_file)[0] if self.mirror_file.exists() else None

    @property
    def mirror_doubt(self) -> str:
        """What of a mirrored run may be missing here, in a sentence; empty for a run that was trained here."""
        try:
            return self.mirror.doubt() if self.mirror else ""
        except EvidenceError as error:
            return str(error)

    @property
    def is_held(self) -> bool:
        """Whether processes on this machine, or on machines with its file system, train the run now."""
        return is_held(self.lock)

    def state(self) -> RunState:
        """Whether the run is running, or how its newest attempt ended; `broken` where it ended without a record.

        Of a mirrored run it is the state when its files were last copied.
        """
        mirror = self.mirror
        if mirror is not None:
            return mirror.state
        if self.is_held:
            return "running"
        started = [path for path in self.attempt_folders() if (path / HEADER_FILE).exists()]
        if not started:
            return "empty"
        end_file = started[-1] / END_FILE
        return AttemptEnd.read(end_file)[0].status if end_file.exists() else "broken"
