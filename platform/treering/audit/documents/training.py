"""The documents that trained a checkpoint: every one that its path read, with how much of it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treering.audit.corpora.catalog import Catalog, agree, find_corpora
from treering.audit.corpora.usage import corpus_reads, joined_reads
from treering.audit.documents.readers import missing_corpora
from treering.audit.evidence.segments import DerivedSegment, Piece
from treering.audit.recovered import CheckpointEvidence, recover_evidence
from treering.audit.report import Finding, Gap, Level, lowest, messages
from treering.config.schedule import Schedule
from treering.errors import EvidenceError, UserError
from treering.files import replace_durably
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory

_COLUMNS: Final = ("id", "source", "licence", "tokens")

SCHEMA: Final = pa.schema([
    pa.field("corpus", pa.string()),
    pa.field("number", pa.int64()),
    pa.field("id", pa.string()),
    pa.field("source", pa.string()),
    pa.field("licence", pa.string()),
    pa.field("tokens", pa.int64()),
    pa.field("tokens_read", pa.int64()),
])  # fmt: skip
"""Corpus and number of a document in it, its id, source and licence, its tokens, and how many tokens of it were read,
each as often as it was read. A document whose first token alone was read, as the last label of a sample, has 0."""


@dataclass(frozen=True, slots=True)
class TrainingDocuments:
    """The documents that a checkpoint, or some steps, read.

    Attributes:
        gaps: what is missing (corpora, records), and what is answered without it.
        findings: corpus sizes that were edited in a config; the list has the sizes of the corpora's manifests.
        level: level of assurance that the list can have; `audit_checkpoint` says whether the checkpoint reaches it.
    """

    gaps: tuple[Gap, ...]
    findings: tuple[Finding, ...]
    level: Level
    _pieces: tuple[Piece, ...]
    _catalog: Catalog

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The documents in the order of the corpora, a part of a document table at a time, with `SCHEMA`.

        Memory: a part of a table, and some bytes for each sample of an epoch of one corpus.

        Raises:
            EvidenceError: a table or an index cannot be read, or they contradict each other or the blend.
        """
        for corpus, reads in corpus_reads(self._pieces, self._catalog):
            offsets = self._catalog.offsets(corpus)
            for first, rows in corpus.batches(*_COLUMNS):
                part = offsets[first : first + len(rows) + 1]
                agree(corpus, range(first, first + len(rows)), np.diff(part), rows["tokens"])
                held, tokens = joined_reads(reads, part)
                at = np.flatnonzero(held)
                read = rows.take(pa.array(at))
                columns = [pa.array([corpus.name] * len(at)), pa.array(first + at)]
                columns += [read[name] for name in _COLUMNS]
                columns += [pa.array(tokens[at])]
                yield pa.RecordBatch.from_arrays(
                    [column.cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
                )

    def write(self, path: Path) -> int:
        """Writes the documents into a Parquet file, which appears when it is whole; returns their number.

        Raises:
            UserError: the path is a folder, or its folder is missing.
            EvidenceError: as `batches`.
        """
        if path.is_dir() or not path.parent.is_dir():
            problem = "is a folder" if path.is_dir() else "its folder is missing"
            raise UserError(f"{path}: {problem}; expected the Parquet file to write, as documents.parquet")
        beside, count = path.with_name(f".{path.name}.{os.getpid()}"), 0
        try:
            with pq.ParquetWriter(beside, SCHEMA, compression="zstd") as writer:
                for batch in self.batches():
                    writer.write_batch(batch)
                    count += len(batch)
            replace_durably(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        return count


def documents_of_steps(
    run: RunDirectory, steps: tuple[int, int], schedule: Schedule, project: Project
) -> TrainingDocuments:
    """The documents that steps of a run read, or would read, by a schedule and the run's data order.

    Args:
        run: the run.
        steps: the first and the last one.
        schedule: says which samples they read.
        project: where corpora are.

    Raises:
        EvidenceError: the run's config is missing, or contradicts a corpus's manifest.
    """
    piece = DerivedSegment(*steps, schedule, run.resolved.blend, run, None)
    catalog = find_corpora(project, [piece.blend], stored=True)
    catalog.check(piece.blend)
    gaps = tuple(
        Gap(each.text, f"the documents of all corpora but {each.corpus}", Level.RECORDED, corpus=each.corpus)
        for each in catalog.missing.values()
    )
    return TrainingDocuments(gaps, (), lowest(Level.RECORDED, gaps), (piece,), catalog)


def training_documents(checkpoint: CheckpointDirectory, project: Project) -> TrainingDocuments:
    """Finds the documents that a checkpoint read, by its records and the data order.

    Args:
        checkpoint: of a run's folder, or a published one.
        project: where corpora are.

    Returns:
        The documents, which are read from the corpora's tables as they are asked for. Documents of a corpus that is
        missing are not among them; `gaps` names the corpus.

    Raises:
        EvidenceError: neither manifest nor config can be read, so that no order is known.
    """
    return documents_of(recover_evidence(checkpoint, project))


def documents_of(evidence: CheckpointEvidence) -> TrainingDocuments:
    """`training_documents` for evidence that was read before.

    Args:
        evidence: from `recover_evidence`.

    Raises:
        EvidenceError: no config can be read, so that no order is known.
    """
    ancestry, catalog = evidence.ancestry, evidence.catalog
    if not evidence.pieces:
        raise EvidenceError(
            f"{'; '.join(messages(ancestry.gaps))}; the list of documents needs the data order",
            file=ancestry.checkpoint.run.config_file,
            step=ancestry.step,
        )
    gaps = (*ancestry.gaps, *missing_corpora(catalog, [ancestry]))
    level = lowest(Level.DECLARED if evidence.findings else Level.RECORDED, gaps)
    return TrainingDocuments(gaps, evidence.findings, level, evidence.pieces, catalog)
