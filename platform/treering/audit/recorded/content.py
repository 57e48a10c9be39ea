"""The samples of a recorded run recomputed from the corpora, where the trainer reads in the order of a blend."""

from collections.abc import Sequence
from dataclasses import dataclass

from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import Corpus
from treering.data.order.batch import batch_digest, read_samples, sample_digests
from treering.data.order.treering1 import DataOrder
from treering.runlog.recorded_directory import RecordedRunDirectory, RecordedSegment
from treering.runlog.recorded_ring import RecordedRing

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
    run: RecordedRunDirectory, segments: Sequence[RecordedSegment], blend: ResolvedBlend, corpora: Sequence[Corpus]
) -> Content:
    """Recomputes the digests of every sample on a path.

    Rank r of W reads the samples `first_sample + i * W + r`, see `treering.record.blend_dataset.BlendDataset`.

    Args:
        run: the run.
        segments: of the path.
        blend: whose order the trainer reads.
        corpora: one for each component, in the blend's order.

    Raises:
        EvidenceError: a ring was changed, removed or put in, or a corpus is damaged.
    """
    order = DataOrder(blend)
    bound, findings, consumed = 0, [], order.first_sample
    for segment in segments:
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
        for step, rings in steps_of(segment):
            count = rings[0].samples or 0
            end = consumed + count * header.world_size
            digests = sample_digests(read_samples(order, corpora, consumed, end)) if count else []
            expected = [batch_digest(digests[rank :: header.world_size]) for rank in range(header.world_size)]
            wrong = [rank for rank, ring in enumerate(rings) if ring.batch_digest != expected[rank]]
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


def steps_of(segment: RecordedSegment) -> list[tuple[int, list[RecordedRing]]]:
    """The rings of each step of a segment, by rank; the steps that every rank has reported."""
    ranks = segment.attempt.ranks()
    found: dict[int, list[RecordedRing]] = {}
    for rank in ranks:
        for ring in segment.attempt.rings(rank):
            if segment.contains(ring.step) and (rank == 0 or ring.step in found):
                found.setdefault(ring.step, []).append(ring)
    return [(step, rings) for step, rings in found.items() if len(rings) == len(ranks)]


def _different(run: RecordedRunDirectory, step: int, ranks: Sequence[int], start: int, end: int) -> Finding:
    which = ", ".join(str(rank) for rank in ranks[:8]) + (", …" if len(ranks) > 8 else "")
    text = (
        f"run {run.id}: step {step:,} was fed other samples than {start:,} to {end - 1:,} of the order on rank "
        f"{which}; use a DataLoader with shuffle=False and no sampler, and pass every batch as tokens="
    )
    return Finding("batch", text, step=step)
