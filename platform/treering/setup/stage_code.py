"""The code behind each stage of the pipeline, by digest: what a stage of a project outside the clone depends on."""

from pathlib import Path
from typing import Any, Final

import treering
from treering.collect.code import CODE_RULE, NUMERIC_SOURCES, code_digest, sources_root

_SOURCES: Final = "platform/treering/data/sources"
_CORPUS: Final = "platform/treering/data/corpus"

STAGE_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "fetch": (f"{_SOURCES}/fetch.py", f"{_SOURCES}/own_files.py", f"{_SOURCES}/raw.py"),
    "curate": (
        "platform/treering/data/curate",
        f"{_SOURCES}/documents.py",
        f"{_SOURCES}/own_files.py",
        f"{_SOURCES}/own_text.py",
        f"{_SOURCES}/raw.py",
        f"{_SOURCES}/readers.py",
        f"{_CORPUS}/table.py",
    ),
    "tokenize": tuple(
        f"{_CORPUS}/{name}.py"
        for name in ("corpus", "index_header", "indexed", "manifest", "own_tokens", "table", "tokenize", "write")
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
