"""From a checkpoint to the data that trained it, with proof.

Reads the run log and the corpora, never the trainer: what the trainer claims is recomputed here.

The names below are the public interface: one function for each question, and the frozen dataclass that it answers
with.

Inside: `recorded/` answers about runs of other trainers; `evidence/` reads records and no corpus; `corpora/` reads and
digests corpora; `documents/` answers about batches, documents and texts; `dvc/` asks DVC's cache and remotes;
`attestation/` signs; `disclosure/` writes other formats; `megatron/` audits runs of Megatron.
"""

from typing import TYPE_CHECKING

from treering.exports import lazily

if TYPE_CHECKING:
    from treering.audit.checkpoint import audit_checkpoint
    from treering.audit.documents.batch import StepBatch, step_batch
    from treering.audit.documents.contamination import Contamination, find_contamination
    from treering.audit.documents.difference import CheckpointDifference, compare_checkpoints
    from treering.audit.documents.selection import Selector
    from treering.audit.documents.spike import SpikeData, spike_data
    from treering.audit.documents.takedown import Takedown, takedown
    from treering.audit.documents.text import TextTrace, trace_text
    from treering.audit.documents.trace import DocumentTrace, trace_documents
    from treering.audit.documents.training import TrainingDocuments, training_documents
    from treering.audit.dvc.find import Found, find_digest
    from treering.audit.inventory import Inventory, verify_paths
    from treering.audit.megatron.run import AuditedRun
    from treering.audit.report import AuditReport, Finding, Gap, Level
    from treering.audit.summary import CheckpointSummary, summarize

__all__ = [
    "AuditReport",
    "AuditedRun",
    "CheckpointDifference",
    "CheckpointSummary",
    "Contamination",
    "DocumentTrace",
    "Finding",
    "Found",
    "Gap",
    "Inventory",
    "Level",
    "Selector",
    "SpikeData",
    "StepBatch",
    "Takedown",
    "TextTrace",
    "TrainingDocuments",
    "audit_checkpoint",
    "compare_checkpoints",
    "find_contamination",
    "find_digest",
    "spike_data",
    "step_batch",
    "summarize",
    "takedown",
    "trace_documents",
    "trace_text",
    "training_documents",
    "verify_paths",
]

__getattr__ = lazily(
    __name__,
    {
        "AuditReport": "report",
        "AuditedRun": "megatron.run",
        "CheckpointDifference": "documents.difference",
        "CheckpointSummary": "summary",
        "Contamination": "documents.contamination",
        "DocumentTrace": "documents.trace",
        "Finding": "report",
        "Found": "dvc.find",
        "Inventory": "inventory",
        "Level": "report",
        "Selector": "documents.selection",
        "Gap": "report",
        "SpikeData": "documents.spike",
        "StepBatch": "documents.batch",
        "Takedown": "documents.takedown",
        "TextTrace": "documents.text",
        "TrainingDocuments": "documents.training",
        "audit_checkpoint": "checkpoint",
        "compare_checkpoints": "documents.difference",
        "find_contamination": "documents.contamination",
        "find_digest": "dvc.find",
        "spike_data": "documents.spike",
        "step_batch": "documents.batch",
        "summarize": "summary",
        "takedown": "documents.takedown",
        "trace_documents": "documents.trace",
        "trace_text": "documents.text",
        "training_documents": "documents.training",
        "verify_paths": "inventory",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
