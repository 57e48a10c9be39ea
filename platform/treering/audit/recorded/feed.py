"""Which samples each step of a recorded run was fed, over all ranks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby

from treering.errors import EvidenceError
from treering.runlog.recorded_directory import RecordedAttempt, RecordedSegment
from treering.runlog.recorded_ring import RecordedRing


@dataclass(frozen=True, slots=True)
class StepFeed:
    """What one step was fed.

    Attributes:
        step: the step.
        samples: fingerprints of the samples, rank after rank, each rank's in the order given; empty where no rank
            reported its tokens.
        epoch: the trainer's metric `epoch`, None where it reports none.
        counts: how many of the samples each rank was fed, None where it did not report its tokens.
        digests: each rank's digest of its batch, None where it did not report its tokens.
    """

    step: int
    samples: tuple[str, ...]
    epoch: float | None
    counts: tuple[int | None, ...] = ()
    digests: tuple[str | None, ...] = ()

    def by_rank(self) -> list[tuple[str, ...]]:
        """The samples of each rank."""
        ends = list(accumulate(count or 0 for count in self.counts))
        return [self.samples[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def same_samples(self, other: "StepFeed") -> bool:
        """Whether both were fed the same samples, in whatever order and on whatever ranks."""
        return self.samples == other.samples or Counter(self.samples) == Counter(other.samples)


class Feeds:
    """What the attempts of a run were fed; each ring is read once, and its chain checked.

    A step counts when every rank of the attempt has reported it: a killed attempt leaves ranks at different steps.
    """

    def __init__(self) -> None:
        self._attempts: dict[int, _AttemptFeeds] = {}

    def of(self, attempt: RecordedAttempt, last_step: int | None = None) -> list[StepFeed]:
        """What the steps of an attempt were fed, in order.

        Args:
            attempt: the attempt.
            last_step: the last step that counts, and the last that is read; None: all.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        if attempt.number not in self._attempts:
            self._attempts[attempt.number] = _AttemptFeeds(attempt)
        return self._attempts[attempt.number].up_to(last_step)

    def along(self, segments: Sequence[RecordedSegment]) -> Iterator[list[StepFeed]]:
        """What the steps of each segment of a path were fed, in order.

        Args:
            segments: of the path.

        Raises:
            EvidenceError: a ring was changed, removed or put in, or a segment ends before the next one begins.
        """
        for number, segment in enumerate(segments):
            found = self.of(segment.attempt, segment.last_step)
            yield found
            last = found[-1].step if found else 0
            if segment.last_step is not None and last != segment.last_step:
                raise EvidenceError(
                    f"{segment.attempt.rings_file}: the rings end at step {last}, and attempt "
                    f"{segments[number + 1].attempt.number} resumes from step {segment.last_step}; restore the file "
                    "from a copy",
                    file=segment.attempt.rings_file,
                    step=last,
                    found=last,
                    expected=segment.last_step,
                )

    def abandoned(self, attempts: Sequence[RecordedAttempt], resumed: RecordedAttempt) -> Mapping[int, StepFeed]:
        """By step, what steps after the point of return were fed in earlier attempts; the newest attempt counts.

        Args:
            attempts: of the run, oldest first.
            resumed: the attempt that resumed.

        Raises:
            EvidenceError: a ring was changed, removed or put in.
        """
        start = resumed.header.resumed_step
        found: dict[int, StepFeed] = {}
        for attempt in attempts:
            if attempt.number < resumed.number:
                found.update({feed.step: feed for feed in self.of(attempt) if feed.step > start and feed.samples})
        return found


class _AttemptFeeds:
    """Reads the rings of an attempt, as far as it was asked for."""

    def __init__(self, attempt: RecordedAttempt) -> None:
        self._rings: list[Iterator[RecordedRing]] = [attempt.rings(rank) for rank in attempt.ranks()]
        self._steps: dict[int, list[RecordedRing]] = {}
        self._feeds: list[StepFeed] = []

    def up_to(self, last_step: int | None) -> list[StepFeed]:
        for rank, rings in enumerate(self._rings):
            for ring in rings:
                if last_step is not None and ring.step > last_step:
                    self._rings[rank] = chain([ring], rings)
                    break
                if rank == 0 or ring.step in self._steps:
                    self._steps.setdefault(ring.step, []).append(ring)
        for step in [step for step in self._steps if last_step is None or step <= last_step]:
            reported = self._steps.pop(step)
            if len(reported) == len(self._rings):
                self._feeds.append(_feed(reported))
        return [feed for feed in self._feeds if last_step is None or feed.step <= last_step]


def _feed(rings: Sequence[RecordedRing]) -> StepFeed:
    """What a step was fed by the rings of its ranks."""
    return StepFeed(
        rings[0].step,
        tuple(chain.from_iterable(ring.sample_fingerprints for ring in rings)),
        rings[0].metrics.get("epoch"),
        tuple(ring.samples for ring in rings),
        tuple(ring.batch_digest for ring in rings),
    )


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
