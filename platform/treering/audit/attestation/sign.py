"""Signs what an audit has found: never a checkpoint of which something does not hold."""

import time
from pathlib import Path

from treering.audit.attestation.build import build
from treering.audit.attestation.dsse import Envelope
from treering.audit.attestation.keys import PrivateKey
from treering.audit.attestation.place import attestation_file
from treering.audit.attestation.statement import Statement
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.corpora.content import check_files
from treering.audit.evidence.agreement import check_run
from treering.audit.evidence.segments import recorded_segments_to
from treering.audit.replay import replay_steps, replayed
from treering.errors import EvidenceError, UserError
from treering.files import write_durably
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.mirror import refuse_mirror

_SHOWN_FINDINGS = 3


def _unsaid(_note: str) -> None:
    """Notes are no reason against a signature."""


def attest(
    checkpoint: CheckpointDirectory,
    project: Project,
    key: PrivateKey,
    *,
    output: Path | None = None,
    verify: bool = False,
    replay: int | None = None,
    seed: int | None = None,
    replace: bool = False,
    progress: Progress = quiet,
) -> tuple[Path, Statement]:
    """Audits a checkpoint, digests its files again, and signs what was found.

    Args:
        checkpoint: the checkpoint.
        project: where corpora are.
        key: the signer's key.
        output: where the attestation goes; default `attestation_file`.
        verify: whether to read the corpora as well and recompute every batch digest.
        replay: how many random steps to have trained again, which reads the corpora as well; None for none.
        seed: of their choice; a new one by default.
        replace: whether to replace an earlier attestation.
        progress: is called with the state of the slow parts.

    Returns:
        The file written and the statement.

    Raises:
        UserError: there is an attestation already, or the run is a mirror.
        EvidenceError: something does not hold.
        TrainingError: the trainer could not replay the steps.
    """
    refuse_mirror(checkpoint.run.path)
    path = output or attestation_file(checkpoint)
    if path.is_dir():
        raise UserError(
            f"{path}: is a folder; `--output` takes the file to write, `{attestation_file(checkpoint).name}`"
        )
    if path.exists() and not replace:
        raise UserError(
            f"{path}: an attestation lies there, and a signature made before is evidence; `--force` replaces it, "
            "`--output` writes another"
        )
    if not path.parent.is_dir():
        raise UserError(f"{path}: its folder does not exist; make it first")
    verify = verify or replay is not None
    report = audit_checkpoint(checkpoint, project, verify, progress)
    if replay is not None and not report.findings:
        report = replayed(report, replay_steps(checkpoint, replay, seed))
    findings = [*report.findings, *([] if verify else check_files(checkpoint, progress))]
    scores = str(checkpoint.run.evaluations_folder)
    findings += [each for each in check_run(checkpoint.run, project, _unsaid) if (each.file or "").startswith(scores)]
    if findings:
        shown = "; ".join(finding.text for finding in findings[:_SHOWN_FINDINGS])
        more = f"; and {len(findings) - _SHOWN_FINDINGS} more" if len(findings) > _SHOWN_FINDINGS else ""
        raise EvidenceError(f"{checkpoint.path}: not signed, for it does not hold: {shown}{more}", file=checkpoint.path)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    statement = build(checkpoint, report, recorded_segments_to(checkpoint), at)
    write_durably(path, Envelope.sign(statement.to_bytes(), key).to_text())
    return path, statement
