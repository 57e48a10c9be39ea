"""The arguments of a launch as fields of `MegatronRun`.

Megatron-LM and Megatron-DeepSpeed save their whole argparse namespace. Names and meanings are the same from 2021 to
megatron-core 0.16; an argument that a lineage does not have is missing. A run is refused if an argument decides the
data order and the order cannot be rebuilt.

Source: Megatron-LM, megatron/training/arguments.py, training.py (get_train_valid_test_num_samples) and
core/num_microbatches_calculator.py; Megatron-DeepSpeed, megatron/arguments.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from treering.audit.megatron.arguments import Arguments, flag
from treering.audit.megatron.data_paths import read_data_paths, unbound_file
from treering.audit.megatron.recognise import recognise
from treering.audit.megatron.report import Unbound
from treering.audit.megatron.saved import SavedRun

_SPLIT: Final = "969, 30, 1"
"""The split of `--data-path` without `--split`."""
REPEATED: Final = (
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
    """The arguments of a launch.

    Attributes:
        values: fields of `MegatronRun` with their values, as in a YAML file.
        arguments: of each field, the argument that holds the value, as a flag; None for Megatron's default.
        repeated: other arguments that the report repeats.
        lineages: lineages of Megatron that may have saved such arguments, the one in `values` first.
        open_ends: what the arguments leave open, in words.
        unbound: inputs that decide the order and are not confirmed.
    """

    values: dict[str, Any]
    arguments: dict[str, str | None]
    repeated: dict[str, Any]
    lineages: tuple[str, ...]
    open_ends: tuple[str, ...]
    unbound: tuple[Unbound, ...]


def launch_of(saved: SavedRun, moved: Mapping[str, str], stated: Mapping[str, Any] = MappingProxyType({})) -> Launch:
    """Reads saved arguments.

    Args:
        saved: the checkpoint that holds them.
        moved: today's place of each folder that moved, by its name in the run; for files of data paths.
        stated: fields of a description, which are not read in the arguments.

    Raises:
        UserError: the run's data order cannot be rebuilt, or a file of its data paths is missing.
        EvidenceError: an argument is missing, or Megatron could not have run with its value.
    """
    held = saved.arguments
    given = Arguments(saved.file, held)
    given.refuse(saved.weights)
    values: dict[str, Any] = {}
    arguments: dict[str, str | None] = {}

    def take(field: str, name: str | None, value: Any) -> None:
        if value is not None and field not in stated:
            values[field] = value
            arguments[field] = None if name is None else flag(name)

    name, listed = None, None
    if "data" not in stated:
        name, values["data"], listed = read_data_paths(given, moved)
        arguments["data"] = flag(name)
    if name in ("data_path", "data_args_path"):
        split = given.text("split")
        take("split", None if split is None else "split", split or _SPLIT)
    for field, argument in (("seed", "seed"), ("sequence_length", "seq_length")):
        if field not in stated:
            take(field, argument, given.needed(argument))
    _take_steps(given, take, stated, values.get("sequence_length", stated.get("sequence_length")))
    take("rampup", "rampup_batch_size", given.rampup())
    take("iterations_to_skip", "iterations_to_skip", given.numbers("iterations_to_skip") or None)
    take("consumed_samples", "consumed_train_samples", given.number("consumed_train_samples"))
    take("cache", "data_cache_path", given.text("data_cache_path"))
    take("surplus", "mid_level_dataset_surplus", given.decimal("mid_level_dataset_surplus"))
    take("extra_token", "add_extra_token_to_sequence", given.truth("add_extra_token_to_sequence"))
    take("renormalized", "renormalize_blend_weights", given.truth("renormalize_blend_weights") or None)
    take("exact_epochs", "train_data_exact_num_epochs", given.number("train_data_exact_num_epochs"))
    recognised = recognise(held, deepspeed=saved.deepspeed)
    take("lineage", recognised.argument, recognised.lineages[0].name)
    unbound = list(given.unbound())
    if name is not None and listed is not None:
        unbound.append(unbound_file(listed, name, saved.file))
    repeated = {name: given.shown(name) for name in REPEATED if held.get(name) is not None}
    lineages = tuple(lineage.name for lineage in recognised.lineages)
    return Launch(values, arguments, repeated, lineages, tuple(given.open_ends()), tuple(unbound))


def _take_steps(
    given: "Arguments", take: Callable[[str, str | None, Any], None], stated: Mapping[str, Any], length: Any
) -> None:
    """Takes the batch schedule, and the samples or iterations of the training."""
    sizes = given.batch_steps(length) if isinstance(length, int) and length > 0 else None
    if sizes is not None:  # Megatron then uses no other batch size
        take("batch_steps", "step_batch_size_schedule", sizes)
        take("global_batch_size", "step_batch_size_schedule", int(sizes.rpartition(":")[2]))
    elif "global_batch_size" not in stated:
        take("global_batch_size", "global_batch_size", given.needed("global_batch_size"))
    if {"train_samples", "train_iters"} & stated.keys():
        return
    if given.number("train_samples"):
        take("train_samples", "train_samples", given.number("train_samples"))
    else:
        take("train_iters", "train_iters", given.needed("train_iters"))
