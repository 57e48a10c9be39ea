"""Reads the user's files for a task of lm-eval, in the form that the task's templates read.

A file is JSON Lines, Parquet, or for texts without fields the plain text. lm-eval's templates name the fields of the
Hugging Face Hub. Where a data set's authors published other fields, these are renamed; records of the Hub stay.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from treering.errors import UserError
from treering.files import open_regular, open_text, reason

Item = dict[str, Any]

_JSON: Final = (".jsonl", ".json")
_ANLI: Final = {"e": 0, "n": 1, "c": 2}
_HANS: Final = {"entailment": 0, "non-entailment": 1}


def read_split(path: Path, task: str, where: str) -> list[tuple[int, Item]]:
    """The records of a file, each with the number of its line, row or text, from 1 on.

    Args:
        path: the file.
        task: the task's name.
        where: the field of the config that names the file, for errors.

    Raises:
        UserError: the file is missing, has another form, or a record has a label that the data set does not know.
    """
    try:
        if path.suffix == ".parquet":
            with open_regular(path) as file:
                rows = list(enumerate(pq.read_table(file).to_pylist(), 1))
        elif task in _TEXTS and path.suffix not in _JSON:
            with open_text(path) as file:
                rows = list(enumerate(_TEXTS[task](file.read()), 1))
        else:
            with open_text(path) as file:
                rows = [(number, _parse(line, path, number)) for number, line in enumerate(file, 1) if line.strip()]
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        known = "JSON Lines, Parquet" + (" or the raw text" if task in _TEXTS else "")
        raise UserError(f"{where}: {path}: not readable ({reason(error)}), expected a file of {known}") from None
    if not rows:
        raise UserError(f"{where}: {path}: found no record, expected at least one")
    convert = _PUBLISHED.get(task, dict)
    try:
        return [(number, convert(row)) for number, row in rows]
    except _UnknownLabelError as error:
        number = next(number for number, row in rows if row is error.row)
        raise UserError(f"{where}: {path} line {number}: {error}") from None


def _parse(line: str, path: Path, number: int) -> Item:
    """One record from its line.

    Raises:
        UserError: the line is not an object of JSON.
    """
    try:
        item = json.loads(line)
    except ValueError as error:
        raise UserError(f"{path} line {number}: not JSON ({error}), expected one record a line") from None
    if not isinstance(item, dict):
        raise UserError(f"{path} line {number}: a {type(item).__name__}, expected an object")
    return item


class _UnknownLabelError(ValueError):
    def __init__(self, row: Item, field: str, known: Mapping[Any, int]) -> None:
        expected = ", ".join(json.dumps(label) for label in known)
        super().__init__(f"{field}: found {row.get(field)!r:.80}, expected one of {expected}")
        self.row = row


def _label(row: Item, field: str, known: Mapping[Any, int]) -> int:
    try:
        return known[row.get(field)]
    except (KeyError, TypeError):
        raise _UnknownLabelError(row, field, known) from None


def _anli(row: Item) -> Item:
    """`context` and a letter, as in anli_v1.0.zip."""
    if "context" not in row:
        return row
    return {**row, "premise": row["context"], "label": _label(row, "label", _ANLI)}


def _super_glue(row: Item) -> Item:
    """`true` and `false`, as in the archives of SuperGLUE."""
    return {**row, "label": int(row["label"])} if isinstance(row.get("label"), bool) else row


def _hans(row: Item) -> Item:
    """`gold_label` and two sentences, as in heuristics_evaluation_set.jsonl."""
    if "gold_label" not in row:
        return row
    names = {"sentence1": "premise", "sentence2": "hypothesis"}
    renamed = {names.get(name, name): value for name, value in row.items()}
    return {**renamed, "label": _label(row, "gold_label", _HANS)}


def _race(row: Item) -> Item:
    """Questions, options and answers of an article as three lists, as in RACE.tar.gz."""
    if not isinstance(row.get("questions"), list):
        return row
    lists = (row.get(name) or () for name in ("questions", "options", "answers"))
    problems = [{"question": q, "options": o, "answer": a} for q, o, a in zip(*lists, strict=False)]
    return {**row, "problems": repr(problems)}  # the task reads it with ast.literal_eval


_PUBLISHED: Final[Mapping[str, Callable[[Item], Item]]] = {
    "anli_r1": _anli,
    "anli_r2": _anli,
    "anli_r3": _anli,
    "boolq": _super_glue,
    "hans": _hans,
    "race": _race,
    "wic": _super_glue,
}


def _lines(text: str) -> Iterator[Item]:
    return ({"text": line} for line in text.split("\n") if line.strip())


def _articles(text: str) -> Iterator[Item]:
    """Articles of WikiText: each begins with its title, a line ` = Title = `."""
    starts = [match.start() for match in re.finditer(r"^ = [^=].* = $", text, re.MULTILINE)]
    bounds = [*([] if starts and not text[: starts[0]].strip() else [0]), *starts, len(text)]
    # As in the data set on the Hub, the line break before the next title belongs to no article.
    pages = (text[start:end] for start, end in zip(bounds, (*(s - 1 for s in bounds[1:-1]), len(text)), strict=False))
    return ({"page": page} for page in pages if page.strip())


_TEXTS: Final[Mapping[str, Callable[[str], Iterator[Item]]]] = {
    "lambada_openai": _lines,
    "lambada_standard": _lines,
    "wikitext": _articles,
    "wikitext103": _articles,
}
