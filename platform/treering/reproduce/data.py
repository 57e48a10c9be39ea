"""The first step at which two runs read other data, with the first sample and document that differ in that step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from treering.audit.documents.batch import BatchSample, StepBatch, step_batch
from treering.audit.documents.recorded_batch import recorded_batch
from treering.audit.recorded.difference import compare_recorded
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.metrics.doubts import Doubt
from treering.metrics.same_data import check_whole_batches, compare_batches, compare_data
from treering.project import Project
from treering.runlog.columns.fed import fed_of
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory


@dataclass(frozen=True, slots=True)
class ReadPart:
    """What of one run is at the first place that differs.

    Attributes:
        g: number of the sample in the data order.
        corpus: name of its corpus.
        document: the document, by its id in the corpus's table; empty where it is not known.
        source: where that document came from; empty likewise.
        start: first token of the part, counted in the document; in the corpus where no document is known.
        end: the token after its last one.
    """

    g: int
    corpus: str
    document: str
    source: str
    start: int
    end: int

    @property
    def words(self) -> str:
        """The part in words."""
        document = f"document {self.document}" if self.document else "of the corpus"
        return f"corpus {self.corpus}, {document}, tokens {self.start:,} to {self.end:,} (sample {self.g:,})"


@dataclass(frozen=True, slots=True)
class FirstRead:
    """The first place of a batch at which two runs read other tokens.

    Attributes:
        first: what the first run read there; None where its batch has no such sample.
        second: the same of the second run.
        text: the place in words.
    """

    first: ReadPart | None
    second: ReadPart | None
    text: str


@dataclass(frozen=True, slots=True)
class ReadComparison:
    """How far two runs read the same data.

    Attributes:
        compared_steps: steps whose data both runs recorded.
        equal_steps: compared steps before the first one that differs.
        first_step: the first step with other data; None where none differs.
        kind: `samples` where the sample numbers differ, `tokens` where the tokens of the same samples do; None where
            nothing differs.
        place: the first sample and document that differ; None where they are not known.
        doubts: what limits the answer.
    """

    compared_steps: int
    equal_steps: int
    first_step: int | None
    kind: Literal["samples", "tokens"] | None
    place: FirstRead | None
    doubts: tuple[Doubt, ...]


def compare_reads(
    first: AnyRun, second: AnyRun, project: Project | None = None, steps: range | None = None
) -> ReadComparison:
    """Compares what two runs were fed, step by step, along the path of each.

    Args:
        first: one run.
        second: the other run.
        project: where the corpora are; without it the documents are not named.
        steps: the steps that count; None: all that both have.

    Raises:
        EvidenceError: a ring was changed, removed or put in.
    """
    own = [each for each in (first, second) if isinstance(each, RunDirectory)]
    recorded = [each for each in (first, second) if isinstance(each, RecordedRunDirectory)]
    if len(own) == 2:
        return _compare_own(own, project, steps)
    try:
        for run in recorded:
            check_whole_batches(run)
    except UserError as error:
        if own:
            return _unknown(str(error), "call treering.start in one process that sees whole batches")
        return _with_place(_compare_ranks(recorded, steps), (first, second), project)
    found = compare_batches(*(fed_of(run).within(steps) for run in (first, second)))
    if not found.common_steps:
        return _unknown("no step of both runs says what it read", "pass tokens= to run.step")
    kind: Literal["tokens"] | None = None if found.first is None else "tokens"
    compared = ReadComparison(found.common_steps, found.equal_steps, found.first, kind, None, ())
    return _with_place(compared, (first, second), project)


def _unknown(text: str, remedy: str) -> ReadComparison:
    return ReadComparison(0, 0, None, None, None, (Doubt("missing", f"what both runs read: {text}", remedy),))


def _compare_ranks(runs: Sequence[RecordedRunDirectory], steps: range | None) -> ReadComparison:
    """Compares the samples of all ranks, in whatever order the ranks read them."""
    try:
        found = compare_recorded(*runs, steps=steps)
    except UserError as error:
        return _unknown(str(error), "pass tokens= to run.step")
    doubts = []
    if found.other_order:
        text = f"{found.other_order:,} steps have the same samples in another order or on other ranks"
        doubts.append(Doubt("limited", text, "a sum in another order rounds differently: compare runs of one layout"))
    kind: Literal["tokens"] | None = None if found.first_difference is None else "tokens"
    return ReadComparison(found.compared_steps, found.equal_steps, found.first_difference, kind, None, tuple(doubts))


def _compare_own(runs: Sequence[RunDirectory], project: Project | None, steps: range | None) -> ReadComparison:
    found = compare_data(*(fed_of(run).within(steps) for run in runs))
    if found.first is None:
        doubts = (
            () if found.equal_steps else _unknown("no step is in both", "`treering show RUN` shows the steps").doubts
        )
        return ReadComparison(found.equal_steps, found.equal_steps, None, None, None, doubts)
    compared = ReadComparison(found.compared_steps, found.equal_steps, found.first.step, found.first.kind, None, ())
    return _with_place(compared, runs, project)


def _with_place(found: ReadComparison, runs: Sequence[AnyRun], project: Project | None) -> ReadComparison:
    """The same comparison with the first sample and document that differ, where a project has the corpora."""
    step = found.first_step
    if step is None or project is None:
        return found
    place, gaps = None, []
    try:
        batches = [
            step_batch(run, step, project) if isinstance(run, RunDirectory) else recorded_batch(run, step, project)
            for run in runs
        ]
        place = _first_read(*batches)
        gaps = [Doubt("limited", gap.missing, f"without it: {gap.answered}") for each in batches for gap in each.gaps]
    except (EvidenceError, NotFoundError) as error:
        gaps = [Doubt("missing", f"the documents of step {step}", str(error))]
    return replace(found, place=place, doubts=(*found.doubts, *dict.fromkeys(gaps)))


def _first_read(first: StepBatch, second: StepBatch) -> FirstRead | None:
    """The first place of two batches of one step that differs, None where the orders give the same.

    A batch that is not what its order gives has no known documents: that is the difference then.
    """
    for name, batch in (("first", first), ("second", second)):
        if batch.recomputed_digest is not None and not batch.content_bound:
            text = (
                f"the {name} run was not fed what its data order gives: the ring of step {batch.step} has batch digest "
                f"{batch.recorded_digest}, the corpora give {batch.recomputed_digest}"
            )
            return FirstRead(None, None, text)
    for one, other in zip(first.samples, second.samples, strict=False):
        if (parts := next(_unequal(one, other), None)) is not None:
            return FirstRead(*parts, _text(first.step, *parts))
    count = min(len(first.samples), len(second.samples))
    left, right = (
        next(_parts(each.samples[count]), None) if len(each.samples) > count else None for each in (first, second)
    )
    if left or right:
        return FirstRead(left, right, _text(first.step, left, right))
    return None


def _unequal(one: BatchSample, other: BatchSample) -> Iterator[tuple[ReadPart, ReadPart]]:
    """The parts of two samples that differ; another version of a corpus is read in another order."""
    parts = list(_parts(one)), list(_parts(other))
    for pair in zip(*parts, strict=False):
        if replace(pair[0], g=0) != replace(pair[1], g=0):
            yield pair
    if len(parts[0]) != len(parts[1]):
        yield parts[0][-1], parts[1][-1]


def _parts(sample: BatchSample) -> Iterator[ReadPart]:
    """The parts of a sample; the whole sample where its documents are not known."""
    for each in sample.documents:
        yield ReadPart(sample.g, each.corpus, each.document, each.source, each.start, each.end)
    if not sample.documents:
        yield ReadPart(sample.g, sample.corpus, "", "", sample.first_token, sample.end_token)


def _text(step: int, first: ReadPart | None, second: ReadPart | None) -> str:
    sides = [each.words if each else "nothing more" for each in (first, second)]
    return f"step {step:,}: the first run read {sides[0]}; the second {sides[1]}"
