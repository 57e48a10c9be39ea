"""`treering attest`: signs what the audit found."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import (
    JsonOption,
    NamedCheckpoint,
    ReplayOption,
    VerifyOption,
    project,
)
from treering.cli.output import console, print_json
from treering.progress import progress_bars

KeyOption = Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key: ed25519 in PEM.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="The file to write; default: <checkpoint>.attestation.json beside the checkpoint.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an earlier attestation.")]


def attest(  # noqa: PLR0917 - one argument an option
    checkpoint: NamedCheckpoint,
    key: KeyOption,
    output: OutputOption = None,
    verify: VerifyOption = False,
    replay: ReplayOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Audit a checkpoint, digest its files again, and sign what was found.

    The file is an in-toto Statement in a DSSE envelope. `--replay` also verifies, and trains random steps again in a
    copy of the run; seed, steps and outcome are signed. Nothing is signed if something does not hold.

    Exit codes:
        3: something does not hold; nothing was signed
        5: the steps could not be trained again

    Examples:
        treering attest published --key signer.pem
        treering attest published --key signer.pem --verify --replay 2
    """
    from treering.audit.attestation.keys import PrivateKey
    from treering.audit.attestation.sign import attest as sign
    from treering.runlog.find import named_checkpoint

    here, signer = project(), PrivateKey.read(key)
    with progress_bars() as progress:
        found = named_checkpoint(here.runs, checkpoint)
        path, statement = sign(
            found, here, signer, output=output, verify=verify, replay=replay, replace=force, progress=progress
        )
    assurance = statement.predicate.assurance
    level = assurance.level
    if json:
        document = {"attestation": str(path), "key": signer.id, "level": level, "files": len(statement.subject)}
        print_json({**document, "statement": statement.model_dump(mode="json", by_alias=True)})
        return
    console.print(f"attested     {found.path}, {len(statement.subject)} files, level {level}")
    if assurance.replay is not None:
        console.print(f"replayed     {assurance.replay.steps.text}")
    console.print(f"signed by    {signer.id}")
    console.print(f"attestation  {path}")
