"""`treering keygen`: makes a key pair for signatures."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import (
    JsonOption,
)
from treering.cli.output import console, print_json


def keygen(
    key: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The file of the private key; the public key is <name>.pub.pem beside it."),
    ],
    json: JsonOption = False,
) -> None:
    """Make an ed25519 key pair for `treering attest`, as `openssl genpkey -algorithm ed25519` does.

    Keep the private key away from the machines that train. Give the public key to whoever checks signatures.

    Examples:
        treering keygen signer.pem
    """
    from treering.audit.attestation.keys import generate

    made, public = generate(key)
    if json:
        print_json({"key": made.id, "private": str(key), "public": str(public)})
    else:
        console.print(f"key      {made.id}", f"private  {key}", f"public   {public}")
