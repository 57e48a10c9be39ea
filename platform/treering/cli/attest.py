"""`treering keygen` and `treering attest`: a signature under what the audit has found."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.audit import ReplayOption
from treering.cli.output import JsonOption, NamedCheckpoint, console, print_json, project

KeyOption = Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key, ed25519 in PEM.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Default: <checkpoint>.attestation.json beside the checkpoint."),
]
VerifyOption = Annotated[bool, typer.Option("--verify", help="Read the corpora too: recompute every batch digest.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an earlier attestation.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("keygen")(keygen)
    app.command("attest")(attest)


def keygen(
    key: Annotated[Path, typer.Argument(help="The private key's file; the public one is <name>.pub.pem beside it.")],
    json: JsonOption = False,
) -> None:
    """Make an ed25519 key pair for `treering attest`; the same as `openssl genpkey -algorithm ed25519` makes.

    Keep the private key away from the machines that train; give the public key to whoever checks.

    Example: `treering keygen signer.pem`
    """
    from treering.audit.attestation.keys import generate

    made, public = generate(key)
    if json:
        print_json({"key": made.id, "private": str(key), "public": str(public)})
    else:
        console.print(f"key      {made.id}", f"private  {key}", f"public   {public}")


def attest(  # noqa: PLR0917 - one argument an option
    checkpoint: NamedCheckpoint,
    key: KeyOption,
    output: OutputOption = None,
    verify: VerifyOption = False,
    replay: ReplayOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Audit a checkpoint, digest its files again, and sign what was found: an in-toto Statement in a DSSE envelope.

    `--replay` verifies, then has the trainer run random steps again in a copy of the run; seed, steps and outcome are
    signed. Nothing is signed of which something does not hold: exit code 3.

    Example: `treering attest published --key signer.pem --verify`
    """
    from treering.audit.attestation.keys import PrivateKey
    from treering.audit.attestation.sign import attest as sign
    from treering.cli.audit import progress_bars
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
