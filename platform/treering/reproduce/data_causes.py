"""Why two trainings read other data at a step: from their blends and schedules, and from the corpora where they are.

The data order is a pure function of the blend, so no training is needed: each changed part of the blend is put into the
first blend alone, and the samples of the step are computed again.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from treering.audit.corpora.catalog import find_corpora
from treering.audit.documents.batch import step_batch
from treering.config.canonical import short
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.data.corpus.corpus import Corpus
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.project import Project
from treering.reproduce.candidates import Candidate, Outcome
from treering.reproduce.listed import listed
from treering.runlog.directory import RunDirectory

_NAMED_DOCUMENTS: Final = 1 << 20
"""Documents of a corpus up to which changed documents are named."""


def data_candidates(first: RunDirectory, second: RunDirectory, step: int, project: Project | None) -> list[Candidate]:
    """What may have made the data of a step differ, each tested as far as records and corpora allow.

    Args:
        first: the first training.
        second: the second training.
        step: the first step at which their data differ.
        project: where the corpora are; None where only the order is compared.

    Raises:
        EvidenceError: a config or a corpus does not hold.
    """
    one, two = (run.resolved.blend for run in (first, second))
    found = [*_schedule(first, second, step)]
    span = first.resolved.schedule.sample_range(step)
    found += [_tested_order(*each, one, span) for each in _changes(one, two)]
    found += [_tested_corpus(a, b, one, span, project) for a, b in _changed_corpora(one, two)]
    if not found:
        found = [_fed_otherwise(first, second, step, project)]
    causes = [each for each in found if each.outcome == "cause"]
    if len(causes) > 1:
        found = [each.found("part", each.evidence) if each in causes else each for each in found]
    return found


def _schedule(first: RunDirectory, second: RunDirectory, step: int) -> Iterator[Candidate]:
    """Another range of samples in the step, whatever the blends are."""
    ranges = [run.resolved.schedule.sample_range(step) for run in (first, second)]
    if ranges[0] != ranges[1]:
        text = f"batch schedule: samples {ranges[0]} to samples {ranges[1]} in step {step}"
        yield Candidate("data", text, "cause", "the schedules give these ranges")


def _changes(one: ResolvedBlend, two: ResolvedBlend) -> Iterator[tuple[str, Callable[[ResolvedBlend], ResolvedBlend]]]:
    """Each changed part of the order in words, and how the first blend gets it."""
    for name in ("seed", "sequence_length", "continues"):
        values = [getattr(each, name) for each in (one, two)]
        if values[0] != values[1]:
            yield f"blend: {name} {values[0]} to {values[1]}", _with(**{name: values[1]})
    names = [[each.corpus for each in blend.components] for blend in (one, two)]
    if names[0] != names[1]:
        yield f"blend: corpora {', '.join(names[0])} to {', '.join(names[1])}", _with(components=two.components)
        return
    weights = [
        f"{a.corpus} {a.weight} to {b.weight}"
        for a, b in zip(one.components, two.components, strict=True)
        if a.weight != b.weight
    ]
    if weights:
        pairs = zip(one.components, two.components, strict=True)
        changed = tuple(a.model_copy(update={"weight": b.weight}) for a, b in pairs)
        yield f"blend: weight of {', '.join(weights)}", _with(components=changed)


def _with(**fields: Any) -> Callable[[ResolvedBlend], ResolvedBlend]:
    return lambda blend: blend.model_copy(update=fields)


def _changed_corpora(one: ResolvedBlend, two: ResolvedBlend) -> Iterator[tuple[ResolvedComponent, ResolvedComponent]]:
    """The corpora that have one name and other content."""
    others = {each.corpus: each for each in two.components}
    for each in one.components:
        other = others.get(each.corpus)
        if other is not None and other.digest != each.digest:
            yield each, other


def _tested_order(
    text: str, change: Callable[[ResolvedBlend], ResolvedBlend], blend: ResolvedBlend, span: tuple[int, int]
) -> Candidate:
    """Whether a change of the blend gives the step other samples, by the order alone."""
    try:
        orders = [DataOrder(each) for each in (blend, change(blend))]
        samples = [order.samples(*span) for order in orders]
    except UserError as error:
        return Candidate("data", text, "untested", f"needs an order of this blend: {error}")
    same = orders[0].sequence_length == orders[1].sequence_length and all(
        np.array_equal(getattr(samples[0], name), getattr(samples[1], name)) for name in ("component", "epoch", "index")
    )
    outcome: Outcome = "not_cause" if same else "cause"
    return Candidate("data", text, outcome, f"it alone gives the step {'the same' if same else 'other'} samples")


def _tested_corpus(
    one: ResolvedComponent,
    two: ResolvedComponent,
    blend: ResolvedBlend,
    span: tuple[int, int],
    project: Project | None,
) -> Candidate:
    """Whether a corpus with other content gives the step other samples; names the documents that changed.

    The order of a corpus is shuffled by its digest, so one changed document moves all of them.

    Raises:
        EvidenceError: a corpus does not hold.
    """
    text = f"corpus {one.corpus}: content {_brief(one.digest)} to {_brief(two.digest)}"
    components = [two.model_copy(update={"weight": one.weight}) if each is one else each for each in blend.components]
    changed = blend.model_copy(update={"components": tuple(components)})
    catalog = find_corpora(project, [blend, changed]) if project is not None else None
    corpora = [None if catalog is None else catalog.corpora.get(each.digest or "") for each in (one, two)]
    found = _tested_order(text, _with(components=changed.components), blend, span)
    if corpora[0] is None or corpora[1] is None:
        return found.found(
            found.outcome, f"{found.evidence}; both versions of the corpus below data/corpora would name the documents"
        )
    return replace(found, text=f"{text}: {_changed_documents(corpora[0], corpora[1])}")


def _changed_documents(one: Corpus, two: Corpus) -> str:
    """The documents whose tokens are not the same in two versions of a corpus, in words."""
    if max(one.num_documents, two.num_documents) > _NAMED_DOCUMENTS:
        return f"more than {_NAMED_DOCUMENTS:,} documents, which were not compared"
    tables = [
        dict(zip(batch["id"].to_pylist(), batch["digest"].to_pylist(), strict=True))
        for corpus in (one, two)
        for batch in [pa.Table.from_batches([each for _, each in corpus.batches("id", "digest")])]
    ]
    changed = [
        f"document {name} {'changed' if name in tables[0] and name in tables[1] else 'is in one version only'}"
        for name in dict.fromkeys([*tables[0], *tables[1]])
        if tables[0].get(name) != tables[1].get(name)
    ]
    return listed(changed, 3)


def _fed_otherwise(first: RunDirectory, second: RunDirectory, step: int, project: Project | None) -> Candidate:
    """Of two trainings by one order: which was fed other tokens than the order gives."""
    text, needs = "fed: the orders are the same, so a run was not fed what its order gives", "needs the corpora"
    try:
        batches = [] if project is None else [step_batch(run, step, project) for run in (first, second)]
    except (EvidenceError, NotFoundError) as error:
        return Candidate("data", text, "untested", f"{needs}: {error}")
    if not batches or any(each.recomputed_digest is None for each in batches):
        return Candidate("data", text, "untested", needs)
    wrong = [name for name, each in zip(("first", "second"), batches, strict=True) if not each.content_bound]
    named = f"is not that of the {' and the '.join(wrong)} run" if wrong else "is that of both runs"
    evidence = f"recomputed from the corpora, the batch of step {step} {named}"
    return Candidate("data", text, "cause" if wrong else "not_cause", evidence)


def _brief(digest: str | None) -> str:
    return "declared" if digest is None else short(digest)
