"""The alarms along the path of a run, by the rules of its config."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from treering.errors import EvidenceError
from treering.metrics.alarms import Alarm
from treering.metrics.spikes import JudgedRing, RingAlarms, SpikeRule
from treering.runlog.ancestry import PathLeft, PathSegment, segments_left
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import Ring


def judge_of(run: RunDirectory) -> RingAlarms:
    """A judge with the thresholds of a run's config and the vocabulary of its model.

    Raises:
        EvidenceError: the run's config does not hold.
    """
    config, model = run.resolved.attempt.spikes, run.resolved.recipe.model
    rule = SpikeRule(config.threshold, config.window, config.min_points)
    return RingAlarms(rule, math.log(model.padded_vocab_size))


def alarms_of(run: RunDirectory, path: PathLeft) -> list[Alarm]:
    """The alarms on a run's path, of the runs that it starts from as well, each judged from its own first ring on."""
    return list(judged(judge_of(run), path.segments, path.rings))


def alarms_in(run: RunDirectory, rings: Iterable[Ring]) -> list[Alarm]:
    """The alarms in the rings that are left of a run's path, damaged as it may be.

    Raises:
        EvidenceError: the run's config does not hold.
    """
    try:
        segments, _ = segments_left(run)
    except EvidenceError:
        segments = []
    return list(judged(judge_of(run), segments, rings))


def judged(judge: RingAlarms, segments: Sequence[PathSegment], rings: Iterable[JudgedRing]) -> Iterator[Alarm]:
    """The alarms that a judge raises over the rings of a path; another run on the path begins anew.

    Args:
        judge: the judge.
        segments: of the path.
        rings: of the segments, or some of them.
    """
    begins = {
        (before.last_step or 0) + 1 for before, segment in pairwise(segments) if before.run.path != segment.run.path
    }
    for ring in rings:
        if ring.step in begins:
            judge.begin()
        yield from judge.update(ring)
