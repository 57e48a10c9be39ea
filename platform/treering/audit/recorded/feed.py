"""Which samples each step of a recorded run was fed, over all ranks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from treering.errors import EvidenceError
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory, RecordedSegment


@dataclass(frozen=True, slots=True)
class StepFeed:
    """What one step was fed.

    Attributes:
        step: the step.
        samples: fingerprints of the samples, rank after rank, each rank's in the order given; empty where no rank
            reported its tokens.
        epoch: the trainer's metric `epoch`, None where it reports none.
    """

    step: int
    samples: tuple[str, ...]
    epoch: float | None

    def same_samples(self, other: "StepFeed") -> bool:
        """Whether both were fed the same samples, in whatever order and on whatever ranks."""
        return self.samples == other.samples or Counter(self.samples) == Counter(other.samples)


def feeds_of(attempt: RecordedAttempt, last_step: int | None = None) -> list[StepFeed]:
    """What the steps of an attempt were fed, in order; the chain of each rank is checked.

    A step counts when every rank of the attempt has reported it: a killed attempt leaves ranks at different steps.

    Args:
        attempt: the attempt.
        last_step: the last step that counts; None: all.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    samples: dict[int, list[str]] = {}
    reports: Counter[int] = Counter()
    epochs: dict[int, float | None] = {}
    ranks = attempt.ranks()
    for rank in ranks:
        for ring in attempt.rings(rank):
            if last_step is not None and ring.step > last_step:
                break
            reports[ring.step] += 1
            samples.setdefault(ring.step, []).extend(ring.sample_fingerprints)
            if rank == 0:
                epochs[ring.step] = ring.metrics.get("epoch")
    return [
        StepFeed(step, tuple(samples[step]), epoch) for step, epoch in epochs.items() if reports[step] == len(ranks)
    ]


def feeds_along(segments: Sequence[RecordedSegment]) -> Iterator[StepFeed]:
    """What the steps of a path were fed, in order.

    Args:
        segments: of the path.

    Raises:
        EvidenceError: a ring was changed, removed or put in, or a segment ends before the next one begins.
    """
    for number, segment in enumerate(segments):
        last = 0
        for feed in feeds_of(segment.attempt, segment.last_step):
            last = feed.step
            yield feed
        if segment.last_step is not None and last != segment.last_step:
            raise EvidenceError(
                f"{segment.attempt.rings_file}: the rings end at step {last}, and attempt "
                f"{segments[number + 1].attempt.number} resumes from step {segment.last_step}; restore the file from a "
                "copy",
                file=segment.attempt.rings_file,
                step=last,
                found=last,
                expected=segment.last_step,
            )


def abandoned(run: RecordedRunDirectory, resumed: RecordedAttempt) -> Mapping[int, StepFeed]:
    """What steps after the point of return were fed in earlier attempts, by step; the newest attempt counts.

    Args:
        run: the run.
        resumed: the attempt that resumed.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    parent = resumed.header.parent
    start = parent.step if parent else 0
    found: dict[int, StepFeed] = {}
    for attempt in run.attempts():
        if attempt.number < resumed.number:
            found.update({feed.step: feed for feed in feeds_of(attempt) if feed.step > start and feed.samples})
    return found
