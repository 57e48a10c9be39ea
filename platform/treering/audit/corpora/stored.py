"""Corpora and tokenizers that the project lacks, in the store of data that the environment names."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from treering.data.corpus.corpus import Corpus
from treering.data.stored import DATA_VARIABLE
from treering.errors import TreeringError
from treering.project import Project
from treering.redact import redact

Thing = TypeVar("Thing")


def stored_corpus(project: Project, digest: str) -> tuple[Corpus | None, str]:
    """A corpus in the store, opened there; without one, why not, for the end of a text."""

    def find() -> Corpus | None:
        from treering.data.stored.pull import corpus_in_store  # noqa: PLC0415 - an extra

        return corpus_in_store(project, digest)

    return _in_store(find)


def stored_tokenizer(project: Project, digest: str) -> tuple[Path | None, str]:
    """A copy of a tokenizer in the store; without one, why not, for the end of a text."""

    def find() -> Path | None:
        from treering.data.stored.pull import tokenizer_in_store  # noqa: PLC0415 - an extra

        return tokenizer_in_store(project, digest)

    return _in_store(find)


def _in_store(find: Callable[[], Thing | None]) -> tuple[Thing | None, str]:
    place = os.environ.get(DATA_VARIABLE)
    if not place:
        return None, ""
    try:
        found = find()
    except ImportError as error:
        return None, f"; {DATA_VARIABLE} is set, and {error}: pip install 'treering[s3]'"
    except TreeringError as error:
        return None, f"; {DATA_VARIABLE}: {error}"
    return found, "" if found is not None else f"; {redact(place)} of {DATA_VARIABLE} does not have it either"
