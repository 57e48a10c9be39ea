"""`treering init`: the files of a new project."""

import sys
from typing import Annotated

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The name of the experiment; default: the name of this folder.")
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Your data, one corpus a path: JSON Lines, Parquet, a folder, a pattern in quotes, a data set on disk, or "
        "a pair of .bin and .idx; repeatable.",
    ),
]
FieldOption = Annotated[str, typer.Option("--text-field", metavar="FIELD", help="The field that holds the text.")]
LicenceOption = Annotated[
    str, typer.Option("--licence", metavar="SPDX", help="The licence of documents that do not name one.")
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="FILE",
        help="Your own tokenizer: tokenizer.json, SentencePiece's .model, or GPT-2's encoder.json beside vocab.bpe; a "
        "pair of .bin and .idx needs it.",
    ),
]
EndOption = Annotated[
    str, typer.Option("--end-of-document", metavar="TOKEN", help="The token of your tokenizer that ends a document.")
]
MinimalOption = Annotated[
    bool, typer.Option("--minimal", help="Without DVC: no dvc.yaml; the stages are commands of Treering.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Ask nothing.")]


def init(  # noqa: PLR0917 - one argument an option
    name: NameArgument = None,
    data: DataOption = None,
    text_field: FieldOption = "text",
    licence: LicenceOption = "unknown",
    tokenizer: TokenizerOption = None,
    end_of_document: EndOption = "<|endoftext|>",
    minimal: MinimalOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Make this folder a project of your own: write an experiment on your data, and the pipeline around it.

    The command writes `experiments/NAME.yaml` and `dvc.yaml`, runs `dvc init` where that is missing, and adds lines to
    `.gitignore` and `.dvcignore`. A file that is there is never overwritten. On a terminal it asks for what is missing.

    Exit codes:
        2: a path is wrong, or a file is in the way; nothing was written

    Examples:
        treering init --data texts/letters.jsonl
        treering init notes --data 'notes/**/*.jsonl.zst' --minimal --yes
    """
    from treering.setup.start import begin, next_commands, proposed_name

    here = project()
    ask = sys.stdin.isatty() and not yes and not json
    if name is None:
        name = proposed_name(here)
        name = typer.prompt("Name of the experiment", default=name) if ask else name
    if not data and ask:
        from treering.setup.given import data_here

        found = ", ".join(data_here(here.root)) or None
        answer = typer.prompt("Paths of your data, separated by commas", default=found)
        data = [path.strip() for path in answer.split(",") if path.strip()]
    done = begin(
        here,
        name,
        data or [],
        text_field=text_field,
        licence=licence,
        tokenizer=tokenizer,
        end_of_document=end_of_document,
        minimal=minimal,
    )
    commands = next_commands(name, minimal=minimal)
    if json:
        print_json({"written": done.written, "kept": done.kept, "dvc_init": done.dvc, "next": commands})
        return
    if done.dvc:
        console.print("ran      dvc init")
    for word, files in (("wrote", done.written), ("kept", done.kept)):
        for file in files:
            console.print(f"{word:<8} {file}")
    console.print("", "next:")
    for command in commands:
        console.print(f"  {command}")
