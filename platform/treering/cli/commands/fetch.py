"""`treering fetch`: stage `fetch` of the pipeline."""

from pathlib import Path
from typing import Annotated

import typer

from treering.cli.options import (
    DEFAULT_CONFIG,
    ConfigArgument,
    JsonOption,
    SetOption,
    project,
)
from treering.cli.output import print_json, stage_progress

FromOption = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="Take the files from this folder, without the network.")
]


def fetch(
    config: ConfigArgument = DEFAULT_CONFIG,
    source: FromOption = None,
    overrides: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Download the files of the corpora to `data/raw`, and check each one against its pinned hash.

    Exit codes:
        3: a file differs from its pinned hash
        4: the server does not answer

    Examples:
        treering fetch experiments/demo.yaml
        treering fetch experiments/demo.yaml --from /media/wheels
    """
    from treering.config.load import load_experiment
    from treering.data.sources.fetch import fetch as run

    experiment = load_experiment(config, overrides or ())
    files = run(experiment.corpora, project(), source=source, say=stage_progress(json=json))
    if json:
        print_json({"files": [{"path": str(file), "bytes": file.stat().st_size} for file in files]})
