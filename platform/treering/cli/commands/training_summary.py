"""`treering training-summary`: a summary of the training content."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.disclosure import model_facts, write_document
from treering.cli.options import JsonOption, NamedCheckpoint, PublicKeyOption, VerifyOption
from treering.cli.output import console, print_json


def training_summary(
    checkpoint: NamedCheckpoint,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The file to write.")] = Path(
        "training-content.md"
    ),
    verify: VerifyOption = False,
    public_key: PublicKeyOption = None,
    json: JsonOption = False,
) -> None:
    """Write a summary of the training content by the template of the EU AI Act.

    The template is that for general-purpose models. The summary has a marked blank for everything that only the
    provider knows.

    Exit codes:
        3: the audit found something that does not hold

    Examples:
        treering training-summary published --output training-content.md
    """
    from treering.audit.disclosure.training_summary import training_summary as write

    text = write(model_facts(checkpoint, public_key, verify=verify))
    write_document(output, text)
    blanks = text.count("**[provider: ")
    if json:
        print_json({"path": str(output), "blanks": blanks, "text": text})
    else:
        console.print(f"{output}: {blanks} blanks are left to the provider, marked **[provider: …]**")
