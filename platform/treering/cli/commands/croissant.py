"""`treering croissant`: corpora as Croissant JSON-LD."""

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.disclosure import write_document
from treering.cli.options import (
    JsonOption,
    project,
)
from treering.cli.output import console, print_json

if TYPE_CHECKING:
    from treering.data.corpus.corpus import Corpus


CorporaArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="CORPUS", help="Names or folders of corpora; default: all corpora of the project."),
]


def croissant(
    corpora: CorporaArgument = None,
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="The folder to write into.")] = Path(
        "croissant"
    ),
    json: JsonOption = False,
) -> None:
    """Write Croissant JSON-LD for corpora: files by digest, licences, the document table as records.

    Exit codes:
        3: a corpus is damaged

    Examples:
        treering croissant
        treering croissant code --output croissant
    """
    from treering.audit.disclosure.croissant import croissant as describe

    output.mkdir(parents=True, exist_ok=True)
    written = {}
    for corpus in _corpora(corpora or []):
        path = output / f"{corpus.name}.{corpus.manifest['split']}.json"
        document = describe(corpus, output)
        write_document(path, json_text.dumps(document, indent=2, ensure_ascii=False) + "\n")
        written[str(path)] = document
    if json:
        print_json(written)
    else:
        console.print(*written)


def _corpora(names: list[str]) -> "list[Corpus]":
    """Opens the corpora with these names, of both splits, or in these folders; without a name, all of the project.

    Raises:
        NotFoundError: no corpus has that name.
    """
    from treering.data.corpus.corpus import MANIFEST, Corpus
    from treering.errors import NotFoundError

    here = project()
    folders = []
    for name in names or ["*"]:
        found = [Path(name)] if "/" in name else [path.parent for path in here.corpora.glob(f"*/{name}/{MANIFEST}")]
        if not found:
            raise NotFoundError(f"{here.corpora}: found no corpus {name!r}; `dvc repro tokenize` makes corpora")
        folders += sorted(found)
    return [Corpus.open(folder) for folder in folders]
