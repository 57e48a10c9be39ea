"""The samples of a recorded run recomputed by Megatron's own data order, which its launch arguments decide.

The recorder's hook for Megatron-LM digests what `get_batch` returns (`treering_adapters.megatron`). The order is
rebuilt as for a run without a record (`treering.audit.megatron`), and its samples are read from the token files. A
step is bound if its ranks together were fed the samples of the order, each once, whatever rank was fed which: then the
launch arguments, the index and the tokens are those that trained.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from treering.audit.megatron.launch import OrderedLaunch, index_of
from treering.audit.megatron.run import AuditedRun
from treering.audit.recorded.content import Content, shortened
from treering.audit.recorded.feed import StepFeed
from treering.audit.report import Finding
from treering.data.corpus.indexed import TokenFile
from treering.data.order.batch import batch_digest, sample_digests
from treering.record.samples import fingerprint
from treering.runlog.recorded_directory import RecordedRunDirectory


def check_megatron_content(
    run: RecordedRunDirectory, by_segment: Sequence[Sequence[StepFeed]], megatron: AuditedRun
) -> Content:
    """Recomputes the digests of every sample on a path by Megatron's order.

    Args:
        run: the run.
        by_segment: what the steps of a path were fed.
        megatron: the run as its checkpoint, or a description of its launch, has it.

    Raises:
        EvidenceError: a token file is missing or damaged.
    """
    order = f"Megatron's order of lineage {megatron.lineage}, by {megatron.source}"
    bound, findings = 0, list(megatron.findings)
    readers: dict[int, _LaunchReader] = {}
    for feed in chain.from_iterable(by_segment):
        step = feed.step
        if step > megatron.iteration:
            known = f"{megatron.source} describes the run to step {megatron.iteration:,}"
            text = f"step {step:,} and later: {known}; name a newer checkpoint, or the launch itself"
            findings.append(Finding("batch", text, step=step))
            break
        launch = megatron.launch_of(step)
        if launch.done not in readers:
            readers[launch.done] = _LaunchReader(launch)
        lo, hi = launch.sample_range(step)
        if not all(feed.counts):
            findings.append(Finding("batch", f"step {step:,}: did not report its tokens", step=step))
        elif _are_fed(feed, sample_digests(readers[launch.done].tokens(lo, hi))):
            bound += 1
        else:
            text = (
                f"run {run.id}: step {step:,} was fed other samples than {lo:,} to {hi - 1:,} of {order}; another "
                "launch trained this run, its loader did not resume, or the record has parts of sequences alone "
                "(context parallelism)"
            )
            findings.append(Finding("batch", text, step=step))
    return Content(bound, shortened(findings), order)


def _are_fed(feed: StepFeed, digests: Sequence[str]) -> bool:
    """Whether the ranks of a step were fed exactly the samples with these digests, whichever rank was fed which."""
    named = {fingerprint(digest): digest for digest in digests}
    fed = [[named.get(each, "") for each in samples] for samples in feed.by_rank()]
    if Counter(chain.from_iterable(fed)) != Counter(digests):
        return False
    return all(batch_digest(own) == digest for own, digest in zip(fed, feed.digests, strict=True))


class _LaunchReader:
    """Reads the samples of the steps of one launch from its token files.

    Args:
        launch: the steps.
    """

    def __init__(self, launch: OrderedLaunch) -> None:
        self._order = launch.order
        self._files = [
            TokenFile.open(place.with_name(f"{place.name}.bin"), index_of(place)) for place in launch.launched.places
        ]
        self._starts = [np.cumsum(file.sequence_lengths, dtype=np.int64) for file in self._files]

    def tokens(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The tokens of samples [lo, hi) without their last label, as `get_batch` returns them.

        Returns:
            Shape [hi - lo, sequence_length]; a sample that the data ends is padded with 0.

        Source: megatron-core 0.16.1, megatron/core/datasets/gpt_dataset.py, `GPTDataset.__getitem__`.
        """
        length = self._order.sequence_length
        tokens = np.zeros((hi - lo, length), dtype=np.int64)
        for row, sample in zip(tokens, self._order.samples_with_spans(lo, hi), strict=True):
            file, ends = self._files[sample.component], self._starts[sample.component]
            begins = [int(ends[span.document]) - int(file.sequence_lengths[span.document]) for span in sample.spans]
            parts = [
                file.tokens[begin + span.start : begin + span.end]
                for begin, span in zip(begins, sample.spans, strict=True)
            ]
            text = np.concatenate(parts)[:length]
            row[: len(text)] = text
        return tokens
