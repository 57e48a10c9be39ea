"""Begins a project: looks at the data, makes the experiment, checks it, and writes the files around it."""

import re
from collections.abc import Sequence
from pathlib import Path

from treering.config.load import validate_section
from treering.config.schema import Experiment
from treering.config.yaml_text import parse_yaml
from treering.data.corpus.own_tokenizer import read_own_tokenizer
from treering.data.corpus.tokenizer import num_entries, parse_tokenizer
from treering.errors import UserError
from treering.project import Project
from treering.setup.experiment import experiment_text
from treering.setup.files import Written, write_project
from treering.setup.given import data_here, look_at

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def proposed_name(project: Project) -> str:
    """The folder's name as the name of an experiment."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", project.root.resolve().name).strip("-._")[:64]
    return word or "experiment"


def begin(
    project: Project,
    name: str,
    data: Sequence[str],
    *,
    text_field: str = "text",
    licence: str = "unknown",
    tokenizer: str | None = None,
    end_of_document: str = "<|endoftext|>",
    minimal: bool = False,
) -> Written:
    """Makes a folder a project.

    Args:
        project: the folder.
        name: of the experiment.
        data: paths of the data, one a corpus.
        text_field: field of the text.
        licence: of documents that name none.
        tokenizer: a tokenizer of your own, in any form that `tokenizer.file` may have.
        end_of_document: its token that ends a document.
        minimal: without DVC.

    Raises:
        UserError: an answer is wrong, or a file is in the way; nothing was written.
        NotFoundError: a path of the data or of the tokenizer does not exist.
        EvidenceError: the tokenizer cannot be read.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"init: the name is {name!r}, expected letters, digits, dots, dashes and underscores, at most 64; write "
            "another name behind `treering init`"
        )
    if not data:
        found = data_here(project.root)
        remedy = " ".join(f"--data {path}" for path in found) or "--data texts/letters.jsonl"
        raise UserError(f"init: no data was named, expected at least one path: `treering init {remedy}`")
    corpora = look_at(data, text_field, licence, project)
    tokens = [corpus.config.name for corpus in corpora if not corpus.config.has_text]
    if tokens and tokenizer is None:
        raise UserError(
            f"init: corpus {tokens[0]} is tokens already, expected the tokenizer that made them; name it by --tokenizer"
        )
    own = None
    if tokenizer is not None:
        given = project.root / tokenizer
        entries = num_entries(parse_tokenizer(read_own_tokenizer(given, end_of_document), given))
        own = (tokenizer, entries, end_of_document)
    text = experiment_text(name, corpora, own)
    validate_section(Path(f"experiments/{name}.yaml"), Experiment, parse_yaml(text))
    return write_project(project, name, text, minimal=minimal)


def next_commands(name: str, *, minimal: bool) -> list[str]:
    """The commands that lead from a new project to an audited checkpoint."""
    config = f"experiments/{name}.yaml"
    stages = [f"treering {stage} {config}" for stage in ("fetch", "curate", "tokenize", "blend", "train", "evaluate")]
    return [*(stages if minimal else ["dvc repro"]), "treering audit published --verify", "treering up"]
