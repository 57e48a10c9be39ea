"""The arguments that a Megatron run was launched with, as its checkpoints hold them, in the terms of `MegatronRun`.

Megatron-LM and Megatron-DeepSpeed save their argparse namespace whole. Names and meanings have kept from 2021 to
megatron-core 0.16: what a lineage does not know is absent here. What the data order depends on and cannot be rebuilt
is refused.

Source: Megatron-LM, megatron/training/arguments.py, utils.py (get_blend_and_blend_per_split), training.py
(get_train_valid_test_num_samples) and core/num_microbatches_calculator.py; Megatron-DeepSpeed, megatron/arguments.py.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from types import MappingProxyType
from typing import Any, Final

from treering.audit.megatron.inputs import POINTERS, REFUSED, is_set, unknown_arguments
from treering.audit.megatron.moved import moved_path
from treering.audit.megatron.recognise import recognise
from treering.audit.megatron.report import Unbound
from treering.audit.megatron.saved import SavedRun
from treering.audit.megatron.unpickle import Inert
from treering.audit.megatron.weights import other_kind
from treering.data.megatron.lineage import MAX_PATHS
from treering.errors import EvidenceError, UserError
from treering.files import read_text

_SPLIT: Final = "969, 30, 1"
"""What `--data-path` without `--split` means."""
_SUFFIXES: Final = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_GPT_TYPES: Final = (1, "encoder_or_decoder")
"""Megatron's `model_type` of a GPT: the number and the name of the member of its enumeration."""
_OTHER_TYPES: Final = {
    2: "an encoder-decoder, as T5",
    3: "Retro",
    4: "Retro",
    "encoder_and_decoder": "an encoder-decoder, as T5",
    "retro_encoder": "Retro",
    "retro_decoder": "Retro",
}
MOST_CHARACTERS: Final = 10_000
"""Characters of a text or of a path."""
MOST_WORDS: Final = 2 * 32_766
"""Words of a list of data paths with weights: no lineage takes more than 32,766 data paths."""
_LARGEST: Final = 10**15
_MOST_NAMED: Final = 20
_SHORT: Final = Repr()
_SHORT.maxlevel, _SHORT.maxother = 3, 80
TOLD: Final = (
    "tokenizer_type",
    "tokenizer_model",
    "vocab_file",
    "eod_mask_loss",
    "reset_position_ids",
    "reset_attention_mask",
)
"""Arguments that the report repeats, though the order does not depend on them."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What the arguments say.

    Attributes:
        values: fields of `MegatronRun` with their values, as a YAML file would have them.
        arguments: of each field, the argument that said so, as a flag; None where it is Megatron's default.
        told: other arguments that a reader wants to see.
        lineages: lineages of Megatron that may have saved such arguments, the one in `values` first.
        open_ends: what they leave open, in words.
        unbound: what decides the order and is not confirmed.
    """

    values: dict[str, Any]
    arguments: dict[str, str | None]
    told: dict[str, Any]
    lineages: tuple[str, ...]
    open_ends: tuple[str, ...]
    unbound: tuple[Unbound, ...]


def launch_of(saved: SavedRun, moved: Mapping[str, str], stated: Mapping[str, Any] = MappingProxyType({})) -> Launch:
    """Reads saved arguments.

    Args:
        saved: the checkpoint that holds them.
        moved: where folders lie today, by where the run saw them; for files of data paths.
        stated: fields of a description, which are not asked of the arguments.

    Raises:
        UserError: the run's data order cannot be rebuilt, or a file of its data paths is missing.
        EvidenceError: an argument is missing or no value that Megatron could have worked with.
    """
    held = saved.arguments
    told = Arguments(saved.file, held)
    told.refuse(saved.weights)
    values: dict[str, Any] = {}
    arguments: dict[str, str | None] = {}

    def take(field: str, name: str | None, value: Any) -> None:
        if value is not None and field not in stated:
            values[field] = value
            arguments[field] = None if name is None else flag(name)

    name, listed = None, None
    if "data" not in stated:
        name, values["data"], listed = _data(told, moved)
        arguments["data"] = flag(name)
    if name in ("data_path", "data_args_path"):
        split = told.text("split")
        take("split", None if split is None else "split", split or _SPLIT)
    for field, argument in (("seed", "seed"), ("sequence_length", "seq_length")):
        if field not in stated:
            take(field, argument, told.needed(argument))
    _take_steps(told, take, stated, values.get("sequence_length", stated.get("sequence_length")))
    take("rampup", "rampup_batch_size", told.rampup())
    take("iterations_to_skip", "iterations_to_skip", told.numbers("iterations_to_skip") or None)
    take("consumed_samples", "consumed_train_samples", told.number("consumed_train_samples"))
    take("cache", "data_cache_path", told.text("data_cache_path"))
    take("surplus", "mid_level_dataset_surplus", told.decimal("mid_level_dataset_surplus"))
    take("extra_token", "add_extra_token_to_sequence", told.truth("add_extra_token_to_sequence"))
    take("renormalized", "renormalize_blend_weights", told.truth("renormalize_blend_weights") or None)
    take("exact_epochs", "train_data_exact_num_epochs", told.number("train_data_exact_num_epochs"))
    recognised = recognise(held, deepspeed=saved.deepspeed)
    take("lineage", recognised.argument, recognised.lineages[0].name)
    unbound = list(told.unbound())
    if name is not None and listed is not None:
        unbound.append(_unbound_file(listed, name, saved.file))
    repeated = {name: told.shown(name) for name in TOLD if held.get(name) is not None}
    lineages = tuple(lineage.name for lineage in recognised.lineages)
    return Launch(values, arguments, repeated, lineages, tuple(told.open_ends()), tuple(unbound))


def _take_steps(
    told: "Arguments", take: Callable[[str, str | None, Any], None], stated: Mapping[str, Any], length: Any
) -> None:
    """Takes the batch schedule, and the samples or iterations of the training."""
    sizes = told.batch_steps(length) if isinstance(length, int) and length > 0 else None
    if sizes is not None:  # Megatron takes no other
        take("batch_steps", "step_batch_size_schedule", sizes)
        take("global_batch_size", "step_batch_size_schedule", int(sizes.rpartition(":")[2]))
    elif "global_batch_size" not in stated:
        take("global_batch_size", "global_batch_size", told.needed("global_batch_size"))
    if {"train_samples", "train_iters"} & stated.keys():
        return
    if told.number("train_samples"):
        take("train_samples", "train_samples", told.number("train_samples"))
    else:
        take("train_iters", "train_iters", told.needed("train_iters"))


def flag(name: str) -> str:
    """An argument as it stands on a command line."""
    return f"--{name.replace('_', '-')}"


def shown(value: Any) -> str:
    """A value of any kind on a short line."""
    return _SHORT.repr(value) if not isinstance(value, str) else _SHORT.repr(value).strip("'")


def enumerated(value: Any) -> Any:
    """The number of a member of an enumeration, or its name: Python before 3.11.4 pickles `getattr(class, name)`."""
    if isinstance(value, Inert):
        if len(value.arguments) == 1 and isinstance(value.arguments[0], int):
            return value.arguments[0]
        if value.kind in {"builtins.getattr", "__builtin__.getattr"} and len(value.arguments) == 2:
            return value.arguments[1]
    return value


def _other_type(model_type: Any) -> str | None:
    """What a model is by its `model_type`; None for a GPT, or where the arguments have no type."""
    member = enumerated(model_type)
    if member is None or member in _GPT_TYPES:
        return None
    return _OTHER_TYPES.get(member, shown(member)) if isinstance(member, int | str) else shown(model_type)


class Arguments:
    """Arguments by name, with errors that name them."""

    def __init__(self, file: Path, held: Mapping[str, Any]) -> None:
        self.file = file
        self._held = held

    def refuse(self, weights: Iterable[str]) -> None:
        """Raises where the order cannot be rebuilt.

        Args:
            weights: names of the model's weights.
        """
        for name, refusal in REFUSED.items():
            value = self._held.get(name)
            if is_set(value, refusal.usual):
                found = f" {shown(value)}, expected {refusal.usual[0]}" if refusal.usual else ""
                raise UserError(
                    f"{self.file}: launched with {flag(name)}{found}: {refusal.reason}; "
                    "this data order cannot be rebuilt"
                )
        found_kind = other_kind(weights)
        kind = _other_type(self._held.get("model_type"))
        if found_kind is not None or kind is not None:
            what = (
                f"{kind} (model_type)"
                if found_kind is None
                else f"{found_kind[0]} (it has the weights {found_kind[1]})"
            )
            raise UserError(
                f"{self.file}: the model is {what}, expected a GPT: the data sets of another kind of model have "
                "another order, which cannot be rebuilt"
            )

    def unbound(self) -> Iterator[Unbound]:
        """What decides part of what was read, and is not confirmed."""
        for name, pointer in POINTERS.items():
            value = self._held.get(name)
            if is_set(value, pointer.usual):
                yield Unbound(f"{flag(name)} {shown(value)}", pointer.why, pointer.remedy)
        unknown = unknown_arguments(self._held)
        if unknown:
            named = ", ".join(f"{name} ({shown(self._held[name])})" for name in unknown[:_MOST_NAMED])
            more = len(unknown) - _MOST_NAMED
            yield Unbound(
                f"Unknown arguments that can touch data: {named}" + (f", and {more} more" if more > 0 else ""),
                "No lineage that the audit knows has these arguments, so the data order may depend on them.",
                "Find out what they do in the program that trained, and describe the run in megatron-run.yaml without "
                "`checkpoint:` if they leave the order alone.",
            )
        if not self._held.get("finetune") and self.text("load") not in (None, self.text("save")):
            yield Unbound(
                f"The checkpoint in {self.text('load')} (--load) from which the run went on",
                "It decides what was read before, and by which arguments.",
                "Audit that folder too; what it read comes before the steps of this one.",
            )

    def open_ends(self) -> list[str]:
        """What these arguments leave open."""
        found = []
        if self._held.get("finetune") or self.text("pretrained_checkpoint"):
            start = self.text("pretrained_checkpoint") or self.text("load")
            found.append(f"What the weights had read that this run started from (--finetune, {start}).")
        if self._held.get("decrease_batch_size_if_needed"):
            found.append("That no batch was made smaller to fit the devices (--decrease-batch-size-if-needed).")
        return found

    @property
    def names(self) -> frozenset[str]:
        """Names of all arguments."""
        return frozenset(self._held)

    def held(self, name: str) -> Any:
        """A value as it was saved, None where there is none."""
        return self._held.get(name)

    def text(self, name: str) -> str | None:
        """A text or a path."""
        value = self._held.get(name)
        if isinstance(value, Inert) and value.kind.startswith("pathlib."):
            parts = [each for each in value.arguments if isinstance(each, str)]
            value = "/".join(parts).replace("//", "/") if len(parts) == len(value.arguments) else value
        if value is None or (isinstance(value, str) and len(value) <= MOST_CHARACTERS):
            return value
        raise self.wrong(name, f"a text of at most {MOST_CHARACTERS:,} characters")

    def number(self, name: str) -> int | None:
        """A whole number from 0."""
        value = self._held.get(name)
        if value is None:
            return None
        return self._whole(name, value)

    def needed(self, name: str) -> int:
        """A whole number that must be there."""
        value = self.number(name)
        if value is None:
            raise self.wrong(name, "a number")
        return value

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers, empty where there is none."""
        value = self._held.get(name)
        if not isinstance(value, list | tuple):
            if value is None:
                return []
            raise self.wrong(name, "a list of numbers")
        return [self._whole(name, each) for each in value]

    def decimal(self, name: str) -> float | None:
        """A number."""
        value = self._held.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST:
            return float(value)
        if value is None:
            return None
        raise self.wrong(name, f"a number from -{_LARGEST:,} to {_LARGEST:,}")

    def truth(self, name: str) -> bool | None:
        """A switch."""
        value = self._held.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(name, "true or false")

    def words(self, name: str) -> list[str] | None:
        """The words of a list, as a command line has them."""
        value = self._held.get(name)
        if value is None:
            return None
        listed = value.split() if isinstance(value, str) else value
        if (
            not isinstance(listed, list | tuple)
            or len(listed) > MOST_WORDS
            or not all(isinstance(each, str | int | float) for each in listed)
            or any(len(each) > MOST_CHARACTERS for each in listed if isinstance(each, str))
        ):
            raise self.wrong(
                name, f"a list of at most {MOST_WORDS:,} words, each of at most {MOST_CHARACTERS:,} characters"
            )
        return [str(each) for each in listed]

    def rampup(self) -> dict[str, int] | None:
        """`--rampup-batch-size START INCREMENT SAMPLES`."""
        words = self.numbers("rampup_batch_size")
        if not words:
            return None
        if len(words) != 3:
            raise self.wrong("rampup_batch_size", "three numbers: start, increment, samples")
        return dict(zip(("start", "increment", "samples"), words, strict=True))

    def batch_steps(self, sequence_length: int) -> str | None:
        """`--step-batch-size-schedule TOKENS:SAMPLES ...`, each threshold rounded to whole samples as Megatron does."""
        text = self.text("step_batch_size_schedule")
        if text is None:
            return None
        entries = []
        for entry in text.replace(",", " ").split():
            tokens, colon, size = entry.partition(":")
            try:
                entries.append((_scaled(tokens) // sequence_length, _scaled(size)))
            except (ValueError, OverflowError):
                colon = ""
            if not colon:
                raise self.wrong("step_batch_size_schedule", "TOKENS:SAMPLES, as 250B:1536")
        if not entries:
            raise self.wrong("step_batch_size_schedule", "TOKENS:SAMPLES, as 250B:1536")
        return " ".join(f"{samples * sequence_length}:{size}" for samples, size in sorted(entries))

    def shown(self, name: str) -> Any:
        """A value for people: an object by its name."""
        value = self._held.get(name)
        return value if isinstance(value, str | int | float) else shown(value)

    def _whole(self, name: str, value: Any) -> int:
        if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_LARGEST)):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            return value
        raise self.wrong(name, f"a whole number from 0 to {_LARGEST:,}")

    def wrong(self, name: str, expected: str) -> EvidenceError:
        """The error of an argument with a wrong value."""
        found = _SHORT.repr(self._held[name]) if name in self._held else "none"
        return EvidenceError(
            f"{self.file}: argument {name}: found {found}, expected {expected}; give it in megatron-run.yaml, with "
            "`checkpoint:` or `launch:` for the rest (docs/megatron.md)"
        )


def _unbound_file(listed: Path, name: str, checkpoint: Path) -> Unbound:
    """The file of data paths that a checkpoint names, and whose content it does not hold."""
    newer = listed.stat().st_mtime > checkpoint.stat().st_mtime
    return Unbound(
        what=f"{listed}: the file of data paths ({flag(name)})",
        why="The checkpoint holds its name, not its content, which decides every data path and weight."
        + (" It was changed after the checkpoint was written." if newer else ""),
        remedy="Give `data` in megatron-run.yaml as it was at the launch (docs/megatron.md).",
        field="data",
    )


def _data(told: Arguments, moved: Mapping[str, str]) -> tuple[str, list[dict[str, Any]], Path | None]:
    """Which argument named the data of the training, its entries, and the file that listed them, if one did."""
    for name in ("data_path", "train_data_path"):
        words = told.words(name)
        if words:
            return name, blend_of(told.file, name, words), None
    for name in ("train_weighted_split_paths", "train_weighted_split_paths_path"):
        entries, source = _weighted_splits(told, name, moved)
        if entries:
            return name, entries, source
    for name in ("data_args_path", "per_split_data_args_path"):
        listed = told.text(name)
        if listed is None:
            continue
        place = moved_path(listed, moved)
        try:
            text = read_text(place)
            words = text.split() if name == "data_args_path" else json.loads(text)["train"]
        except OSError as error:
            raise UserError(
                f"{told.file}: its data paths are in {listed} ({flag(name)}); {place}: {error.strerror}; say where it "
                "lies with --data-root OLD=NEW, or name the data in megatron-run.yaml"
            ) from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            form = "words" if name == "data_args_path" else "JSON"
            raise EvidenceError(
                f"{place}: {reason[:200]}; expected the {form} that {flag(name)} reads"
                + (", with `train`" if form == "JSON" else "")
            ) from None
        if isinstance(words, list) and words:
            return name, blend_of(place, name, [str(word) for word in words]), place
    raise UserError(
        f"{told.file}: the arguments name no training data (data_path, data_args_path, train_data_path, "
        "per_split_data_args_path, train_weighted_split_paths): Megatron then reads made-up data; if it did not, name "
        "the data in megatron-run.yaml"
    )


def _weighted_splits(told: Arguments, name: str, moved: Mapping[str, str]) -> tuple[list[dict[str, Any]], Path | None]:
    """The data of `--train-weighted-split-paths`, and the file that listed them, if one did; bigscience's.

    A checkpoint holds the words taken apart, a launch script holds `NAME: WEIGHT START:END PREFIX, WEIGHT ...`.

    Source: bigscience-workshop/Megatron-DeepSpeed 8387ae17, megatron/arguments.py, parse_data_paths.
    """
    found = told.held(name)
    listed: Path | None = None
    if not found:
        return [], None
    if name.endswith("_path"):
        listed = moved_path(str(told.text(name)), moved)
        try:
            found = [read_text(listed).strip().strip('"')]
        except (OSError, ValueError) as error:
            raise UserError(
                f"{told.file}: its data paths are in {told.text(name)} ({flag(name)}); {listed}: {error}; say where it "
                "lies with --data-root OLD=NEW, or name the data in megatron-run.yaml"
            ) from None
    expected = "one group: NAME: WEIGHT START:END PREFIX, WEIGHT START:END PREFIX"
    if not isinstance(found, list | tuple) or len(found) != 1:
        raise told.wrong(name, expected)
    if isinstance(found[0], str):
        rows = [part.split() for part in found[0].partition(":")[2].split(",")]
    else:
        told_apart = [told.held(name.replace("paths", part)) for part in ("weights", "splits")]
        if not all(isinstance(each, list) and len(each) == 1 and isinstance(each[0], list) for each in told_apart):
            raise told.wrong(
                name, "its weights and splits too (train_weighted_split_weights, train_weighted_split_splits)"
            )
        rows = [list(map(str, row)) for row in zip(*(each[0] for each in told_apart), found[0], strict=False)]
    entries = []
    for row in rows:
        weight = _weight(row[0]) if len(row) == 3 else None
        part = [_weight(bound) for bound in row[1].split(":")] if len(row) == 3 else []
        if weight is None or len(part) != 2 or None in part:
            raise told.wrong(name, expected)
        entries.append({"prefix": row[2], "weight": weight, "part": part})
    return entries, listed


def blend_of(file: Path, name: str, words: list[str]) -> list[dict[str, Any]]:
    """The words of `--data-path` as prefixes with weights, or without where none of them is a number.

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
        raise EvidenceError(
            f"{file}: argument {name}: found {' '.join(words)[:80]!r}, expected WEIGHT PREFIX, in pairs"
        )
    return [{"prefix": word.strip(), "weight": weight} for weight, word in zip(weights, words[1::2], strict=True)]


def _weight(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _scaled(text: str) -> int:
    """A number as the schedule of batch sizes has it, `1.5M`."""
    text = text.strip().upper()
    return int(float(text.rstrip("KMBT")) * _SUFFIXES.get(text[-1:], 1))
