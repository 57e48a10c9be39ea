"""A Megatron run that is asked: what did the checkpoint read, what did a step, which steps read a document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treering.audit.megatron.report import DatasetUsage, DocumentPart, MegatronReport, ReadSample
from treering.audit.megatron.source import RunSource
from treering.audit.report import Finding, Level
from treering.config.canonical import digest_file
from treering.config.megatron import MegatronRun
from treering.config.schedule import Schedule
from treering.data.contract import UNDEFINED_EPOCH
from treering.data.corpus import DOCUMENTS
from treering.data.document_table import DocumentTable
from treering.data.indexed import read_sequence_lengths
from treering.data.megatron.blend import Generation, MegatronBlend
from treering.data.megatron.cache import CachedIndex, CacheRead, find_cache, read_order
from treering.data.megatron.indices import IndexPlan
from treering.data.megatron.order import MegatronOrder, blend_weights, plan_datasets
from treering.data.order import Sample
from treering.data.spans import Span
from treering.errors import EvidenceError, NotFoundError, UserError

_NAMES = ("id", "source", "licence")


@dataclass(frozen=True)
class AuditedRun:
    """A Megatron run whose order was rebuilt.

    Attributes:
        described: the file or checkpoint that describes it, and what they say.
        iteration: steps done by the checkpoint.
        consumed_samples: samples that it read.
        cache: the order, and what of it came from Megatron's cache.
        verify: whether cached indices were compared with a rebuild.
        findings: what does not hold.
        unsure: what another generation of Megatron, which the arguments do not rule out, would have read otherwise.
    """

    described: RunSource
    iteration: int
    consumed_samples: int
    cache: CacheRead
    verify: bool
    findings: tuple[Finding, ...]
    unsure: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, *, verify: bool = False, moved: Mapping[str, str] | None = None) -> "AuditedRun":
        """Reads the description and makes the order.

        Args:
            path: a checkpoint of Megatron, a save folder (the checkpoint that its tracker names), a YAML file, or a
                folder that holds `megatron-run.yaml`.
            verify: compare cached indices with a rebuild, number by number.
            moved: where folders lie today, by where the run saw them.

        Raises:
            ConfigError: the description does not say what is needed.
            NotFoundError: there is neither a description nor a checkpoint.
            UserError: no Megatron run can have such a blend, its order cannot be rebuilt, or it ends before the
                checkpoint.
            EvidenceError: an `.idx` or a checkpoint is missing or damaged, or holds no launch arguments.
        """
        described = RunSource.open(path, moved or {})
        run, source = described.run, described.path
        iteration, consumed, findings = _progress(source, run, run.schedule)
        blend = MegatronBlend(
            prefixes=tuple(entry.prefix for entry in run.data),
            weights=run.weights,
            seed=run.seed,
            sequence_length=run.sequence_length,
            num_samples=run.num_samples,
            split=run.split,
            surplus=run.surplus,
            extra_token=run.extra_token,
            generation=run.generation,
        )
        lengths = [read_sequence_lengths(_index(place)) for place in described.places]
        plans = plan_datasets(blend, lengths)
        cached = find_cache(blend, described.cache, described.places)
        cache = read_order(blend, lengths, plans, cached, rebuild=verify)
        if consumed > cache.order.num_samples:
            raise UserError(
                f"{source}: {consumed} samples consumed, the order ends after {cache.order.num_samples}; was the run "
                f"launched with {run.num_samples} train samples?"
            )
        stale = [_stale(blend, index, difference) for index, difference in cache.stale]
        unsure = tuple(_unsure(blend, lengths, plans, described.generations))
        return cls(described, iteration, consumed, cache, verify, (*described.findings, *findings, *stale), unsure)

    @property
    def source(self) -> Path:
        """The file that describes the run."""
        return self.described.path

    @property
    def run(self) -> MegatronRun:
        """What it says."""
        return self.described.run

    @property
    def order(self) -> MegatronOrder:
        """The data order."""
        return self.cache.order

    @property
    def level(self) -> Level:
        """Re-derived where nothing contradicts it: never more, since nothing recorded what the run did."""
        return Level.DECLARED if self.findings else Level.REDERIVED

    def report(self) -> MegatronReport:
        """What the checkpoint read."""
        return MegatronReport(
            source=str(self.source),
            settings=self.described.settings,
            iteration=self.iteration,
            consumed_samples=self.consumed_samples,
            consumed_tokens=self.consumed_samples * self.run.sequence_length,
            skipped_steps=tuple(sorted(step for step in self._skipped if step <= self.iteration)),
            corpora=tuple(self._usage(component) for component in range(len(self.order.components))),
            indices_read=tuple(index.name for index in self.cache.read),
            level=self.level,
            verify=self.verify,
            findings=self.findings,
            not_proven=tuple(self._not_proven()),
        )

    def step(self, step: int) -> tuple[ReadSample, ...]:
        """The samples of a step (from 1) with their documents.

        Raises:
            NotFoundError: the checkpoint did not do that step.
        """
        if not 1 <= step <= self.iteration:
            raise NotFoundError(f"{self.source}: step {step} asked for, the checkpoint did steps 1 to {self.iteration}")
        lo, hi = self._schedule.sample_range(step)
        samples = self.order.samples_with_spans(lo, min(hi, self.consumed_samples))
        return tuple(self._read(sample, step, None) for sample in samples)

    def exposures(self, document: str) -> tuple[ReadSample, ...]:
        """The samples before the checkpoint that hold a token of a document, with those tokens.

        Args:
            document: `PREFIX:NUMBER`, the number of a sequence of the `.idx`.

        Raises:
            UserError: another form.
            NotFoundError: no such prefix or document.
        """
        prefix, _, number = document.rpartition(":")
        if not prefix or not number.isdecimal():
            raise UserError(f"document {document!r}, expected PREFIX:NUMBER with the number of a sequence of the .idx")
        wanted = int(number)
        found = self.order.exposures(self.order.index_of(prefix), wanted, self.consumed_samples).tolist()
        return tuple(self._read(self.order.sample(g), self._schedule.step_of_sample(g), wanted) for g in found)

    @cached_property
    def _schedule(self) -> Schedule:
        return self.run.schedule

    @cached_property
    def _skipped(self) -> frozenset[int]:
        """Steps that were passed over; Megatron counts iterations from 0."""
        return frozenset(iteration + 1 for iteration in self.run.iterations_to_skip)

    @cached_property
    def _tables(self) -> list[DocumentTable | None]:
        """The document table beside each pair, where there is one of as many documents."""
        tables: list[DocumentTable | None] = []
        for component, place in zip(self.order.components, self.described.places, strict=True):
            try:
                tables.append(DocumentTable(place.parent / DOCUMENTS, len(component.lengths)))
            except EvidenceError:  # none, or another corpus's: documents have numbers alone
                tables.append(None)
        return tables

    def _read(self, sample: Sample, step: int, document: int | None) -> ReadSample:
        parts = [span for span in sample.spans if document is None or span.document == document]
        return ReadSample(
            g=sample.g,
            step=step,
            skipped=step in self._skipped,
            corpus=self.order.components[sample.component].corpus,
            epoch=None if sample.epoch == UNDEFINED_EPOCH else sample.epoch,
            documents=tuple(self._part(sample.component, span) for span in parts),
        )

    def _part(self, component: int, span: Span) -> DocumentPart:
        table = self._tables[component]
        names = {} if table is None else table.row(span.document)
        held = int(self.order.components[component].lengths[span.document])
        return DocumentPart(span.document, span.start, span.end, held, *(names.get(name) for name in _NAMES))

    def _usage(self, component: int) -> DatasetUsage:
        part = self.order.components[component]
        samples = self.order.count(component, self.consumed_samples)
        tokens = samples * self.run.sequence_length
        return DatasetUsage(
            corpus=part.corpus,
            index=digest_file(_index(self.described.places[component])),
            weight=part.weight,
            samples=samples,
            tokens=tokens,
            epochs=tokens / part.plan.tokens,
            mixed_epochs=part.plan.epoch(0) == UNDEFINED_EPOCH,
            documents_touched=self.order.documents_touched(component, self.consumed_samples),
            num_documents=part.plan.end - part.plan.first,
        )

    def _not_proven(self) -> list[str]:
        open_ends = [
            "That the run was launched as described, and by megatron-core's order with a sequential sampler "
            "(`--dataloader-type single`): nothing recorded what it read.",
            "That the tokens under these paths are those that it read: an index holds their number, not their content.",
            "That no step was repeated, skipped or rolled back on the way to the checkpoint.",
            *self.described.open_ends,
            *self.unsure,
            "That the blend's near ties were broken as on x86-64; a build for aarch64 may round once less.",
        ]
        if self.cache.read and not self.verify:
            open_ends.append(
                "That the cached shuffles are those of the seed: sample places were recomputed, shuffles only looked "
                "over; `--verify` redoes them."
            )
        return open_ends


def _unsure(
    blend: MegatronBlend, lengths: Sequence[NDArray[np.int32]], plans: Sequence[IndexPlan], others: Sequence[Generation]
) -> Iterator[str]:
    """Which data another generation's rounding gives another order."""
    for generation in others:
        other = replace(blend, generation=generation)
        found = plan_datasets(other, lengths)
        differ = [prefix for prefix, a, b in zip(blend.prefixes, plans, found, strict=True) if a != b]
        if differ or blend_weights(blend, plans) != blend_weights(other, found):
            what = f"the order of {', '.join(differ)}" if differ else "near ties of the blend"
            yield (
                f"That this is how the run's Megatron rounds: the arguments fit generation {generation} too, by which "
                f"{what} differs; `generation` in a description decides (docs/data-order.md)."
            )


def _stale(blend: MegatronBlend, index: CachedIndex, difference: str) -> Finding:
    return Finding(
        "corpus",
        f"{index.name}: this index cache was built from other data or settings: {difference}. Megatron names a cache "
        "by path and config, not content, and uses it without a word: a run started since then read today's tokens by "
        "the old index. The answers are by the rebuilt order; remove the cache before you train again",
        file=str(index.description),
        corpus=None if index.component is None else blend.prefixes[index.component],
    )


def _index(place: Path) -> Path:
    return place.with_name(f"{place.name}.idx")


def _progress(source: Path, run: MegatronRun, schedule: Schedule) -> tuple[int, int, list[Finding]]:
    """Steps done and samples consumed by the checkpoint, and whether what is said of them fits the schedule."""
    iteration, consumed = run.iteration, run.consumed_samples
    if iteration is None:
        consumed = consumed or 0
        iteration = schedule.step_of_sample(consumed - 1)
    expected = schedule.samples_after(iteration)
    if consumed is None or consumed == expected:
        return iteration, expected, []
    text = (
        f"{source}: {consumed} samples consumed, the batch schedule has consumed {expected} after step {iteration}: "
        "iteration, consumed_samples, global_batch_size and rampup do not belong to one run; the answers are for "
        f"{consumed} samples"
    )
    return iteration, consumed, [Finding("record", text, file=str(source), step=iteration)]
