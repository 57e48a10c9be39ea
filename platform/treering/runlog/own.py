"""The path of a run as far as it is there: a run whose parent run is missing keeps its own numbers.

A run may start from another run's checkpoint. Where that run's log is missing or damaged, the path ends at the seam:
the run's own rings still hold, and say by themselves at which step and token they stand. `treering runs`, `show`,
`ship`, the report and the dashboard read this; the audit, which must account for every sample, does not.
"""

from dataclasses import dataclass

from treering.config.canonical import short
from treering.errors import EvidenceError
from treering.runlog.ancestry import PathSegment, rings_along
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class PathLeft:
    """What is left of the path to a checkpoint or to the newest ring.

    Attributes:
        segments: its stretches, oldest first.
        rings: of these.
        missing: what is missing before them, in a sentence; empty where the path is whole.
    """

    segments: tuple[PathSegment, ...]
    rings: tuple[Ring, ...]
    missing: str


def segments_left(run: RunDirectory, checkpoint: CheckpointDirectory | None = None) -> tuple[list[PathSegment], str]:
    """The stretches of the path that are there, by the headers alone, and what is missing before them.

    Raises:
        EvidenceError: a record of the run itself is missing or does not hold.
    """
    try:
        return run.path_to(checkpoint), ""
    except EvidenceError as error:
        own = run.path_to(checkpoint, own=True)
        if not starts_elsewhere(own):
            raise
        return own, _told(own, error)


def path_left(run: RunDirectory, checkpoint: CheckpointDirectory | None = None) -> PathLeft:
    """The rings of the path that are there.

    Raises:
        EvidenceError: a record or a ring of the run itself is missing or does not hold.
    """
    segments, missing = segments_left(run, checkpoint)
    if not missing:
        try:
            return PathLeft(tuple(segments), tuple(run.path_rings(checkpoint)), "")
        except EvidenceError as error:
            segments = run.path_to(checkpoint, own=True)
            if not starts_elsewhere(segments):
                raise
            missing = _told(segments, error)
    return PathLeft(tuple(segments), tuple(rings_along(segments, whole=False)), missing)


def starts_elsewhere(own: list[PathSegment]) -> bool:
    """Whether the own part of a path starts from another run."""
    return bool(own) and own[0].attempt.header.parent is not None


def _told(own: list[PathSegment], error: EvidenceError) -> str:
    parent = own[0].attempt.header.parent
    if parent is None:
        raise error
    return (
        f"the run starts from step {parent.step:,} of run {short(parent.run, 16)}, whose log is missing or damaged "
        f"({error}); its own steps are shown"
    )
