"""The facts about a checkpoint and its corpora, gathered once for every form of disclosure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from treering.audit.attestation.check import attested
from treering.audit.attestation.place import find_attestation
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.report import AuditReport, CorpusUsage
from treering.config.resolved import Resolved
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.data.corpus.manifest import read_manifest
from treering.data.curate.decisions import steps_of
from treering.errors import EvidenceError
from treering.files import read_bytes
from treering.metrics.parameters import Parameters
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.records import CheckpointManifest, Evaluation

if TYPE_CHECKING:
    from treering.audit.attestation.keys import PublicKey


@dataclass(frozen=True, slots=True)
class LicenceShare:
    """Documents of a corpus under one licence.

    Attributes:
        licence: as the document table says.
        documents: how many.
        tokens: in them.
    """

    licence: str
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """A corpus that a checkpoint read.

    Attributes:
        usage: what was read of it.
        manifest: its manifest, None if the corpus is missing.
        licences: of its documents, most tokens first; empty if the corpus is missing.
        dropped: documents that curation dropped, by step and rule; None if the project's summary is not of this corpus.
    """

    usage: CorpusUsage
    manifest: Mapping[str, Any] | None
    licences: tuple[LicenceShare, ...]
    dropped: Mapping[str, Mapping[str, int]] | None

    @property
    def sources(self) -> tuple[str, ...]:
        """Package URLs of its sources, or the digest of its raw text; empty if the corpus is missing."""
        return () if self.manifest is None else tuple(self.manifest["source"])

    @property
    def num_tokens(self) -> int:
        """Tokens that it holds; 0 if the corpus is missing."""
        return 0 if self.manifest is None else int(self.manifest["num_tokens"])

    @property
    def steps(self) -> tuple[Mapping[str, Any], ...]:
        """Curation steps that made it, as its manifest holds them."""
        return () if self.manifest is None else tuple(self.manifest["curation"])

    def parameter(self, step: str, name: str) -> Any:
        """A parameter of a curation step, None where the manifest says nothing of it."""
        return next((each.get("parameters", {}).get(name) for each in self.steps if each["step"] == step), None)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A checkpoint and everything on record about what made it.

    Attributes:
        report: its audit.
        resolved: the run's config.
        manifest: the checkpoint's manifest.
        corpora: what it read.
        evaluation: its scores, None if it was not evaluated.
        attestation: the signed statement beside it, None if there is none.
    """

    report: AuditReport
    resolved: Resolved
    manifest: CheckpointManifest
    corpora: tuple[CorpusFacts, ...]
    evaluation: Evaluation | None
    attestation: Path | None

    @property
    def name(self) -> str:
        """The model's name with its version: experiment, run and step."""
        return f"{self.report.experiment} {self.report.run} step {self.report.step}"

    @property
    def parameters(self) -> str:
        """How many parameters the model has, in words."""
        count = Parameters.of(self.resolved.recipe.model, self.resolved.blend.sequence_length).total
        return f"{count:,} parameters"


def gather(
    checkpoint: CheckpointDirectory,
    project: Project,
    *,
    verify: bool = False,
    trusted: Sequence["PublicKey"] = (),
    progress: Progress = quiet,
) -> ModelFacts:
    """Audits a checkpoint and gathers what its corpora and run say.

    Args:
        checkpoint: the checkpoint.
        project: where corpora and the summary of curation are.
        verify: whether the audit reads content.
        trusted: keys whose signature under an attestation counts.
        progress: is called with the state of the slow parts.

    Raises:
        EvidenceError: the audit has findings, so nothing is written.
    """
    report = attested(audit_checkpoint(checkpoint, project, verify, progress), checkpoint, trusted)
    if report.findings:
        raise EvidenceError(
            f"{checkpoint.path}: the audit found what does not hold, so nothing is written about it: "
            f"{report.findings[0].text}; `treering audit` shows all",
            file=checkpoint.path,
            remedy="`treering audit`",
        )
    resolved, curated = checkpoint.run.resolved, curated_corpora(project)
    scores = [each for each in checkpoint.run.evaluations() if each.checkpoint == checkpoint.digest]
    return ModelFacts(
        report=report,
        resolved=resolved,
        manifest=checkpoint.manifest,
        corpora=tuple(_corpus(usage, curated) for usage in report.corpora),
        evaluation=scores[-1] if scores else None,
        attestation=find_attestation(checkpoint),
    )


def _corpus(usage: CorpusUsage, curated: Mapping[str, Any]) -> CorpusFacts:
    if usage.path is None:
        return CorpusFacts(usage, None, (), None)
    folder = Path(usage.path)
    corpus = Corpus(folder, read_manifest(folder / MANIFEST))
    return CorpusFacts(usage, corpus.manifest, licences(corpus), dropped_by_rule(corpus, curated))


def licences(corpus: Corpus) -> tuple[LicenceShare, ...]:
    """Documents and tokens of a corpus by licence, by its document table.

    Raises:
        EvidenceError: the table cannot be read.
    """
    found: dict[str, tuple[int, int]] = {}
    for _, batch in corpus.batches("licence", "tokens"):
        grouped = pa.table(batch).group_by("licence").aggregate([("tokens", "count"), ("tokens", "sum")])
        for row in grouped.to_pylist():
            documents, tokens = found.get(row["licence"], (0, 0))
            found[row["licence"]] = documents + row["tokens_count"], tokens + row["tokens_sum"]
    most_first = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))
    return tuple(LicenceShare(licence, documents, tokens) for licence, (documents, tokens) in most_first)


def curated_corpora(project: Project) -> Mapping[str, Any]:
    """The summary of the project's last curation by corpus; empty if there is none."""
    try:
        summary: Mapping[str, Any] = json.loads(read_bytes(project.curated / "summary.json"))["corpora"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return summary


def dropped_by_rule(corpus: Corpus, curated: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]] | None:
    """What curation dropped by step and rule, if the summary tells of the curation that made this very corpus.

    Args:
        corpus: the corpus.
        curated: the summary, see `curated_corpora`.
    """
    dropped = curated.get(corpus.name, {}).get("dropped")
    recorded = {each["step"]: each.get("dropped") for each in corpus.manifest["curation"]}
    if dropped is None:
        return None
    steps = steps_of({*recorded, *dropped})
    if any(recorded.get(step) != sum(dropped.get(step, {}).values()) for step in steps):
        return None
    return {step: dropped[step] for step in steps}
