"""The evidence about a checkpoint, read once for every question about it."""

from dataclasses import dataclass

from treering.audit.corpora.catalog import Catalog, find_corpora
from treering.audit.corpora.repair import mend_blends
from treering.audit.evidence.recovery import RecoveredAncestry, recover_ancestry
from treering.audit.evidence.segments import Piece
from treering.audit.report import Finding
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory


@dataclass(frozen=True, slots=True)
class CheckpointEvidence:
    """The records of a checkpoint as far as they reach, and the corpora that it read.

    Attributes:
        ancestry: the way to the checkpoint, as its records have it.
        catalog: the corpora of its blends.
        pieces: the steps of the way, with the corpus sizes of the corpora's manifests.
        findings: the corpus sizes that were edited in a config.
    """

    ancestry: RecoveredAncestry
    catalog: Catalog
    pieces: tuple[Piece, ...]
    findings: tuple[Finding, ...]


def recover_evidence(checkpoint: CheckpointDirectory, project: Project) -> CheckpointEvidence:
    """Reads the records of a checkpoint as far as they reach, and finds the corpora that it read.

    Args:
        checkpoint: of a run's folder, or a published one.
        project: where corpora are.

    Raises:
        EvidenceError: neither manifest nor config can be read, so that no answer is possible.
    """
    ancestry = recover_ancestry(checkpoint, project)
    catalog = find_corpora(project, [piece.blend for piece in ancestry.pieces], stored=True)
    pieces, findings = mend_blends(ancestry.pieces, catalog)
    return CheckpointEvidence(ancestry, catalog, pieces, tuple(findings))
