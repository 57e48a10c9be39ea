"""Reads the tasks of lm-eval that a config lists, and checks them before anything is scored.

What a definition reads of a record is found by asking it: a task is made of the first record, and of the first record
without each of its fields in turn. Where that fails, or makes another prompt, the definition reads the field.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from datasets import Dataset

from treering.config.canonical import digest_file
from treering.config.operation import EvaluationTask
from treering.errors import UserError
from treering.project import Project
from treering_trainer.evaluate.library import load_definition
from treering_trainer.evaluate.splits import Item, read_split
from treering_trainer.evaluate.stock import REFUSED, StockTask, make, told

_ROLES: Final = {"test": "test_split", "validation": "validation_split", "train": "training_split"}
"""Names of splits in our config, and the fields of a definition that name them; the first one given is scored."""

_LINE: Final = "treering_line"
_KINDS: Final = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}


def read_stock_tasks(project: Project, tasks: Sequence[EvaluationTask], default: tuple[int, ...]) -> list[StockTask]:
    """The tasks of lm-eval that a config lists.

    Args:
        project: whose root the files are relative to.
        tasks: the config's list.
        default: shots of a task that gives none.

    Raises:
        UserError: a task is unknown, a split or a file is missing, or a record lacks what the definition reads; the
            text names task, file, line and field.
    """
    return [_read(project, task, default) for task in tasks]


def _read(project: Project, asked: EvaluationTask, default: tuple[int, ...]) -> StockTask:
    where = f"evaluation.tasks: {asked.task}"
    config = load_definition(asked.task)
    shots = _shots(asked, config, default, where)
    given = _by_split(asked, config, where)
    config = _with_given_splits(config, given, max(shots), where)
    paths = {split: project.root / name for split, name in given.items()}
    read = {split: read_split(path, asked.task, f"{where}: files: {split}") for split, path in paths.items()}
    for split, rows in read.items():
        _check(config, split, rows, f"{where}: files: {split}: {paths[split]}")
    scored = next((config[field] for field in _ROLES.values() if config.get(field) in given), next(iter(given)))
    try:
        splits = {split: Dataset.from_list([row for _, row in rows]) for split, rows in read.items()}
        lines = _lines(config, splits[scored], [number for number, _ in read[scored]])
    except REFUSED as error:
        raise UserError(f"{where}: files: {', '.join(given.values())}: {told(error)}") from error
    task = StockTask(
        name=asked.task,
        config=config,
        splits=splits,
        digests={split: digest_file(path) for split, path in paths.items()},
        scored=paths[scored],
        lines=lines,
        shots=shots,
        max_items=asked.max_items,
    )
    _check_examples(task, where)
    return task


def _shots(asked: EvaluationTask, config: Mapping[str, Any], default: tuple[int, ...], where: str) -> tuple[int, ...]:
    """The numbers of examples.

    Raises:
        UserError: the task takes no examples, and some are asked for.
    """
    rolling = config.get("output_type") == "loglikelihood_rolling"
    if not rolling and config.get("num_fewshot") != 0:
        return asked.shots or default
    if any(asked.shots or ()):
        why = "whole texts have no examples" if rolling else "its definition takes no examples"
        raise UserError(f"{where}: shots: found {list(asked.shots or ())}, expected [0]: {why}")
    return (0,)


def _by_split(asked: EvaluationTask, config: Mapping[str, Any], where: str) -> dict[str, str]:
    """The user's files by the definition's name of their split.

    Raises:
        UserError: a split that the definition does not have.
    """
    names = {role: config.get(field) or (role if "class" in config else None) for role, field in _ROLES.items()}
    if isinstance(asked.files, str):
        return {next(name for name in names.values() if name): asked.files}
    known = {name for name in (*names.values(), _examples_split(config)) if name}
    found = {}
    for key, path in asked.files.items():
        split = key if key in known else names.get(key)
        if split is None:
            expected = ", ".join(sorted(known | {role for role, name in names.items() if name}))
            raise UserError(f"{where}: files: found the split {key!r}, expected one of {expected}")
        found[split] = path
    return found


def _examples_split(config: Mapping[str, Any]) -> str | None:
    """The split that lm-eval takes examples from."""
    own = config.get("fewshot_split") or dict(config.get("fewshot_config") or {}).get("split")
    order = ("training_split", "validation_split", "test_split")
    return own or next((config[field] for field in order if config.get(field)), None)


def _with_given_splits(config: dict[str, Any], given: Mapping[str, str], shots: int, where: str) -> dict[str, Any]:
    """The definition without the splits that have no file.

    Raises:
        UserError: a file is missing for what is scored, or for the examples.
    """
    if "class" in config:  # the class names its splits
        return config
    if not any(config.get(_ROLES[role]) in given for role in ("test", "validation")):
        names = [role for role in ("test", "validation") if config.get(_ROLES[role])]
        raise UserError(f"{where}: files: {' or '.join(names)}: missing, expected the file that is scored")
    shown = dict(config.get("fewshot_config") or {})
    examples = _examples_split(config)
    if shots and not shown.get("samples") and examples not in given:
        role = next((role for role, field in _ROLES.items() if config.get(field) == examples), examples)
        raise UserError(
            f"{where}: files: {role}: missing, expected the file of the examples; add `{role}: FILE`, or ask for "
            "`shots: [0]`"
        )
    changed: dict[str, Any] = {
        field: None for field in (*_ROLES.values(), "fewshot_split") if config.get(field) not in given
    }
    if shown.get("split") not in (None, *given):
        changed["fewshot_config"] = {**shown, "split": None}
    return {**config, **changed}


def _check(config: Mapping[str, Any], split: str, rows: Sequence[tuple[int, Item]], where: str) -> None:
    """Checks that each record has the fields that the definition reads, of one kind.

    Raises:
        UserError: a field is missing or of another kind.
    """
    line, first = rows[0]
    try:
        made = _prompt(config, split, first)
    except REFUSED as error:
        raise UserError(f"{where} line {line}: {told(error)}") from error

    def reads(field: str) -> bool:
        try:
            return _prompt(config, split, {name: value for name, value in first.items() if name != field}) != made
        except REFUSED:
            return True

    needed = [field for field in first if reads(field)]
    for number, row in rows:
        for field in needed:
            found, expected = _kind(row.get(field)), _kind(first[field])
            if found != expected:
                what = "missing" if row.get(field) is None else f"found {row[field]!r:.80}"
                raise UserError(f"{where} line {number}: {field}: {what}, expected {expected}")


def _prompt(config: Mapping[str, Any], split: str, row: Item) -> tuple[Any, ...]:
    """What the definition makes of a record, in whichever split it reads it.

    Raises:
        KeyError: the definition names a field that the record lacks; further errors are in `REFUSED`.
    """
    named = {split, _examples_split(config), *_ROLES, *(config.get(field) for field in _ROLES.values())}
    task = make(config, {str(name): Dataset.from_list([row]) for name in named})
    for part in ("doc_to_text", "doc_to_target"):
        field = config.get(part)
        # lm-eval takes the name of a field that is missing for a text.
        if isinstance(field, str) and field.isidentifier() and field not in task.features:
            raise KeyError(field)
    doc = task.eval_docs[0]
    choices = task.doc_to_choice(doc) if config.get("doc_to_choice") else None
    return task.doc_to_text(doc), task.doc_to_target(doc), choices


def _kind(value: object) -> str:
    return "a value" if value is None else _KINDS.get(type(value), "an object")


def _lines(config: Mapping[str, Any], records: Dataset, numbers: list[int]) -> tuple[int, ...] | None:
    """The line of each item: a definition may leave records out, or bring them into another order."""
    process = config.get("process_docs")
    if process is None:
        return tuple(numbers)
    found = process(records.add_column(_LINE, pa.array(numbers)))
    return tuple(found[_LINE]) if _LINE in getattr(found, "column_names", ()) else None


def _check_examples(task: StockTask, where: str) -> None:
    """Checks that there are as many examples as asked for.

    Raises:
        UserError: the file has fewer.
    """
    if most := max(task.shots):
        pool = len(task.build(0, lambda *_: True).sampler.df)
        if pool <= most:
            raise UserError(
                f"{where}: shots: found {most}, but the file of the examples has {pool} records; expected more records "
                f"than shots"
            )
