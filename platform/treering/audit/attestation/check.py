"""Checks an attestation offline: the signature, the statement, and every signed fact against the checkpoint."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treering.audit.attestation.build import evidence, record_files, subjects
from treering.audit.attestation.dsse import Envelope
from treering.audit.attestation.place import attestation_file, find_attestation
from treering.audit.attestation.statement import Statement
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.corpora.content import compare_files
from treering.audit.evidence.segments import RecordedSegment, recorded_segments_to
from treering.audit.expected_file import ExpectedFile
from treering.audit.report import UNSIGNED, AuditReport, Finding, FindingKind, Judged, Level, SignedStatement
from treering.config.canonical import DIGEST_PREFIX, digest_file, short
from treering.errors import EvidenceError
from treering.progress import Progress, quiet
from treering.project import Project
from treering.runlog.directory import MANIFEST_FILE, CheckpointDirectory

if TYPE_CHECKING:
    from treering.audit.attestation.keys import PublicKey


@dataclass(frozen=True, slots=True)
class AttestationCheck(Judged):
    """What became of an attestation's check.

    Attributes:
        attestation: its file.
        key: id of the trusted key that signed it, None if none did.
        statement: what was signed, None if it cannot be trusted or read.
        checkpoint: folder that it was compared with, None if no checkpoint was found.
        findings: what does not hold; empty if all does.
        not_compared: what there was nothing to compare with, in words.
    """

    attestation: str
    key: str | None
    statement: Statement | None
    checkpoint: str | None
    findings: tuple[Finding, ...]
    not_compared: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        if not self.holds:
            return f"FAILED with {len(self.findings)} finding{'s' if len(self.findings) > 1 else ''}"
        signed = f"signed by key {short(self.key or '')}"
        return f"holds: {signed}, {'equal to the checkpoint' if self.checkpoint else 'no checkpoint was compared'}"

    def to_json(self) -> dict[str, Any]:
        """The check as JSON values, the statement with it."""
        return {
            "verdict": self.verdict,
            "holds": self.holds,
            "attestation": self.attestation,
            "key": self.key,
            "checkpoint": self.checkpoint,
            "findings": [asdict(finding) for finding in self.findings],
            "not_compared": list(self.not_compared),
            "statement": self.statement and self.statement.model_dump(mode="json", by_alias=True),
        }


def open_attestation(file: Path, trusted: Sequence["PublicKey"]) -> tuple[str, Statement]:
    """Reads an attestation that a trusted key signed.

    Returns:
        The key's id and the statement.

    Raises:
        NotFoundError: the file does not exist.
        EvidenceError: no trusted key signed it, it was changed, or it states something else.
    """
    envelope = Envelope.read(file)
    key = envelope.signer(trusted)
    return key.id, Statement.parse(envelope.payload, str(file))


def check_attestation(
    file: Path,
    trusted: Sequence["PublicKey"],
    checkpoint: CheckpointDirectory | None,
    project: Project,
    progress: Progress = quiet,
) -> AttestationCheck:
    """Checks an attestation, and every signed fact against a checkpoint, its files digested again.

    Args:
        file: the attestation.
        trusted: keys whose signature counts.
        checkpoint: what to compare it with; None checks signature and statement alone.
        project: where corpora are; none is needed.
        progress: is called with the state of the slow parts.

    Raises:
        NotFoundError: the attestation does not exist.
    """
    try:
        key, statement = open_attestation(file, trusted)
    except EvidenceError as error:
        where = None if checkpoint is None else str(checkpoint.path)
        finding = Finding.from_error(error, "attestation", file)
        return AttestationCheck(str(file), None, None, where, (finding,), ())
    if checkpoint is None:
        nothing = ("No checkpoint lies beside the attestation and none was named: its files were not compared.",)
        return AttestationCheck(str(file), key, statement, None, (), nothing)
    signed = [ExpectedFile(subject.name, DIGEST_PREFIX + subject.digest["sha256"]) for subject in statement.subject]
    findings = compare_files(checkpoint.path, signed, f"the signed statement {file}", progress)
    not_compared = []
    if checkpoint.run.config_file.exists():
        named = {finding.file for finding in findings}  # a file that was digested needs no second finding
        more = compare_records(file, statement, checkpoint, project)
        findings += [each for each in more if each.kind == "attestation" or each.file not in named]
    else:
        not_compared.append(
            f"{checkpoint.run.path}: no run log lies around the checkpoint: signed ring, blend and ancestry were not "
            "compared with one."
        )
    return AttestationCheck(str(file), key, statement, str(checkpoint.path), tuple(findings), tuple(not_compared))


def attested(
    report: AuditReport,
    checkpoint: CheckpointDirectory,
    trusted: Sequence["PublicKey"],
    file: Path | None = None,
) -> AuditReport:
    """The report with what an attestation adds: the level it raises, or what of it does not hold.

    Without a trusted key nothing is proven by an attestation; the report says that there is one.

    Args:
        report: the audit of the checkpoint.
        checkpoint: the checkpoint.
        trusted: keys whose signature counts.
        file: the attestation; default the one beside the checkpoint, if there is one.

    Raises:
        NotFoundError: `file` was named and does not exist.
    """
    path = file or find_attestation(checkpoint)
    if path is None:
        if not trusted or report.gaps:
            return report
        return _open(report, f"{attestation_file(checkpoint).name} does not exist; `treering attest` makes one.")
    if not trusted:
        return _open(
            report, f"A signature lies beside it, {path.name}, but no trusted key was given: `--public-key` checks it."
        )
    try:
        key, statement = open_attestation(path, trusted)
    except EvidenceError as error:
        return replace(report, findings=(*report.findings, Finding.from_error(error, "attestation", path)))
    found = _statement_findings(path, statement, checkpoint, report)
    if report.findings or found:
        return replace(report, findings=(*report.findings, *found))
    at = statement.predicate.attested_at
    note = [f"That nobody trained outside the log, or rewrote all of it before it was signed at {at}."]
    if not report.verify:
        note.append("That the checkpoint's files are those that were signed: `--verify` digests them again.")
    said = statement.predicate.assurance
    return replace(
        report,
        level=Level.ATTESTED,
        attestation=SignedStatement(
            str(path), key, at, said.level, report.level, None if said.replay is None else said.replay.steps
        ),
        not_proven=(*(text for text in report.not_proven if text != UNSIGNED), *note),
    )


def _open(report: AuditReport, what: str) -> AuditReport:
    return replace(
        report, not_proven=tuple(f"{UNSIGNED} {what}" if text == UNSIGNED else text for text in report.not_proven)
    )


def compare_records(
    file: Path, statement: Statement, checkpoint: CheckpointDirectory, project: Project
) -> list[Finding]:
    """Audits the run log and compares it with what was signed; reads records, not the weights.

    Args:
        file: the attestation.
        statement: what was signed.
        checkpoint: the checkpoint.
        project: where corpora are; none is needed.
    """
    findings: list[Finding] = []
    try:
        # Before the audit, which may end at the very record that was changed.
        findings += _changed_files(file, statement, checkpoint, recorded_segments_to(checkpoint))
        report = audit_checkpoint(checkpoint, project)
        findings += [*report.findings, *_changed_facts(file, statement, checkpoint, report)]
    except EvidenceError as error:
        findings.append(Finding.from_error(error, "record"))
    return findings


def _statement_findings(
    file: Path, statement: Statement, checkpoint: CheckpointDirectory, report: AuditReport
) -> list[Finding]:
    """Where the checkpoint and its run log differ from what was signed; reads records, not the weights."""
    if report.gaps:
        text = f"{file}: was not compared, since a record that it signs is missing: see the other findings"
        return [Finding("attestation", text, file=str(file))]
    return [
        *_changed_files(file, statement, checkpoint, recorded_segments_to(checkpoint)),
        *_changed_facts(file, statement, checkpoint, report),
    ]


def _changed_files(
    file: Path, statement: Statement, checkpoint: CheckpointDirectory, stretches: Sequence[RecordedSegment]
) -> Iterator[Finding]:
    """Subjects and records whose digest is not the signed one."""
    found: dict[str, tuple[Path, str]] = {
        subject.name: (checkpoint.path / subject.name, DIGEST_PREFIX + subject.digest["sha256"])
        for subject in subjects(checkpoint)
    }
    signed = {subject.name: DIGEST_PREFIX + subject.digest["sha256"] for subject in statement.subject}
    records = record_files(stretches)
    found |= {name: (path, digest_file(path)) for name, path in records.items()}
    signed |= {record.name: record.digest for record in statement.predicate.evidence.records}
    for name in sorted(signed.keys() | found.keys()):
        path, digest = found.get(name, (None, None))
        if digest == signed.get(name):
            continue
        kind: FindingKind = "record" if path in (*records.values(), checkpoint.path / MANIFEST_FILE) else "checkpoint"
        yield Finding(
            kind,
            f"{path or name}: {f'has {digest}' if digest else 'is not there'}, "
            f"{f'signed was {signed[name]}' if name in signed else 'nothing of it was signed'} ({file}): it was "
            "changed after the signature, or another checkpoint was signed",
            file=str(path or name),
        )


def _changed_facts(
    file: Path,
    statement: Statement,
    checkpoint: CheckpointDirectory,
    report: AuditReport,
) -> Iterator[Finding]:
    """Fields of the evidence that the checkpoint and its run log give otherwise."""
    given = evidence(checkpoint, report, recorded_segments_to(checkpoint))
    signed, found = (
        each.model_dump(mode="json", by_alias=True, exclude={"records", "evaluations"})
        for each in (statement.predicate.evidence, given)
    )
    for place, said, now in differences(signed, found):
        yield Finding(
            "attestation",
            f"{checkpoint.path}: predicate.evidence.{place} is {now} by the run log, signed was {said} ({file}): the "
            "records were rewritten after the signature, or another checkpoint was signed",
            file=str(checkpoint.path / MANIFEST_FILE),
        )
    # Later evaluations may have joined them; none may be missing.
    there = {each.record: each for each in given.evaluations or ()}
    for each in statement.predicate.evidence.evaluations or ():
        if there.get(each.record) != each:
            folder = checkpoint.run.evaluations_folder
            what = "is missing or was changed" if each.record not in there else "has another entry in its journal"
            yield Finding(
                "attestation",
                f"{folder}: the signed evaluation {each.record} by {each.harness} {what} ({file}): the records were "
                "rewritten after the signature, or were not copied along",
                file=str(folder),
            )


def differences(signed: Any, found: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ.

    Yields:
        Dotted path, what was signed and what was found; None for a value that one side lacks.
    """
    if isinstance(signed, dict) and isinstance(found, dict):
        for key in (*signed, *(key for key in found if key not in signed)):
            yield from differences(signed.get(key), found.get(key), f"{place}.{key}" if place else key)
    elif isinstance(signed, list) and isinstance(found, list):
        for number in range(max(len(signed), len(found))):
            one, other = (side[number] if number < len(side) else None for side in (signed, found))
            yield from differences(one, other, f"{place}[{number}]")
    elif signed != found or type(signed) is not type(found):
        yield place, signed, found
