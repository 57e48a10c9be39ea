"""Answers of the audit kept until a file that they depend on changes.

The key is the question and the size and time of each of those files, as in `cached`. Batches of large runs are kept
without a copy for each visitor: nobody can change them.
"""

from pathlib import Path

import streamlit as st

from treering.audit.documents.batch import StepBatch, step_batch
from treering.audit.documents.selection import Selector
from treering.audit.documents.spike import SpikeData, spike_data
from treering.audit.documents.takedown import Takedown, takedown
from treering.audit.documents.text import TextTrace, trace_text
from treering.audit.documents.trace import DocumentTrace, trace_documents
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.errors import TreeringError
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering_dashboard.frames.cached import Version, corpora_version, file_version, project, runs_version, version

_FEW, _SOME = 4, 16


def batch_of(run: RunDirectory, step: int, rank: int | None) -> StepBatch:
    """The documents of a step, of all ranks or one.

    Raises:
        TreeringError: see `step_batch`.
    """
    return _batch(project(), run.path, step, rank, version(run) + corpora_version())


@st.cache_resource(max_entries=_FEW, show_spinner="Cutting the step's samples from the corpora …")
def _batch(project: Project, run: Path, step: int, rank: int | None, version: Version) -> StepBatch:
    del version  # part of the key alone
    return step_batch(RunDirectory(run), step, project, rank)


def spike_of(run: RunDirectory, step: int, before: int) -> SpikeData:
    """What the steps before a step read.

    Raises:
        TreeringError: see `spike_data`.
    """
    return _spike(project(), run.path, step, before, runs_version() + corpora_version())


@st.cache_resource(max_entries=_FEW, show_spinner="Looking for the same samples in other steps …")
def _spike(project: Project, run: Path, step: int, before: int, version: Version) -> SpikeData:
    del version  # part of the key alone
    return spike_data(RunDirectory(run), step, project, before)


def documents_trace(asked: Selector, limit: int) -> DocumentTrace:
    """What read some documents.

    Raises:
        TreeringError: see `trace_documents`.
    """
    return _documents_trace(project(), str(asked), limit, runs_version() + corpora_version())


@st.cache_data(max_entries=_SOME, show_spinner="Looking into every attempt …")
def _documents_trace(project: Project, asked: str, limit: int, version: Version) -> DocumentTrace:
    del version  # part of the key alone
    return trace_documents(project, [Selector.parse(asked)], limit=limit)


def text_trace(text: str) -> TextTrace:
    """Which documents hold a text, and what read them.

    Raises:
        TreeringError: see `trace_text`.
    """
    index = file_version(project().index, "[!.]*/*")
    return _text_trace(project(), text, runs_version() + corpora_version() + index)


@st.cache_data(max_entries=_SOME, show_spinner="Looking for the text …")
def _text_trace(project: Project, text: str, version: Version) -> TextTrace:
    del version  # part of the key alone
    return trace_text(project, text)


def takedown_of(asked: tuple[str, ...], limit: int) -> Takedown:
    """Which checkpoints saw one of some documents.

    Raises:
        TreeringError: see `takedown`.
    """
    decisions = file_version(project().curated, "decisions/*.parquet")
    return _takedown(project(), asked, limit, runs_version() + corpora_version() + decisions)


@st.cache_data(max_entries=_SOME, show_spinner="Looking into curation's decisions and every attempt …")
def _takedown(project: Project, asked: tuple[str, ...], limit: int, version: Version) -> Takedown:
    del version  # part of the key alone
    return takedown(project, [Selector.parse(each) for each in asked], limit=limit)


def licences() -> list[str]:
    """Licences of the documents of all training corpora that can be read, in order."""
    return _licences(project(), corpora_version())


@st.cache_data(max_entries=_FEW, show_spinner=False)
def _licences(project: Project, version: Version) -> list[str]:
    del version  # part of the key alone
    found: set[str] = set()
    for manifest in project.corpora.glob(f"train/*/{MANIFEST}"):
        try:
            for _, batch in Corpus.open(manifest.parent).batches("licence"):
                found.update(batch["licence"].unique().to_pylist())
        except TreeringError:  # an answer about it says so
            continue
    return sorted(found)
