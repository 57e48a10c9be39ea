"""The steps of a Megatron run that one set of arguments launched, with the data order that they make."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from treering.audit.megatron.alternatives import OtherOrder, other_orders
from treering.audit.megatron.bound import bind_by_cache
from treering.audit.megatron.launched import Launched, blend_by
from treering.audit.megatron.report import LaunchedSteps, Unbound
from treering.audit.report import Finding
from treering.config.batch_schedule import BatchSchedule
from treering.config.megatron import MegatronRun
from treering.data.corpus.corpus import DOCUMENTS
from treering.data.corpus.document_table import DocumentTable
from treering.data.corpus.indexed import SequenceIndex
from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.cache import REDONE, CacheRead, read_order
from treering.data.megatron.cache_files import CachedIndex, FoundCache, find_cache
from treering.data.megatron.lineage import LINEAGES, Lineage
from treering.data.megatron.order import MegatronOrder, plan_datasets
from treering.errors import EvidenceError, UserError

_FEW = 3
_SAMPLE_BYTES = 20
"""Bytes of a sample in the indices: its place, its shuffled number, and its component."""

MOST_EPOCHS: Final = 10_000
"""The most epochs of a data path; the time of a rebuild grows with them."""


@dataclass(frozen=True)
class OrderedLaunch:
    """A launch whose order was rebuilt.

    Attributes:
        launched: its arguments.
        schedule: which samples each step read.
        done: steps before its first one.
        last_step: its last step up to the checkpoint.
        end_sample: samples consumed after that.
        cache: the order, and the cached indices of Megatron that were used for it.
        findings: contradictions in the arguments or the cache.
        open_ends: what the index cache and the token files leave open, in words.
        deciding_cache: the index cache that decided the lineage, or None.
        bound: in words, each input that the checkpoint only names and the index cache binds.
    """

    launched: Launched
    schedule: BatchSchedule
    done: int
    last_step: int
    end_sample: int
    cache: CacheRead
    findings: tuple[Finding, ...]
    open_ends: tuple[str, ...]
    deciding_cache: str | None
    bound: tuple[str, ...]

    @classmethod
    def open(cls, launched: Launched, before: "OrderedLaunch | None", *, verify: bool) -> "OrderedLaunch":
        """Rebuilds the order of a launch that continued where the launch before had ended.

        Raises:
            ConfigError: its batch schedule is not one of Megatron.
            UserError: a Megatron run cannot have such a blend, or the order ends before the checkpoint.
            EvidenceError: an `.idx` is missing or damaged.
        """
        run = launched.run
        done, first = (0, 0) if before is None else (before.last_step, before.end_sample)
        by_steps = before is not None and launched.lineages[0].resumes_by_steps
        first = done * run.global_batch_size if by_steps else first
        schedule = run.batch_schedule(done, first)
        last_step, end, findings = _progress(launched.file, run, schedule, counted=not by_steps)
        if before is not None and before.makes_order_of(launched):
            launched = replace(launched, lineages=before.launched.lineages)
            # Other steps of the same order.
            cache, open_ends, decider = before.cache, before.open_ends, before.deciding_cache
        else:
            blend_by(launched.lineages[0], run)  # refuses impossible arguments before files are read
            sources = [_index(place, entry.prefix) for place, entry in zip(launched.places, run.data, strict=True)]
            lengths = [source.lengths for source in sources]
            _check_epochs(launched, lengths)
            _check_memory(launched, lengths)
            try:
                lineages, decider = _decided_by_cache(launched, lengths, launched.lineages)
                launched = replace(launched, lineages=lineages)
                blend = blend_by(lineages[0], run)
                found = find_cache(blend, launched.cache, launched.places)
                cache = read_order(blend, lengths, plan_datasets(blend, lengths), found.indices, rebuild=verify)
                findings += _contradictions(launched, cache, lengths, end)
            except MemoryError as error:
                raise UserError(f"{launched.file}: an order of {run.num_samples} samples: {error}") from None
            launched = replace(launched, unbound=(*launched.unbound, *_shuffles_not_redone(cache)))
            open_ends = (*_left_open_by_files(launched, sources), *_left_open_by_cache(launched, found))
        binding = bind_by_cache(launched.unbound, cache, launched.cache)
        launched = replace(launched, unbound=binding.unbound)
        findings += [each for each in binding.findings if before is None or each not in before.findings]
        if end > cache.order.num_samples:
            raise UserError(
                f"{launched.file}: {end} samples consumed, the order ends after {cache.order.num_samples}; was the run "
                f"launched with {run.num_samples} train samples?"
            )
        return cls(launched, schedule, done, last_step, end, cache, tuple(findings), open_ends, decider, binding.bound)

    def makes_order_of(self, launched: Launched) -> bool:
        """Whether another launch has the same order, and only other steps of it."""
        own = self.launched
        same = (own.places, own.cache) == (launched.places, launched.cache) and own.lineages[0] in launched.lineages
        return same and self.order.blend == blend_by(own.lineages[0], launched.run)

    @property
    def order(self) -> MegatronOrder:
        """The data order."""
        return self.cache.order

    @property
    def first_sample(self) -> int:
        """Samples consumed before its first step."""
        return self.schedule.skipped_samples

    @cached_property
    def others(self) -> list[OtherOrder]:
        """The orders of other lineages that fit the launch, if they differ from its order."""
        return other_orders(self.order, self.launched.lineages[1:], self.end_sample)

    @cached_property
    def _components(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, part in enumerate(self.order.components):
            found.setdefault(part.corpus, []).append(number)
        return found

    def components(self, prefix: str) -> list[int]:
        """The components of a data path: several where the blend names it more than once, none of another path."""
        return self._components.get(prefix, [])

    def holders(self, order: MegatronOrder, prefix: str, document: int) -> NDArray[np.int64]:
        """The samples of the launch that hold a token of a document, by an order of its data paths, sorted.

        Raises:
            NotFoundError: no such document.
        """
        asked, (first, end) = np.array([document]), (self.first_sample, self.end_sample)
        found = [order.document_exposures(part, asked, first, end).sample for part in self.components(prefix)]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)

    def sample_range(self, step: int) -> tuple[int, int]:
        """The samples [start, end) of a step."""
        start, end = self.schedule.sample_range(step)
        return min(start, self.end_sample), min(end, self.end_sample)

    def summary(self) -> LaunchedSteps:
        """The launch as a report shows it."""
        return LaunchedSteps(
            file=str(self.launched.file),
            first_step=self.done + 1,
            last_step=self.last_step,
            first_sample=self.first_sample,
            num_samples=self.end_sample - self.first_sample,
            changed=self.launched.changed,
        )

    @cached_property
    def tables(self) -> list[DocumentTable | None]:
        """The document table beside each pair, None without a table of as many documents."""
        tables: list[DocumentTable | None] = []
        for component, place in zip(self.order.components, self.launched.places, strict=True):
            try:
                tables.append(DocumentTable(place.parent / DOCUMENTS, len(component.lengths)))
            except EvidenceError:  # missing, or of another corpus: documents have numbers alone
                tables.append(None)
        return tables


def index_of(place: Path) -> Path:
    """The `.idx` of a pair."""
    return Path(f"{place}.idx")


def _index(place: Path, prefix: str) -> SequenceIndex:
    index = index_of(place)
    try:
        index.stat()
    except (OSError, ValueError):
        expected = f"the index of the run's {prefix}"
        remedy = "name the folder that it is in today with --data-root OLD=NEW"
        raise EvidenceError(
            f"{index}: No such file, expected {expected}; {remedy}", file=index, expected=expected, remedy=remedy
        ) from None
    return SequenceIndex.open(index, Path(f"{place}.bin"))


def _check_memory(launched: Launched, lengths: Sequence[NDArray[np.int32]]) -> None:
    """Refuses an order that does not fit into the memory of this machine, before it is built.

    Raises:
        UserError: its indices need more memory.
    """
    plans = plan_datasets(blend_by(launched.lineages[0], launched.run), lengths)
    listed = sum(plan.num_epochs * (plan.end - plan.first) for plan in plans)
    needed = 4 * listed + _SAMPLE_BYTES * sum(plan.num_samples for plan in plans)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        raise UserError(
            f"{launched.file}: an order of {launched.run.num_samples:,} samples takes {needed / 1e9:,.1f} GB of "
            f"memory, expected at most the {memory / 1e9:,.1f} GB of this machine"
        )


def _left_open_by_files(launched: Launched, sources: Sequence[SequenceIndex]) -> Iterator[str]:
    """What the token files and their indices leave open."""
    for place, source in zip(launched.places, sources, strict=True):
        if not source.bin_found:
            yield f"That {place.name}.bin has as many tokens as {index_of(place)} lists: {place.name}.bin is missing."
        if source.num_documents not in (0, len(source.lengths)):
            yield (
                f"Which document a sequence of {index_of(place)} belongs to: it groups {len(source.lengths)} sequences "
                f"into {source.num_documents} documents. GPT reads sequences, and the numbers here are theirs."
            )


def _shuffles_not_redone(cache: CacheRead) -> Iterator[Unbound]:
    """Cached shuffles that were used without a rebuild."""
    if cache.read and not cache.redone:
        yield Unbound(
            f"The shuffles in {cache.read[0].name}"
            + (f" and {len(cache.read) - 1} more cached indices" if len(cache.read) > 1 else ""),
            f"All places of samples were recomputed; a shuffle of more than {REDONE:,} entries was only checked to be "
            "a permutation.",
            "`--verify` redoes them.",
        )


def _left_open_by_cache(launched: Launched, found: FoundCache) -> Iterator[str]:
    """What an index cache that is missing or cannot be read leaves open."""
    yield from (f"Whether an index cache of this run is damaged: {text}." for text in found.unread[:_FEW])
    if len(found.unread) > _FEW:
        yield f"Whether {len(found.unread) - _FEW} more descriptions, which cannot be read either, are of this run."
    if not found.indices:
        where = "beside the data" if launched.cache is None else f"in {launched.cache}"
        yield f"That no index cache of other data decided the order: none of this run was found {where}."


def _holds(lineage: Lineage, launched: Launched, lengths: Sequence[NDArray[np.int32]]) -> str | None:
    """The index cache that equals the rules of a lineage number by number, or None."""
    try:
        blend = blend_by(lineage, launched.run)
        found = find_cache(blend, launched.cache, launched.places)
        if not found.indices:
            return None
        read = read_order(blend, lengths, plan_datasets(blend, lengths), found.indices, rebuild=True)
    except UserError:  # no run of this lineage
        return None
    return None if read.stale or not read.read else read.read[0].name


def _decided_by_cache(
    launched: Launched, lengths: Sequence[NDArray[np.int32]], lineages: tuple[Lineage, ...]
) -> tuple[tuple[Lineage, ...], str | None]:
    """Of several lineages that fit a launch, those whose rules made its index cache, and that cache."""
    held = {lineage: _holds(lineage, launched, lengths) for lineage in lineages} if len(lineages) > 1 else {}
    fitting = tuple(lineage for lineage, name in held.items() if name is not None)
    return (fitting, held[fitting[0]]) if 0 < len(fitting) < len(lineages) else (lineages, None)


def _contradictions(
    launched: Launched, cache: CacheRead, lengths: Sequence[NDArray[np.int32]], end: int
) -> list[Finding]:
    """The contradictions of an index cache: to the data, or to the lineage if only another lineage makes this cache."""
    own = launched.lineages[0]
    for lineage in LINEAGES.values() if cache.stale or not cache.read else ():
        name = None if lineage in launched.lineages else _holds(lineage, launched, lengths)
        others = other_orders(cache.order, (lineage,), end) if name is not None else []
        if name is not None and (others or cache.stale):
            rules = "; ".join(others[0].rules) if others else "both make the same order of this run"
            text = (
                f"{name}: this index cache fits the lineage {lineage.name}, and the answers are by {own.name}: "
                f"{rules}. If this run made the cache, state --lineage {lineage.name}"
            )
            return [Finding("record", text, file=name)]
    return [_stale(cache.order.blend, index, difference) for index, difference in cache.stale]


def _check_epochs(launched: Launched, lengths: Sequence[NDArray[np.int32]]) -> None:
    """Refuses an order whose rebuild would take far longer than its data justify.

    Raises:
        UserError: a data path would be read more than 10,000 times.
    """
    blend = blend_by(launched.lineages[0], launched.run)
    for prefix, plan in zip(blend.prefixes, plan_datasets(blend, lengths), strict=True):
        if plan.num_epochs > MOST_EPOCHS:
            raise UserError(
                f"{launched.file}: the run asks for {plan.num_epochs:,} epochs of {prefix}, expected at most "
                f"{MOST_EPOCHS:,}: was it launched with {launched.run.num_samples:,} samples of "
                f"{launched.run.sequence_length:,} tokens, and is this its data path (--data-root)?"
            )


def _progress(
    source: Path, run: MegatronRun, schedule: BatchSchedule, *, counted: bool
) -> tuple[int, int, list[Finding]]:
    """Steps done and the last sample of the checkpoint, and findings where they do not fit the schedule.

    Args:
        source: what describes the run.
        run: the description.
        schedule: of the launch.
        counted: whether the launch's place in its order follows from the samples consumed.
    """
    iteration, consumed = run.iteration, run.consumed_samples if counted else None
    if iteration is None:
        iteration = schedule.step_of_sample((consumed or 1) - 1)
    expected = schedule.sample_range(iteration)[1]
    if consumed is None or consumed == expected:
        return iteration, expected, []
    text = (
        f"{source}: {consumed} samples consumed, the batch schedule has consumed {expected} after step {iteration}: "
        "iteration, consumed_samples, global_batch_size and rampup are not of one run; the answers are for "
        f"{consumed} samples"
    )
    return iteration, consumed, [Finding("record", text, file=str(source), step=iteration)]


def _stale(blend: MegatronBlend, index: CachedIndex, difference: str) -> Finding:
    return Finding(
        "corpus",
        f"{index.name}: this index cache was built from other data or settings, or is damaged: {difference}. Megatron "
        "names a cache by path and config, not content, and uses it without a warning: a run that started since "
        "then read today's tokens by the old index. The answers are by the rebuilt order; remove the cache before you "
        "train again",
        file=str(index.description),
        corpus=None if index.component is None else blend.prefixes[index.component],
    )
