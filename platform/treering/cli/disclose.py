"""`treering bom`, `croissant` and `training-summary`: what the audit found, in the forms that others ask for."""

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.output import JsonOption, NamedCheckpoint, PublicKeyOption, console, print_json, project, trusted_keys

if TYPE_CHECKING:
    from treering.audit.disclosure.facts import ModelFacts
    from treering.data.corpus.corpus import Corpus

VerifyOption = Annotated[bool, typer.Option("--verify", help="Audit with content: read the corpora and every file.")]
CorporaArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CORPUS]...", help="Names or folders of corpora; default: all of the project."),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("bom")(bom)
    app.command("croissant")(croissant)
    app.command("training-summary")(training_summary)


def bom(
    checkpoint: NamedCheckpoint,
    output: Annotated[Path, typer.Option("--output", help="The file to write.")] = Path("bom.cdx.json"),
    verify: VerifyOption = False,
    public_key: PublicKeyOption = None,
    json: JsonOption = False,
) -> None:
    """Write a CycloneDX 1.6 ML-BOM: the model with its card, its corpora with licences, digests and what was read.

    It is validated against CycloneDX's strict schema before it is written. Exit code 3 where the audit finds something.

    Example: `treering bom published --output bom.cdx.json`
    """
    from treering.audit.disclosure.bom import bill_of_materials

    facts = _facts(checkpoint, public_key, verify=verify)
    document = bill_of_materials(facts)
    _write(output, json_text.dumps(document, indent=2, ensure_ascii=False) + "\n")
    if json:
        print_json(document)
    else:
        console.print(f"{output}: CycloneDX 1.6, model {facts.name}, {len(facts.corpora)} corpora")


def training_summary(
    checkpoint: NamedCheckpoint,
    output: Annotated[Path, typer.Option("--output", help="The file to write.")] = Path("training-content.md"),
    verify: VerifyOption = False,
    public_key: PublicKeyOption = None,
    json: JsonOption = False,
) -> None:
    """Write a summary of the training content after the template of the EU AI Act for general-purpose models.

    What only the provider knows is left as a named blank. Exit code 3 where the audit finds something.

    Example: `treering training-summary published --output training-content.md`
    """
    from treering.audit.disclosure.training_summary import training_summary as write

    text = write(_facts(checkpoint, public_key, verify=verify))
    _write(output, text)
    blanks = text.count("**[provider: ")
    if json:
        print_json({"path": str(output), "blanks": blanks, "text": text})
    else:
        console.print(f"{output}: {blanks} blanks are left to the provider, marked **[provider: …]**")


def croissant(
    corpora: CorporaArgument = None,
    output: Annotated[Path, typer.Option("--output", help="The folder to write into.")] = Path("croissant"),
    json: JsonOption = False,
) -> None:
    """Write Croissant JSON-LD for corpora: files by digest, licences, the document table as records.

    Example: `treering croissant code --output croissant`
    """
    from treering.audit.disclosure.croissant import croissant as describe

    output.mkdir(parents=True, exist_ok=True)
    written = {}
    for corpus in _corpora(corpora or []):
        path = output / f"{corpus.name}.{corpus.manifest['split']}.json"
        document = describe(corpus, output)
        _write(path, json_text.dumps(document, indent=2, ensure_ascii=False) + "\n")
        written[str(path)] = document
    if json:
        print_json(written)
    else:
        console.print(*written)


def _facts(checkpoint: str, public_key: list[Path] | None, *, verify: bool) -> "ModelFacts":
    from treering.audit.disclosure.facts import gather
    from treering.cli.audit import progress_bars
    from treering.runlog.find import named_checkpoint

    with progress_bars() as progress:
        found, trusted = named_checkpoint(project().runs, checkpoint), trusted_keys(public_key)
        return gather(found, project(), verify=verify, trusted=trusted, progress=progress)


def _corpora(names: list[str]) -> "list[Corpus]":
    """The corpora of some names, of either split, or folders; all of the project without a name."""
    from treering.data.corpus.corpus import MANIFEST, Corpus
    from treering.errors import NotFoundError

    here = project()
    folders = []
    for name in names or ["*"]:
        found = [Path(name)] if "/" in name else [path.parent for path in here.corpora.glob(f"*/{name}/{MANIFEST}")]
        if not found:
            raise NotFoundError(f"{here.corpora}: no corpus {name!r} there; `dvc repro tokenize` makes corpora")
        folders += sorted(found)
    return [Corpus.open(folder) for folder in folders]


def _write(path: Path, text: str) -> None:
    from treering.errors import UserError
    from treering.files import write_durably

    if not path.parent.is_dir():
        raise UserError(f"{path}: its folder does not exist; make it first")
    write_durably(path, text)
