"""`treering verify`: digests files again, or checks a signed statement."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.options import (
    JsonOption,
    PublicKeyOption,
    project,
    trusted_keys,
)
from treering.cli.output import console, print_json, print_table
from treering.progress import progress_bars

if TYPE_CHECKING:
    from treering.audit.attestation.check import AttestationCheck
    from treering.audit.inventory import Inventory


PathsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH",
        help="Folders to search; default: the corpora, indexes, runs and published checkpoint of the project.",
    ),
]
AttestationOption = Annotated[
    Path | None,
    typer.Option("--attestation", metavar="FILE", help="Check this signed statement; PATH is then its checkpoint."),
]


def verify(
    paths: PathsArgument = None,
    attestation: AttestationOption = None,
    public_key: PublicKeyOption = None,
    json: JsonOption = False,
) -> None:
    """Digest corpora, indexes, checkpoints and run logs again, and name everything that changed.

    Each finding names the file, its range, and the documents in that range. With `--attestation`, the command checks a
    signed statement offline instead: the signature, every file of the checkpoint, and ring, blend and ancestry against
    the run log.

    Exit codes:
        0: everything holds
        3: something does not hold

    Examples:
        treering verify
        treering verify data/corpora
        treering verify --attestation signed.json --public-key signer.pub.pem

    Raises:
        Exit: something does not hold.
    """
    from treering.audit.inventory import verify_paths
    from treering.errors import EvidenceError

    with progress_bars() as progress:
        result = (
            verify_paths(project(), paths or (), trusted_keys(public_key), progress)
            if attestation is None
            else _check(attestation, public_key, paths or [])
        )
    if json:
        print_json(result.to_json())
    else:
        _print(result)
    if not result.holds:
        raise typer.Exit(EvidenceError.exit_code)


def _check(attestation: Path, public_key: list[Path] | None, paths: list[Path]) -> "AttestationCheck":
    """Checks a signed statement against its checkpoint.

    Raises:
        UserError: no key was given, or several paths.
    """
    from treering.audit.attestation.check import check_attestation
    from treering.audit.attestation.place import attested_checkpoint
    from treering.errors import UserError
    from treering.runlog.find import find_checkpoint

    if not public_key:
        raise UserError("--attestation: found no trusted key, expected `--public-key FILE`")
    if len(paths) > 1:
        raise UserError(f"--attestation: found {len(paths)} paths, expected one: the folder of the checkpoint")
    checkpoint = find_checkpoint(paths[0]) if paths else attested_checkpoint(attestation)
    with progress_bars() as progress:
        return check_attestation(attestation, trusted_keys(public_key), checkpoint, project(), progress)


def _print(result: "AttestationCheck | Inventory") -> None:
    from treering.audit.attestation.check import AttestationCheck

    if isinstance(result, AttestationCheck):
        console.print(f"attestation  {result.attestation}")
        console.print(f"signed by    {result.key or 'no trusted key'}")
        console.print(f"checkpoint   {result.checkpoint or 'not compared'}")
        if result.statement is not None:
            said = result.statement.predicate
            console.print(f"signed       {said.attested_at}, level {said.assurance.level}, ring {said.evidence.ring}")
            if said.assurance.replay is not None:
                console.print(f"{'':<12} replayed {said.assurance.replay.steps.text}")
        notes = result.not_compared
    else:
        rows = [[each.kind, f"{each.bytes:,}", str(each.findings or "holds"), each.path] for each in result.checked]
        print_table(("what", "bytes", "findings", "where"), rows, numbers=("bytes", "findings"))
        notes = result.notes
    for note in notes:
        console.print(f"note         {note}")
    for finding in result.findings:
        console.print(f"FAILED       {finding.text}")
    console.print("", result.verdict)
