"""Reads recorded runs from disk: runs of other trainers, which reported their steps through `treering.start`.

    runs/<id>/recorded.json
              blend.json    where the trainer reads by a `BlendDataset`
              lock
              journal.jsonl
              attempts/0001/{header.json, rings.jsonl, ranks/rank-00001.jsonl, end.json}
              checkpoints/step-00000300-attempt-0001.json    where the trainer wrote the checkpoint, and what is in it

`rings.jsonl` has the rings of rank 0 with the metrics; the other ranks have a file each.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Final

from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import EvidenceError
from treering.runlog.folders import AttemptFolder, RunFolder
from treering.runlog.journal import Journal
from treering.runlog.recorded_records import RecordedCheckpoint, RecordedHeader, RecordedRun
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.ring_file import stored
from treering.runlog.ring_log import RingLog

RECORD_FILE: Final = "recorded.json"
BLEND_FILE: Final = "blend.json"
POINTER_FILE: Final = "treering.json"
"""In a checkpoint's own folder: which run recorded it."""

_RANK_FILE = re.compile(r"^rank-(\d+)\.jsonl(\.zst)?$")


@dataclass(frozen=True, slots=True)
class RankRings:
    """The rings of one rank beside rank 0.

    Attributes:
        path: the rank's folder, which has its columns; missing before they are built.
        header_digest: `prev` of the first ring.
        ring_log: the reader of the rings.
    """

    path: Path
    header_digest: str
    ring_log: RingLog[RecordedRing]


class RecordedAttempt(AttemptFolder[RecordedHeader]):
    """One process start of a recorded run.

    Args:
        path: `attempts/NNNN`.
    """

    header_kind = RecordedHeader

    def rank_file(self, rank: int) -> Path:
        """The file of a rank's rings, compressed or not."""
        return stored(self.path / f"ranks/rank-{rank:05d}.jsonl") if rank else self.rings_file

    def rank_log(self, rank: int) -> RingLog[RecordedRing]:
        """The reader of a rank's rings."""
        return RingLog(self.rank_file(rank), RecordedRing)

    def rank_rings(self, rank: int) -> RankRings:
        """The rings of a rank beside rank 0.

        Raises:
            EvidenceError: the header is missing or was changed.
        """
        return RankRings(self.path / f"ranks/rank-{rank:05d}", self.header_digest, self.rank_log(rank))

    @property
    def ring_log(self) -> RingLog[RecordedRing]:
        """The reader of rank 0's rings."""
        return self.rank_log(0)

    def rings(self, rank: int = 0) -> Iterator[RecordedRing]:
        """All durable rings of a rank in order, the chain checked.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        return self.rank_log(rank).rings(self.header_digest)

    def ranks(self) -> list[int]:
        """The ranks that have a file of rings, in order."""
        others = (_RANK_FILE.match(path.name) for path in (self.path / "ranks").glob("rank-*.jsonl*"))
        found = [0] if self.rings_file.exists() else []
        return found + sorted({int(match[1]) for match in others if match})

    def last_step(self, rank: int = 0) -> int:
        """The last step that a rank reported, 0 where there is none; no chain checked."""
        ring = self.rank_log(rank).last()
        return 0 if ring is None else ring.step


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """The rings of one attempt that are on the way to the run's newest state.

    Attributes:
        attempt: whose rings these are.
        last_step: the last step of the segment; later rings of the attempt were abandoned. None: all its rings count.
    """

    attempt: RecordedAttempt
    last_step: int | None

    def end(self) -> int:
        """The last step of the segment that was reported, 0 where there is none; no chain checked."""
        return self.attempt.last_step() if self.last_step is None else self.last_step

    def contains(self, step: int) -> bool:
        """Whether the segment reaches as far as a step of its attempt."""
        return self.last_step is None or step <= self.last_step

    def rings(self, rank: int = 0) -> Iterator[RecordedRing]:
        """The rings of a rank up to the end of the segment, the chain checked.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        return takewhile(lambda ring: self.contains(ring.step), self.attempt.rings(rank))


class RecordedRunDirectory(RunFolder):
    """One recorded run on disk.

    Args:
        path: `runs/<id>`.
    """

    @property
    def record_file(self) -> Path:
        """The run's `recorded.json`."""
        return self.path / RECORD_FILE

    @cached_property
    def _record(self) -> tuple[RecordedRun, str]:
        return RecordedRun.read(self.record_file)

    @property
    def record(self) -> RecordedRun:
        """What the run is.

        Raises:
            EvidenceError: missing or changed.
        """
        return self._record[0]

    @property
    def digest(self) -> str:
        """Digest of the record: the run's identity.

        Raises:
            EvidenceError: missing or changed.
        """
        return self._record[1]

    @property
    def id(self) -> str:
        """The run's id in short."""
        return short(self.digest, RUN_ID_LENGTH)

    @property
    def blend_file(self) -> Path:
        """The blend whose order the trainer reads; exists where the trainer reads by a `BlendDataset`."""
        return self.path / BLEND_FILE

    @property
    def journal(self) -> Journal:
        """Notes, tags and scores of the run, and how its attempts ended."""
        return Journal.of(self.path, self.digest)

    def attempts(self) -> list[RecordedAttempt]:
        """All attempts that wrote a header, oldest first."""
        found = [RecordedAttempt(path) for path in self.attempt_folders()]
        return [each for each in found if each.started]

    def checkpoint_file(self, attempt: int, step: int) -> Path:
        """The record of the checkpoint that an attempt wrote after a step."""
        return self.checkpoints_folder / f"step-{step:08d}-attempt-{attempt:04d}.json"

    def checkpoint_files(self) -> list[Path]:
        """The records of all checkpoints, oldest step first."""
        return sorted(self.checkpoints_folder.glob("step-*.json"))

    def checkpoints(self) -> list[RecordedCheckpoint]:
        """The checkpoints that the trainer reported, in abandoned attempts too, oldest step first.

        Raises:
            EvidenceError: a record was changed.
        """
        return [RecordedCheckpoint.read(file)[0] for file in self.checkpoint_files()]

    def checkpoints_on(self, segments: Sequence[RecordedSegment]) -> list[RecordedCheckpoint]:
        """Those of the checkpoints that are on a path.

        Args:
            segments: of the path.
        """
        on_path = {segment.attempt.number: segment for segment in segments}
        written = [(each, on_path.get(each.attempt)) for each in self.checkpoints()]
        return [each for each, segment in written if segment is not None and segment.contains(each.step)]

    def path_to_end(self) -> list[RecordedSegment]:
        """The segments that led to the newest ring, from the first attempt on.

        Raises:
            EvidenceError: a header is missing, was changed, or names an attempt that does not come before its own.
        """
        attempts = self.attempts()
        return self.path_to(attempts[-1].number, None) if attempts else []

    def path_to(self, attempt: int, last_step: int | None) -> list[RecordedSegment]:
        """The segments that led to a step of an attempt, from the first attempt on.

        Args:
            attempt: number of the attempt.
            last_step: the step; None: the attempt's newest.

        Raises:
            EvidenceError: a header is missing, was changed, or names an attempt that does not come before its own.
        """
        attempts = {each.number: each for each in self.attempts()}
        if attempt not in attempts:
            file = RecordedAttempt(self.attempt_folder(attempt)).header_file
            raise EvidenceError(f"{file}: missing; restore the run's folder from a copy", file=file)
        segments = [RecordedSegment(attempts[attempt], last_step)]
        while (parent := segments[0].attempt.header.parent) is not None:
            header_file = segments[0].attempt.header_file
            if parent.attempt not in attempts or parent.attempt >= segments[0].attempt.number:
                raise EvidenceError(
                    f"{header_file}: resumes from attempt {parent.attempt}, which is missing or came later; "
                    "restore the run's folder from a copy",
                    file=header_file,
                    found=parent.attempt,
                    expected=f"one of {sorted(number for number in attempts if number < segments[0].attempt.number)}",
                )
            segments.insert(0, RecordedSegment(attempts[parent.attempt], parent.step))
        return segments
