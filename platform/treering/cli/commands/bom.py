"""`treering bom`: the audit of a checkpoint as a CycloneDX ML-BOM."""

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from treering.cli.disclosure import model_facts, write_document
from treering.cli.options import (
    JsonOption,
    NamedCheckpoint,
    PublicKeyOption,
    VerifyOption,
)
from treering.cli.output import console, print_json


def bom(
    checkpoint: NamedCheckpoint,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The file to write.")] = Path("bom.cdx.json"),
    verify: VerifyOption = False,
    public_key: PublicKeyOption = None,
    json: JsonOption = False,
) -> None:
    """Write a CycloneDX 1.6 ML-BOM: the model, its corpora with licences and digests, and what was read.

    The document is checked with CycloneDX's strict schema before it is written.

    Exit codes:
        3: the audit found something that does not hold

    Examples:
        treering bom published --output bom.cdx.json
    """
    from treering.audit.disclosure.bom import bill_of_materials

    facts = model_facts(checkpoint, public_key, verify=verify)
    document = bill_of_materials(facts)
    write_document(output, json_text.dumps(document, indent=2, ensure_ascii=False) + "\n")
    if json:
        print_json(document)
    else:
        console.print(f"{output}: CycloneDX 1.6, model {facts.name}, {len(facts.corpora)} corpora")
