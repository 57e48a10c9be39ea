"""What the arguments of a launch say, in the terms of `MegatronRun`.

Megatron-LM and Megatron-DeepSpeed save their argparse namespace whole. Names and meanings have kept from 2021 to
megatron-core 0.16: what a lineage does not know is absent here. What the data order depends on and cannot be rebuilt
is refused.

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
"""What `--data-path` without `--split` means."""
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
        name, values["data"], listed = read_data_paths(told, moved)
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
        unbound.append(unbound_file(listed, name, saved.file))
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
