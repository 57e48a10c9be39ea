"""What the page Data shows: the blend planned and realised, what curation dropped and why, sources of corpora."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import streamlit as st

from treering.audit.disclosure.facts import curated_corpora, dropped_by_rule
from treering.audit.report import AuditReport
from treering.config.resolved import Resolved
from treering.data.blend.shares import component_shares
from treering.data.corpus.corpus import Corpus
from treering.errors import TreeringError
from treering.project import Project
from treering_dashboard.frames.cached import Version, corpora_version, file_version, project

TAKEN: Final = "taken"
TRAINED: Final = "for training"
READ: Final = "read"


@dataclass(frozen=True, slots=True)
class CorpusShare:
    """One corpus of a blend up to a checkpoint, and at the end of the schedule.

    Attributes:
        corpus: name.
        licence: by its manifest, None where the corpus is missing.
        weight: planned share of the samples.
        share: realised share.
        tokens: read so far.
        tokens_at_end: by the end of the schedule.
        epochs: realised so far.
        planned_epochs: that the weight asks for so far.
        epochs_at_end: by the end of the schedule.
    """

    corpus: str
    licence: str | None
    weight: float
    share: float
    tokens: int
    tokens_at_end: int
    epochs: float
    planned_epochs: float
    epochs_at_end: float


def corpus_shares(report: AuditReport, resolved: Resolved) -> list[CorpusShare]:
    """The corpora that a checkpoint read, in the blend's order.

    Args:
        report: the checkpoint's audit.
        resolved: its run's config.
    """
    schedule, blend = resolved.schedule, resolved.blend
    now, end = schedule.sample_range(report.step)[1], schedule.sample_range(schedule.num_steps)[1]
    left = {each.corpus: each for each in component_shares(blend, now, max(now, end))}
    total = sum(usage.samples for usage in report.corpora)
    found = []
    for usage in report.corpora:
        more = left.get(usage.corpus)
        found.append(
            CorpusShare(
                corpus=usage.corpus,
                licence=usage.licence,
                weight=float(usage.weight),
                share=usage.samples / total if total else 0.0,
                tokens=usage.tokens,
                tokens_at_end=usage.tokens + (more.samples * blend.sequence_length if more else 0),
                epochs=usage.realised_epochs,
                planned_epochs=usage.planned_epochs,
                epochs_at_end=usage.realised_epochs + (more.epochs if more else 0.0),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the way from text to training.

    Attributes:
        name: of the step of curation, or `TAKEN`, `TRAINED` or `READ`.
        documents: that are left after it, over all corpora.
        dropped: that it dropped.
    """

    name: str
    documents: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Why documents were dropped.

    Attributes:
        stage: the step of curation.
        rule: its rule; empty where the summary of curation is not of these corpora.
        documents: by corpus.
    """

    stage: str
    rule: str
    documents: Mapping[str, int]

    @property
    def total(self) -> int:
        """Documents over all corpora."""
        return sum(self.documents.values())


def funnel(report: AuditReport) -> tuple[list[Stage], list[str]]:
    """Documents at each stage of the corpora that are here and were curated; and the names of the others."""
    curated = [usage for usage in report.corpora if usage.curation]
    others = [usage.corpus for usage in report.corpora if not usage.curation]
    if not curated:
        return [], others
    names = list(dict.fromkeys(step.step for usage in curated for step in usage.curation))
    taken = sum(usage.curation[0].kept + usage.curation[0].dropped for usage in curated)
    stages, left = [Stage(TAKEN, taken, 0)], taken
    for name in names:
        dropped = sum(step.dropped for usage in curated for step in usage.curation if step.step == name)
        left -= dropped
        if dropped:
            stages.append(Stage(name, left, dropped))
    held = sum(usage.num_documents or 0 for usage in curated)
    stages.append(Stage(TRAINED, held, left - held))
    stages.append(Stage(READ, sum(usage.documents_touched or 0 for usage in curated), 0))
    return stages, others


def reasons(report: AuditReport) -> list[Reason]:
    """What curation dropped by step and rule, most documents first within a step."""
    here = project()
    seen = corpora_version() + file_version(here.curated, "summary.json")
    found: dict[tuple[str, str], dict[str, int]] = {}
    for usage in report.corpora:
        rules = _rules(here, Path(usage.path), seen) if usage.path else None
        for step in usage.curation:
            by_rule = (rules or {}).get(step.step) or ({"": step.dropped} if step.dropped else {})
            for rule, count in by_rule.items():
                found.setdefault((step.step, rule), {})[usage.corpus] = count
    steps = list(dict.fromkeys(step.step for usage in report.corpora for step in usage.curation))
    every = [Reason(step, rule, counts) for (step, rule), counts in found.items()]
    return sorted(every, key=lambda each: (steps.index(each.stage), -each.total))


def sources(report: AuditReport) -> dict[str, tuple[str, ...]]:
    """Package URLs of the sources of each corpus, or the digest of its raw text; empty where the corpus is missing."""
    seen = corpora_version()
    return {usage.corpus: _sources(Path(usage.path), seen) if usage.path else () for usage in report.corpora}


@st.cache_data(max_entries=64, show_spinner=False)
def _sources(path: Path, version: Version) -> tuple[str, ...]:
    del version  # part of the key alone
    try:
        return tuple(map(str, Corpus.open(path).manifest["source"]))
    except TreeringError:
        return ()


@st.cache_data(max_entries=64, show_spinner=False)
def _rules(here: Project, path: Path, version: Version) -> Mapping[str, Mapping[str, Any]] | None:
    del version  # part of the key alone
    try:
        return dropped_by_rule(Corpus.open(path), curated_corpora(here))
    except TreeringError:
        return None
