"""The documents of one step of a recorded run, where its trainer reads in the order of a blend."""

from treering.audit.corpora.catalog import find_corpora
from treering.audit.documents.batch import StepBatch, described_samples
from treering.audit.recorded.feed import Feeds, StepFeed
from treering.audit.report import Gap, Level, lowest
from treering.config.resolved_blend import ResolvedBlend
from treering.data.order.batch import batch_digest, read_samples, sample_digests
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, NotFoundError
from treering.project import Project
from treering.runlog.recorded_directory import RecordedRunDirectory


def recorded_batch(run: RecordedRunDirectory, step: int, project: Project) -> StepBatch:
    """The documents of a step's batch, read from the corpora by the data order that the run's loader follows.

    Of several ranks, recorded and recomputed digest are of the first rank that was fed something else.

    Args:
        run: the run.
        step: the step.
        project: where corpora are.

    Raises:
        NotFoundError: the run has no such step, or reports no data order.
        EvidenceError: a header, a ring or the blend is missing or was changed, or a corpus is missing.
    """
    if not run.blend_file.exists():
        raise NotFoundError(
            f"run {run.id} reports its samples and no data order; read them through treering.BlendDataset, and pass it "
            "as treering.start(data=...)"
        )
    blend = ResolvedBlend.read(run.blend_file)
    attempt, ranks, first, feed = _found(run, step)
    end = first + (feed.counts[0] or 0) * ranks
    catalog = find_corpora(project, [blend], stored=True)
    for missing in catalog.missing.values():
        raise EvidenceError(missing.text)
    corpora = [catalog.corpora[each.digest or ""] for each in blend.components]
    digests = sample_digests(read_samples(DataOrder(blend), corpora, first, end)) if end > first else []
    expected = [batch_digest(digests[rank::ranks]) for rank in range(ranks)]
    pairs = list(zip(feed.digests, expected, strict=False))
    recorded, recomputed = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    gaps: list[Gap] = []
    order = catalog.order(blend).samples_with_spans(first, end)
    shown = [(sample, None, place % ranks) for place, sample in enumerate(order)]
    samples = described_samples(shown, blend, catalog, project, gaps)
    return StepBatch(
        run=run.id,
        attempt=attempt,
        step=step,
        recorded_digest=recorded,
        recomputed_digest=recomputed,
        rank=None,
        samples=samples,
        level=lowest(Level.CONTENT_BOUND if recorded == recomputed else Level.RECORDED, gaps),
        gaps=tuple(gaps),
    )


def _found(run: RecordedRunDirectory, step: int) -> tuple[int, int, int, StepFeed]:
    """The attempt that did a step, its ranks, the first sample of the step, and what the step was fed.

    Raises:
        NotFoundError: no step on the run's path is this one, or its attempt reads no order.
    """
    path = run.path_to_end()
    for segment, feeds in zip(path, Feeds().along(path), strict=True):
        header = segment.attempt.header
        if not any(feed.step == step for feed in feeds):
            continue
        if header.data is None:
            raise NotFoundError(f"{segment.attempt.header_file}: the attempt reads no order of the run's blend")
        consumed = int(header.data["first_sample"])
        for feed in feeds:
            if feed.step == step:
                return segment.attempt.number, header.world_size, consumed, feed
            consumed += (feed.counts[0] or 0) * header.world_size
    raise NotFoundError(f"run {run.id}: no step {step} is on its path")
