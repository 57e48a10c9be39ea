"""The data paths of a launch with their weights, in every form in which the arguments of Megatron name them.

Source: Megatron-LM, megatron/training/utils.py, get_blend_and_blend_per_split.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treering.audit.megatron.arguments import Arguments, flag
from treering.audit.megatron.moved import moved_path
from treering.audit.megatron.report import Unbound
from treering.data.megatron.lineage import MAX_PATHS
from treering.errors import EvidenceError, UserError
from treering.files import read_text


def unbound_file(listed: Path, name: str, checkpoint: Path) -> Unbound:
    """The unbound file of data paths: the checkpoint holds its name and not its content."""
    newer = listed.stat().st_mtime > checkpoint.stat().st_mtime
    return Unbound(
        what=f"{listed}: the file of data paths ({flag(name)})",
        why="The checkpoint holds its name, not its content, which decides every data path and weight."
        + (" It was changed after the checkpoint was written." if newer else ""),
        remedy="Give `data` in megatron-run.yaml as it was at the launch (docs/megatron.md).",
        field="data",
    )


def read_data_paths(given: Arguments, moved: Mapping[str, str]) -> tuple[str, list[dict[str, Any]], Path | None]:
    """The argument that named the data of the training, its entries, and the file that listed them, or None.

    Raises:
        UserError: no argument names data, or the file that lists them is missing.
        EvidenceError: the file or an argument does not list data paths.
    """
    for name in ("data_path", "train_data_path"):
        words = given.words(name)
        if words:
            return name, blend_of(given.file, name, words), None
    for name in ("train_weighted_split_paths", "train_weighted_split_paths_path"):
        entries, source = _weighted_splits(given, name, moved)
        if entries:
            return name, entries, source
    for name in ("data_args_path", "per_split_data_args_path"):
        listed = given.text(name)
        if listed is None:
            continue
        place = moved_path(listed, moved)
        try:
            text = read_text(place)
            words = text.split() if name == "data_args_path" else json.loads(text)["train"]
        except OSError as error:
            raise UserError(
                f"{given.file}: its data paths are in {listed} ({flag(name)}); {place}: {error.strerror}; name its "
                "folder with --data-root OLD=NEW, or the data in megatron-run.yaml"
            ) from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            form = "words" if name == "data_args_path" else "JSON"
            expected = f"the {form} that {flag(name)} reads" + (", with `train`" if form == "JSON" else "")
            raise EvidenceError(
                f"{place}: {reason[:200]}; expected {expected}", file=place, found=reason[:200], expected=expected
            ) from None
        if isinstance(words, list) and words:
            return name, blend_of(place, name, [str(word) for word in words]), place
    raise UserError(
        f"{given.file}: the arguments name no training data (data_path, data_args_path, train_data_path, "
        "per_split_data_args_path, train_weighted_split_paths): Megatron then reads made-up data; if it did not, name "
        "the data in megatron-run.yaml"
    )


def _weighted_splits(given: Arguments, name: str, moved: Mapping[str, str]) -> tuple[list[dict[str, Any]], Path | None]:
    """The data of bigscience's `--train-weighted-split-paths`, and the file that listed them, or None.

    A checkpoint holds the parsed words, a launch script holds `NAME: WEIGHT START:END PREFIX, WEIGHT ...`.

    Source: bigscience-workshop/Megatron-DeepSpeed 8387ae17, megatron/arguments.py, parse_data_paths.

    Raises:
        UserError: the file that lists the data paths cannot be read.
        EvidenceError: the argument has another form.
    """
    found = given.held(name)
    listed: Path | None = None
    if not found:
        return [], None
    if name.endswith("_path"):
        listed = moved_path(str(given.text(name)), moved)
        try:
            found = [read_text(listed).strip().strip('"')]
        except (OSError, ValueError) as error:
            raise UserError(
                f"{given.file}: its data paths are in {given.text(name)} ({flag(name)}); {listed}: {error}; name its "
                "folder with --data-root OLD=NEW, or the data in megatron-run.yaml"
            ) from None
    expected = "one group: NAME: WEIGHT START:END PREFIX, WEIGHT START:END PREFIX"
    if not isinstance(found, list | tuple) or len(found) != 1:
        raise given.wrong(name, expected)
    if isinstance(found[0], str):
        rows = [part.split() for part in found[0].partition(":")[2].split(",")]
    else:
        lists = [given.held(name.replace("paths", part)) for part in ("weights", "splits")]
        if not all(isinstance(each, list) and len(each) == 1 and isinstance(each[0], list) for each in lists):
            raise given.wrong(
                name, "its weights and splits too (train_weighted_split_weights, train_weighted_split_splits)"
            )
        rows = [list(map(str, row)) for row in zip(*(each[0] for each in lists), found[0], strict=False)]
    entries = []
    for row in rows:
        weight = _weight(row[0]) if len(row) == 3 else None
        part = [_weight(bound) for bound in row[1].split(":")] if len(row) == 3 else []
        if weight is None or len(part) != 2 or None in part:
            raise given.wrong(name, expected)
        entries.append({"prefix": row[2], "weight": weight, "part": part})
    return entries, listed


def blend_of(file: Path, name: str, words: list[str]) -> list[dict[str, Any]]:
    """The words of `--data-path` as prefixes with weights, or without weights where no word is a number.

    Source: megatron-core 0.16.1, megatron/core/datasets/utils.py, get_blend_from_list.

    Raises:
        UserError: there are more data paths than any lineage takes.
        EvidenceError: some weights are numbers and some are not.
    """
    if len(words) > 2 * MAX_PATHS:
        raise UserError(
            f"{file}: argument {name}: found {len(words):,} words, expected at most {MAX_PATHS:,} data paths, which is "
            "the most that any lineage takes (docs/data-order.md)"
        )
    weights = [_weight(word) for word in words[::2]] if len(words) % 2 == 0 else [None]
    if all(weight is None for weight in weights):
        return [{"prefix": word.strip()} for word in words]
    if any(weight is None for weight in weights):
        found, expected = " ".join(words)[:80], "WEIGHT PREFIX, in pairs"
        raise EvidenceError(
            f"{file}: argument {name}: found {found!r}, expected {expected}", file=file, found=found, expected=expected
        )
    return [{"prefix": word.strip(), "weight": weight} for weight, word in zip(weights, words[1::2], strict=True)]


def _weight(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
