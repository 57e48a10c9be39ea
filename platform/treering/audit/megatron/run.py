"""A Megatron run, and the answers about it: what the checkpoint read, what a step read, which steps read a document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treering.audit.megatron.alternatives import Comparison, OtherOrder, compare
from treering.audit.megatron.launch import OrderedLaunch, index_of
from treering.audit.megatron.report import (
    Alternative,
    DatasetUsage,
    DocumentPart,
    MegatronReport,
    ReadSample,
    Setting,
    Unbound,
    level_of,
    unbound_lineage,
)
from treering.audit.megatron.source import RunSource
from treering.audit.report import Finding, Level
from treering.config.canonical import digest_file
from treering.config.megatron import MegatronRun
from treering.data.megatron.order import MegatronOrder
from treering.data.order.contract import UNDEFINED_EPOCH, Sample
from treering.data.order.spans import Span
from treering.errors import NotFoundError, UserError

_NAMES = ("id", "source", "licence")


@dataclass(frozen=True)
class AuditedRun:
    """A Megatron run whose order was rebuilt.

    Attributes:
        described: the file or checkpoint that describes it, with its content.
        launches: the orders of its steps, one after the other; one, unless it was resumed with other arguments.
        verify: whether cached indices were compared with a rebuild.
    """

    described: RunSource
    launches: tuple[OrderedLaunch, ...]
    verify: bool

    @classmethod
    def open(
        cls, path: Path, *, verify: bool = False, moved: Mapping[str, str] | None = None, lineage: str | None = None
    ) -> "AuditedRun":
        """Reads the description and makes the order.

        Args:
            path: a checkpoint of Megatron, a save folder (the checkpoint that its tracker names), a YAML file, or a
                folder that holds `megatron-run.yaml`.
            verify: compare cached indices with a rebuild, number by number.
            moved: today's place of each folder that moved, by its name in the run.
            lineage: the lineage that the user states, or None.

        Raises:
            ConfigError: the description lacks a value that is needed.
            NotFoundError: neither a description nor a checkpoint was found.
            UserError: a Megatron run cannot have such a blend, its order cannot be rebuilt, or it ends before the
                checkpoint.
            EvidenceError: an `.idx` or a checkpoint is missing or damaged, or holds no launch arguments.
        """
        described = RunSource.open(path, moved or {}, lineage)
        launches: list[OrderedLaunch] = []
        for launched in described.launches:
            launches.append(OrderedLaunch.open(launched, launches[-1] if launches else None, verify=verify))
        return cls(described, tuple(launches), verify)

    @property
    def source(self) -> Path:
        """The file that describes the run."""
        return self.described.path

    @property
    def run(self) -> MegatronRun:
        """The arguments of the last launch."""
        return self.described.run

    @property
    def lineage(self) -> str:
        """By whose order the answers are, in the last launch."""
        return self.order.blend.lineage.name

    @property
    def iteration(self) -> int:
        """Steps done by the checkpoint."""
        return self.launches[-1].last_step

    @property
    def consumed_samples(self) -> int:
        """Samples that the checkpoint read."""
        return sum(launch.end_sample - launch.first_sample for launch in self.launches)

    @property
    def order(self) -> MegatronOrder:
        """The data order of the last launch."""
        return self.launches[-1].order

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        return (*self.described.findings, *(each for launch in self.launches for each in launch.findings))

    @property
    def unbound(self) -> tuple[Unbound, ...]:
        """What decides the order and is not confirmed."""
        parts = (self.described.unbound, *(launch.launched.unbound for launch in self.launches))
        return tuple(dict.fromkeys(each for part in parts for each in part))

    def unbound_at(self, step: int | None, alternatives: Sequence[Alternative] = ()) -> tuple[Unbound, ...]:
        """The unbound inputs that concern a step; all of them for a question that is not about one step.

        Args:
            step: the step, None for another question.
            alternatives: other lineages with another answer.
        """
        lineage = (unbound_lineage(self.lineage, alternatives),) if alternatives else ()
        return (*lineage, *(each for each in self.unbound if step is None or each.concerns(step)))

    def level(self, step: int | None = None, alternatives: Sequence[Alternative] = ()) -> Level:
        """The level of an answer about a step, or about the checkpoint."""
        return level_of(self.findings, self.unbound_at(step, alternatives))

    def report(self) -> MegatronReport:
        """What the checkpoint read."""
        alternatives = self.alternatives()
        return MegatronReport(
            source=str(self.source),
            lineage=self.lineage,
            alternatives=alternatives,
            settings=tuple(self._settings()),
            launches=tuple(launch.summary() for launch in self.launches),
            iteration=self.iteration,
            consumed_samples=self.consumed_samples,
            consumed_tokens=sum(
                (launch.end_sample - launch.first_sample) * launch.order.sequence_length for launch in self.launches
            ),
            skipped_steps=tuple(sorted(step for step in self._skipped if step <= self.iteration)),
            corpora=tuple(self._usage(prefix) for prefix in self._prefixes()),
            indices_read=tuple(dict.fromkeys(index.name for launch in self.launches for index in launch.cache.read)),
            bound=tuple(dict.fromkeys(text for launch in self.launches for text in launch.bound)),
            unbound=self.unbound_at(None, alternatives),
            level=self.level(alternatives=alternatives),
            verify=self.verify,
            findings=self.findings,
            not_proven=tuple(self._not_proven()),
        )

    def alternatives(self, step: int | None = None) -> tuple[Alternative, ...]:
        """Other lineages that fit the run and read other samples in a step, or up to the checkpoint.

        Raises:
            NotFoundError: the checkpoint did not do that step.
        """
        found: list[Alternative] = []
        for launch in self.launches if step is None else (self.launch_of(step),):
            first, last = (launch.done + 1, launch.last_step) if step is None else (step, step)
            lo, hi = launch.sample_range(first)[0], launch.sample_range(last)[1]
            found += [
                _alternative(other, (first, last), compare(launch.order, other.order, lo, hi))
                for other in launch.others
            ]
        return tuple(each for each in found if each.differ)

    def exposure_alternatives(self, document: str) -> tuple[Alternative, ...]:
        """Other lineages that fit the run and read a document in other samples.

        Raises:
            UserError, NotFoundError: as `exposures`.
        """
        prefix, number = self._named(document)
        found = []
        for launch in self.launches:
            own = launch.holders(launch.order, prefix, number)
            for other in launch.others:
                apart = np.setxor1d(own, launch.holders(other.order, prefix, number))
                counted = Comparison(launch.end_sample - launch.first_sample, len(apart))
                found.append(_alternative(other, (launch.done + 1, launch.last_step), counted))
        return tuple(each for each in found if each.differ)

    def step(self, step: int) -> tuple[ReadSample, ...]:
        """The samples of a step (from 1) with their documents.

        Raises:
            NotFoundError: the checkpoint did not do that step.
        """
        launch = self.launch_of(step)
        samples = launch.order.samples_with_spans(*launch.sample_range(step))
        return tuple(self._read(launch, sample, step, None) for sample in samples)

    def exposures(self, document: str) -> tuple[ReadSample, ...]:
        """The samples before the checkpoint that hold a token of a document, with those tokens.

        Args:
            document: `PREFIX:NUMBER`, the number of a sequence of the `.idx`.

        Raises:
            UserError: another form.
            NotFoundError: no such prefix or document.
        """
        prefix, number = self._named(document)
        return tuple(
            self._read(launch, launch.order.sample(g), launch.schedule.step_of_sample(g), number)
            for launch in self.launches
            for g in launch.holders(launch.order, prefix, number).tolist()
        )

    def _named(self, document: str) -> tuple[str, int]:
        """The data path and the number of a document.

        Raises:
            UserError: another form.
            NotFoundError: no such data path.
        """
        prefix, _, number = document.rpartition(":")
        if not prefix or not number.isdecimal():
            raise UserError(f"document {document!r}, expected PREFIX:NUMBER with the number of a sequence of the .idx")
        if not any(launch.components(prefix) for launch in self.launches):
            self.order.index_of(prefix)  # its error lists the data paths
        return prefix, int(number)

    def launch_of(self, step: int) -> OrderedLaunch:
        """The launch that did a step.

        Raises:
            NotFoundError: the checkpoint did not do that step.
        """
        if not 1 <= step <= self.iteration:
            raise NotFoundError(f"{self.source}: step {step} asked for, the checkpoint did steps 1 to {self.iteration}")
        return next(each for each in self.launches if step <= each.last_step)

    @cached_property
    def _skipped(self) -> frozenset[int]:
        """Steps that the run skipped; Megatron counts iterations from 0."""
        return frozenset(
            iteration + 1
            for launch in self.launches
            for iteration in launch.launched.run.iterations_to_skip
            if launch.done <= iteration < launch.last_step
        )

    def _prefixes(self) -> list[str]:
        """All data paths, in the order in which the last launch that named one has them."""
        launches = reversed(self.launches)
        return list(dict.fromkeys(part.corpus for launch in launches for part in launch.order.components))

    def _read(self, launch: OrderedLaunch, sample: Sample, step: int, document: int | None) -> ReadSample:
        parts = [span for span in sample.spans if document is None or span.document == document]
        return ReadSample(
            g=sample.g,
            step=step,
            skipped=step in self._skipped,
            corpus=launch.order.components[sample.component].corpus,
            epoch=None if sample.epoch == UNDEFINED_EPOCH else sample.epoch,
            documents=tuple(_part(launch, sample.component, span) for span in parts),
        )

    def _usage(self, prefix: str) -> DatasetUsage:
        """What all launches read of a data path; a path that a blend names twice counts once."""
        samples, tokens, epochs, mixed = 0, 0, 0.0, False
        touched: list[NDArray[np.bool_]] = []
        for launch in self.launches:
            order, end = launch.order, launch.end_sample
            for component in launch.components(prefix):
                part = order.components[component]
                read = order.count(component, end) - order.count(component, launch.first_sample)
                samples += read
                tokens += read * order.sequence_length
                epochs += read * order.sequence_length / part.plan.tokens
                mixed |= part.plan.epoch(0) == UNDEFINED_EPOCH
                touched.append(order.touched_between(component, launch.first_sample, end))
        last = next(launch for launch in reversed(self.launches) if launch.components(prefix))
        components = last.components(prefix)
        plan = last.order.components[components[0]].plan
        return DatasetUsage(
            corpus=prefix,
            index=digest_file(index_of(last.launched.places[components[0]])),
            weight=sum(last.order.components[component].weight for component in components),
            samples=samples,
            tokens=tokens,
            epochs=epochs,
            mixed_epochs=mixed,
            documents_touched=int(np.count_nonzero(np.logical_or.reduce(touched))),
            num_documents=plan.end - plan.first,
        )

    def _settings(self) -> Iterator[Setting]:
        """Each value with its origin; an index cache may have decided the lineage."""
        decider = self.launches[-1].deciding_cache
        for setting in self.described.settings:
            named = setting.name == "lineage" and decider is not None
            yield Setting("lineage", self.lineage, "cache", decider) if named else setting

    def _not_proven(self) -> list[str]:
        open_ends = [
            f"That the run was launched as described, and by the order of {self.lineage} with a sequential sampler: "
            "nothing recorded what it read.",
            "That the tokens under these paths are those that it read: an index holds their number, not their content.",
            "That no step was repeated, skipped or rolled back on the way to the checkpoint.",
            *(
                text
                for launch in self.launches
                for text in (*_agreeing(launch), *launch.launched.open_ends, *launch.open_ends)
            ),
            "That the blend's near ties were broken as on x86-64; a build for aarch64 may round once less.",
        ]
        return list(dict.fromkeys(open_ends))


def _alternative(other: OtherOrder, steps: tuple[int, int], counted: Comparison) -> Alternative:
    return Alternative(
        lineages=tuple(lineage.name for lineage in other.lineages),
        first_step=steps[0],
        last_step=steps[1],
        compared=counted.compared,
        differ=counted.differ,
        rules=other.rules,
    )


def _agreeing(launch: OrderedLaunch) -> Iterator[str]:
    """Which other lineages fit a launch and make the same order."""
    apart = {lineage for other in launch.others for lineage in other.lineages}
    same = [lineage.name for lineage in launch.launched.lineages[1:] if lineage not in apart]
    if same:
        yield (
            f"That the run's program follows {launch.order.blend.lineage.name}: {', '.join(same)} fit it too, and make "
            "the same order of it, or refuse it."
        )


def _part(launch: OrderedLaunch, component: int, span: Span) -> DocumentPart:
    table = launch.tables[component]
    names = {} if table is None else table.row(span.document)
    held = int(launch.order.components[component].lengths[span.document])
    return DocumentPart(span.document, span.start, span.end, held, *(names.get(name) for name in _NAMES))
