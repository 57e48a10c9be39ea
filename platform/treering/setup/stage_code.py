"""What the stages of a project outside the clone depend on: the code behind each, and the files of one's own data."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import treering
from treering.collect.code import CODE_RULE, NUMERIC_SOURCES, code_digest, sources_root
from treering.config.canonical import digest_bytes, digest_json
from treering.config.schema import Experiment
from treering.data.corpus.own_tokenizer import read_own_tokenizer
from treering.data.sources.own_files import own_files
from treering.data.sources.stored import list_objects, listing_digest
from treering.errors import NotFoundError, UserError
from treering.project import Project

_SOURCES: Final = "platform/treering/data/sources"
_CORPUS: Final = "platform/treering/data/corpus"

STAGE_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "fetch": (f"{_SOURCES}/fetch.py", f"{_SOURCES}/own_files.py", f"{_SOURCES}/raw.py", f"{_SOURCES}/stored.py"),
    "curate": (
        "platform/treering/data/compiled.py",
        "platform/treering/data/compiled_language.py",
        "platform/treering/data/curate",
        "platform/treering/data/fragments.py",
        "platform/treering/data/words.py",
        *(
            f"{_SOURCES}/{name}.py"
            for name in (
                *("documents", "html_bytes", "own_files", "own_text", "pieces", "raw", "readers", "stored"),
                *("warc_records", "web_pages"),
            )
        ),
        f"{_CORPUS}/table.py",
    ),
    "tokenize": (
        *(
            f"{_CORPUS}/{name}.py"
            for name in (
                *("chunks", "corpus", "document_table", "encode", "index_header", "index_writer", "indexed"),
                *("manifest", "mapped_offsets", "own_tokenizer", "own_tokens", "sentencepiece_model", "table"),
                *("text_tokenizer", "token_bytes", "tokenizer", "write"),
            )
        ),
        "platform/treering/data/tokenize",
    ),
    "blend": ("platform/treering/data/blend/corpora.py",),
    "train": (*NUMERIC_SOURCES, "trainer/treering_trainer/checkpointing/publish.py"),
    "evaluate": ("trainer/treering_trainer/evaluate",),
    "report": ("platform/treering/report", "platform/treering/audit"),
}
"""Sources that decide the output of each stage. The stages of the clone's `dvc.yaml` depend on the files themselves."""


def version_record() -> dict[str, Any]:
    """The installed version, and the digest of the code behind each stage.

    Raises:
        NotFoundError: a source is missing; the installation is damaged.
    """
    root = sources_root(Path(treering.__file__))
    return {
        "version": treering.__version__,
        "rule": CODE_RULE,
        "stages": {stage: code_digest(root, paths) for stage, paths in STAGE_SOURCES.items()},
    }


def tokenizer_record(experiment: Experiment, project: Project) -> str:
    """What stands for a tokenizer of your own: a digest of its content, or why there is none.

    Args:
        experiment: names the files.
        project: whose root the path is relative to.
    """
    own = experiment.tokenizer
    if own.file is None:
        return "trained"
    try:
        return digest_bytes(read_own_tokenizer(project.root / own.file, own.end_of_document).encode())
    except UserError:  # stage `tokenize` then says what is wrong
        return "unreadable"


def data_record(experiment: Experiment, project: Project) -> dict[str, str]:
    """What stands for the files of each corpus of your own data: their names, sizes and times, not their content.

    Of objects in S3 it is what the server lists: names, sizes and ETags.

    Files that are missing have a text in place of the digest: stage `fetch` then says what is missing.

    Args:
        experiment: names the files.
        project: whose root the paths are relative to.

    Raises:
        UserError: a path is in a folder that a stage replaces.
        StoreError: the S3 server does not answer.
    """
    found = {}
    for corpus in experiment.corpora:
        if corpus.own is None:
            continue
        try:
            if corpus.stored:
                found[corpus.name] = listing_digest(list_objects(corpus))
            else:
                found[corpus.name] = _digest_of((each.name, each.path) for each in own_files(corpus, project))
        except NotFoundError:
            found[corpus.name] = "missing"
    return found


def evaluation_record(experiment: Experiment, project: Project) -> dict[str, str]:
    """What stands for the files of each task of lm-eval: their names, sizes and times; stage `evaluate` depends on it.

    Args:
        experiment: names the files.
        project: whose root the paths are relative to.
    """
    found = {}
    for task in experiment.evaluation.tasks:
        files = [task.files] if isinstance(task.files, str) else list(task.files.values())
        paths = [(name, project.root / name) for name in sorted(files)]
        if not all(path.is_file() for _, path in paths):
            found[task.task] = "missing"
            continue
        found[task.task] = _digest_of(paths)
    return found


def _digest_of(files: Iterable[tuple[str, Path]]) -> str:
    """Digest of the names, sizes and times of files."""
    states = [(name, path.stat()) for name, path in files]
    return digest_json([[name, state.st_size, state.st_mtime_ns] for name, state in states])
