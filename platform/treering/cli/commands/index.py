"""`treering index`: indexes the corpora by their n-grams."""

from typing import Annotated

import typer

from treering.cli.options import (
    JsonOption,
    project,
)
from treering.cli.output import print_json, print_table
from treering.progress import progress_bars

WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Number of processes; default: one for each core, fewer for small corpora.",
    ),
]


def index(
    *,
    force: Annotated[bool, typer.Option("--force", help="Build every index again.")] = False,
    workers: WorkersOption = None,
    json: JsonOption = False,
) -> None:
    """Index the n-grams of the training corpora, for `trace --text` and `contamination`.

    An n-gram is a sequence of 13 words. An index that exists and holds is kept.

    Exit codes:
        3: a corpus is damaged
        4: the disk is full, or a worker process was killed

    Examples:
        treering index
        treering index --force --workers 2

    Raises:
        NotFoundError: the project has no corpus.
    """
    from dataclasses import asdict

    from treering.data.corpus.corpus import MANIFEST, Corpus
    from treering.data.corpus.text import Detokenizer
    from treering.data.ngram_index.build import build_index
    from treering.data.ngram_index.index import NgramIndex, index_directory
    from treering.errors import NotFoundError, TreeringError

    here = project()
    folders = sorted(path.parent for path in here.corpora.glob(f"train/*/{MANIFEST}"))
    if not folders:
        raise NotFoundError(f"{here.corpora}: no corpus there; `dvc repro tokenize` makes them")
    text_of, found = Detokenizer(here.tokenizer), []
    with progress_bars() as progress:
        for folder in folders:
            corpus = Corpus.open(folder)
            try:
                facts = None if force else NgramIndex(index_directory(here.index, corpus.digest), corpus).facts
            except TreeringError:
                facts = None
            found.append(facts or build_index(corpus, text_of, here.index, progress, workers))
    if json:
        print_json([{**asdict(each), "bytes_per_token": each.bytes_per_token} for each in found])
        return
    print_table(
        ("corpus", "documents", "tokens", "entries", "MB", "bytes a token", "tokens a second"),
        [
            [
                each.corpus,
                f"{each.num_documents:,}",
                f"{each.num_tokens:,}",
                f"{each.num_entries:,}",
                f"{each.num_bytes / 1e6:.1f}",
                f"{each.bytes_per_token:.1f}",
                f"{each.num_tokens / each.seconds:,.0f}",
            ]
            for each in found
        ],
        numbers=("documents", "tokens", "entries", "MB", "bytes a token", "tokens a second"),
    )
