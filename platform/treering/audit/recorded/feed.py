"""Which samples each step of a recorded run was fed, over all ranks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

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


def reporting_ranks(segments: Sequence[RecordedSegment]) -> str:
    """Whose samples the steps of a path have, in words: `1 rank`, `all 4 ranks`, `3 of 4 ranks`.

    Args:
        segments: of the path; world sizes that follow each other are named in order.

    Raises:
        EvidenceError: a header is missing or was changed.
    """
    found = []
    for segment in segments:
        reporting, expected = len(segment.attempt.ranks()), segment.attempt.header.world_size
        if reporting:
            whole = "1 rank" if expected == 1 else f"all {expected:,} ranks"
            found.append(whole if reporting == expected else f"{reporting:,} of {expected:,} ranks")
    return ", then ".join(each for each, _ in groupby(found))


def feeds_along(segments: Sequence[RecordedSegment]) -> Iterator[list[StepFeed]]:
    """What the steps of each segment of a path were fed, in order.

    Args:
        segments: of the path.

    Raises:
        EvidenceError: a ring was changed, removed or put in, or a segment ends before the next one begins.
    """
    for number, segment in enumerate(segments):
        found = feeds_of(segment.attempt, segment.last_step)
        yield found
        last = found[-1].step if found else 0
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


class AbandonedFeeds:
    """What the attempts of a run were fed beyond the steps from which later attempts resumed.

    Args:
        run: the run; each of its attempts is read once.
    """

    def __init__(self, run: RecordedRunDirectory) -> None:
        self._attempts = run.attempts()
        self._feeds: dict[int, list[StepFeed]] = {}

    def before(self, resumed: RecordedAttempt) -> Mapping[int, StepFeed]:
        """By step, what steps after the point of return were fed in earlier attempts; the newest attempt counts.

        Args:
            resumed: the attempt that resumed.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        start = resumed.header.resumed_step
        found: dict[int, StepFeed] = {}
        for attempt in self._attempts:
            if attempt.number < resumed.number:
                if attempt.number not in self._feeds:
                    self._feeds[attempt.number] = feeds_of(attempt)
                feeds = self._feeds[attempt.number]
                found.update({feed.step: feed for feed in feeds if feed.step > start and feed.samples})
        return found
