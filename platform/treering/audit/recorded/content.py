"""The samples of a recorded run recomputed from the corpora, where the trainer reads in the order of a blend."""

from collections.abc import Sequence
from dataclasses import dataclass

from treering.audit.recorded.feed import StepFeed
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import Corpus
from treering.data.order.batch import batch_digest, read_samples, sample_digests
from treering.data.order.treering1 import DataOrder
from treering.runlog.recorded_directory import RecordedRunDirectory, RecordedSegment

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Content:
    """What the corpora say of the samples of a path.

    Attributes:
        steps: steps whose samples are those of the order, every one recomputed.
        findings: what differs.
        order: the data order, in words.
    """

    steps: int
    findings: tuple[Finding, ...]
    order: str


def check_content(
    run: RecordedRunDirectory,
    segments: Sequence[RecordedSegment],
    by_segment: Sequence[Sequence[StepFeed]],
    blend: ResolvedBlend,
    corpora: Sequence[Corpus],
) -> Content:
    """Recomputes the digests of every sample on a path.

    Rank r of W reads the samples `first_sample + i * W + r`, see `treering.record.blend_dataset.BlendDataset`.

    Args:
        run: the run.
        segments: of the path.
        by_segment: what the steps of each were fed.
        blend: whose order the trainer reads.
        corpora: one for each component, in the blend's order.

    Raises:
        EvidenceError: a header is missing or was changed, or a corpus is damaged.
    """
    order = DataOrder(blend)
    bound, findings, consumed = 0, [], order.first_sample
    for segment, feeds in zip(segments, by_segment, strict=True):
        header = segment.attempt.header
        place = str(segment.attempt.header_file)
        if header.data is None or header.data["blend"] != blend.digest:
            findings.append(Finding("record", f"{place}: the attempt reads no order of the run's blend", place))
            break
        first = int(header.data["first_sample"])
        if first != consumed:
            did = "repeats" if first < consumed else "skips"
            text = (
                f"{place}: begins at sample {first:,}, expected {consumed:,}: it {did} {abs(first - consumed):,} "
                "samples; move the data set by treering.start(data=...)"
            )
            findings.append(Finding("batch", text, place))
        consumed = first
        for feed in feeds:
            step, count = feed.step, feed.counts[0] or 0
            end = consumed + count * header.world_size
            digests = sample_digests(read_samples(order, corpora, consumed, end)) if count else []
            expected = [batch_digest(digests[rank :: header.world_size]) for rank in range(header.world_size)]
            wrong = [rank for rank, digest in enumerate(feed.digests) if digest != expected[rank]]
            if not count:
                findings.append(Finding("batch", f"step {step:,}: did not report its tokens", step=step))
            elif wrong:
                findings.append(_different(run, step, wrong, consumed, end))
            else:
                bound += 1
            consumed = end
    return Content(bound, shortened(findings), f"{blend.algorithm}, blend {short(blend.digest)}")


def shortened(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The first findings about steps, and how many more there are."""
    more = len(findings) - _SHOWN
    if more <= 0:
        return tuple(findings)
    return (*findings[:_SHOWN], Finding("batch", f"and {more:,} more steps with other samples than the order has"))


def _different(run: RecordedRunDirectory, step: int, ranks: Sequence[int], start: int, end: int) -> Finding:
    which = ", ".join(str(rank) for rank in ranks[:8]) + (", …" if len(ranks) > 8 else "")
    text = (
        f"run {run.id}: step {step:,} was fed other samples than {start:,} to {end - 1:,} of the order on rank "
        f"{which}; use a DataLoader with shuffle=False and no sampler, and pass every batch as tokens="
    )
    return Finding("batch", text, step=step)
