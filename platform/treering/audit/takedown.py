"""From a list of documents that must go to the checkpoints that saw them, or their recorded near-duplicates.

Curation's decisions say what became of every raw document and which were near-duplicates of each other: a document that
was dropped for its twin lives on in the twin.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from treering.audit.content import Progress, quiet
from treering.audit.exposure import CheckpointExposure, TracedDocument, corpora_of, find_exposures, project_runs
from treering.audit.selection import Selector
from treering.data.corpus import Corpus
from treering.errors import UserError
from treering.project import Project

_COLUMNS = ["corpus", "id", "source", "licence", "kept", "step", "rule", "near_duplicate_of", "cluster", "split"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one entry of the list.

    Attributes:
        asked: the entry.
        documents: documents of training corpora that it names.
        near_duplicates: further ones that curation recorded as near-duplicates of a document that it names.
        fate: what curation decided about the documents that it names, in words with their number.
    """

    asked: str
    documents: int
    near_duplicates: int
    fate: dict[str, int]

    @property
    def known(self) -> bool:
        """Whether any corpus or decision knows what it names."""
        return bool(self.documents or self.fate)


@dataclass(frozen=True, slots=True)
class TakenDocument:
    """A document of a training corpus that is to go.

    Attributes:
        asked: the first entry of the list that leads to it.
        near_duplicate: whether only a near-duplicate of it was named.
        document: the document with its exposures.
    """

    asked: str
    near_duplicate: bool
    document: TracedDocument


@dataclass(frozen=True, slots=True)
class Takedown:
    """Which checkpoints saw any of the documents of a list.

    Attributes:
        entries: the list.
        num_documents: documents of training corpora that are to go, near-duplicates included.
        documents: those of them that were asked to be shown.
        checkpoints: every checkpoint of every run.
        unanswered: what could not be looked into.
    """

    entries: tuple[Entry, ...]
    num_documents: int
    documents: tuple[TakenDocument, ...]
    checkpoints: tuple[CheckpointExposure, ...]
    unanswered: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values, with the verdict of each checkpoint."""
        return {
            **asdict(self),
            "checkpoints": [{**asdict(each), "clean": each.clean} for each in self.checkpoints],
        }


def read_list(path: Path) -> list[Selector]:
    """Reads a list from a file.

    Raises:
        UserError: it cannot be read, is empty, or a line is no entry.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: found an unreadable file ({error}), expected a list of documents") from None
    return parse_list(text, str(path))


def parse_list(text: str, name: str) -> list[Selector]:
    """Reads a list: one entry a line, empty lines and what follows ` #` left out.

    Args:
        text: the list.
        name: what to call it in errors.

    Raises:
        UserError: it is empty, or a line is no entry.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = "" if line.startswith("#") else line.partition(" #")[0].strip()
        try:
            found += [Selector.parse(entry)] if entry else []
        except UserError as error:
            raise UserError(f"{name} line {number}: {error}") from None
    if not found:
        raise UserError(f"{name}: found no entry, expected lines like CORPUS:ID, source=PATTERN or licence=NAME")
    return found


def takedown(
    project: Project, selectors: Sequence[Selector], *, limit: int | None = None, progress: Progress = quiet
) -> Takedown:
    """Finds every checkpoint that saw one of some documents or a recorded near-duplicate.

    Args:
        project: the project.
        selectors: what is to go.
        limit: how many documents to name with their exposures, None for all.
        progress: told about the slow parts.

    Raises:
        EvidenceError: a document table at hand cannot be read.
    """
    runs = project_runs(project)
    shelf, unanswered = corpora_of(project, runs)
    decisions = _Decisions(project, unanswered)
    entries: list[Entry] = []
    owners: dict[tuple[str, int], tuple[str, bool]] = {}
    for selector in selectors:
        fate, names, twins = decisions.about(selector)
        counts = {False: 0, True: 0}
        for digest, corpus in shelf.corpora.items():
            named = np.union1d(selector.matches(corpus), _numbers(corpus, names))
            near = np.setdiff1d(_numbers(corpus, twins), named)
            for is_twin, numbers in ((False, named), (True, near)):
                counts[is_twin] += len(numbers)
                for number in numbers.tolist():
                    owners.setdefault((digest, number), (str(selector), is_twin))
        entries.append(Entry(str(selector), counts[False], counts[True], fate))
    documents: dict[str, NDArray[np.int64]] = {
        digest: np.array(sorted(number for each, number in owners if each == digest), dtype=np.int64)
        for digest in dict.fromkeys(digest for digest, _number in owners)
    }
    exposed = find_exposures(runs, documents, shelf, progress)
    checkpoints = tuple(exposed.checkpoints())
    taken = (
        TakenDocument(asked, near, each)
        for each in exposed.traced(limit)
        for asked, near in (owners[each.corpus_digest, each.number],)
    )
    return Takedown(
        tuple(entries), exposed.num_documents, tuple(taken), checkpoints, (*unanswered, *exposed.unanswered)
    )


class _Decisions:
    """Curation's decisions, read a row group at a time.

    Args:
        project: the project.
        unanswered: told where there are none.
    """

    def __init__(self, project: Project, unanswered: list[str]) -> None:
        folder = project.curated / "decisions"
        self._files = sorted(folder.glob("*.parquet"))
        if not self._files:
            unanswered.append(
                f"{folder}: no decisions of curation, near-duplicates cannot be told; `dvc checkout` brings them back"
            )

    def about(self, selector: Selector) -> tuple[dict[str, int], set[str], set[str]]:
        """What became of the documents that a selector names.

        Returns:
            The number of documents by fate; their names (`corpus:id`), and those of their near-duplicates.
        """
        named = list(self._rows(lambda batch: _matching(selector, batch)))
        fate: dict[str, int] = {}
        for row in named:
            words = f"kept for {row['split']}" if row["kept"] else f"dropped by {row['step']}: {row['rule']}"
            fate[words] = fate.get(words, 0) + 1
        names = {_name(row) for row in named}
        clusters = {row["cluster"] for row in named} - {None}
        originals = {row["near_duplicate_of"] for row in named} - {None}
        if not clusters and not originals:
            return fate, names, set()

        def related(batch: pa.RecordBatch) -> pa.Array:
            corpus_and_id = pc.binary_join_element_wise(batch["corpus"], batch["id"], ":")
            near = pc.is_in(batch["cluster"], pa.array(sorted(clusters), pa.string()))
            kept = pc.is_in(corpus_and_id, pa.array(sorted(originals), pa.string()))
            dropped = pc.is_in(batch["near_duplicate_of"], pa.array(sorted(names), pa.string()))
            return pc.or_(pc.or_(near, kept), dropped)

        return fate, names, ({_name(row) for row in self._rows(related)} | originals) - names

    def _rows(self, wanted: Callable[[pa.RecordBatch], pa.Array]) -> Iterable[dict[str, Any]]:
        for path in self._files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=_COLUMNS):
                    yield from batch.filter(wanted(batch)).to_pylist()


def _matching(selector: Selector, batch: pa.RecordBatch) -> pa.Array:
    mask = selector.mask(batch)
    return pc.and_(mask, pc.equal(batch["corpus"], selector.corpus)) if selector.kind == "document" else mask


def _name(row: dict[str, Any]) -> str:
    return f"{row['corpus']}:{row['id']}"


def _numbers(corpus: Corpus, names: set[str]) -> NDArray[np.int64]:
    """Numbers of a corpus's documents among some names, ascending."""
    prefix = f"{corpus.name}:"
    ids = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    if not ids:
        return np.empty(0, dtype=np.int64)
    mask = pc.is_in(corpus.column("id"), pa.array(ids, pa.string()))
    return np.flatnonzero(np.asarray(mask)).astype(np.int64)
