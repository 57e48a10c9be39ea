"""`treering version`: the installed version, and the code behind each stage."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import JsonOption, project
from treering.cli.output import console, print_json, print_table

WriteOption = Annotated[
    Path | None, typer.Option("--write", metavar="FILE", help="Write the record to this file instead of printing it.")
]


DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="CONFIG", help="Also record what stands for the config's own data files."),
]


def version(write: WriteOption = None, data: DataOption = None, json: JsonOption = False) -> None:
    """Show the installed version of Treering, and the digest of the code behind each stage.

    A `dvc.yaml` of `treering init` writes the record first: a stage runs again where its code has another digest, and
    stages `fetch`, `tokenize` and `evaluate` where a file of your own was changed, added or removed.

    Examples:
        treering version
        treering version --write data/version.json
    """
    import json as text

    from treering.config.load import load_experiment
    from treering.files import write_durably
    from treering.setup.stage_code import data_record, evaluation_record, tokenizer_record, version_record

    record = version_record()
    if data is not None:
        experiment = load_experiment(data)
        record["data"] = data_record(experiment, project())
        record["tokenizer"] = tokenizer_record(experiment, project())
        record["evaluation"] = evaluation_record(experiment, project())
    if write is not None:
        write.parent.mkdir(parents=True, exist_ok=True)
        write_durably(write, text.dumps(record, indent=1) + "\n")
    elif json:
        print_json(record)
    else:
        console.print(f"Treering {record['version']}")
        print_table(("stage", "code"), [[stage, digest] for stage, digest in record["stages"].items()])
