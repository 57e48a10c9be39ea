"""Recognises the lineage of Megatron that saved a namespace of arguments.

A name that only one lineage has is evidence. A name that is missing is evidence only in a whole namespace: a program
saves every argument it knows, but people remove arguments when they convert checkpoints. A namespace of 200 arguments
or more counts as whole. A whole one with a single name of `megatron-core-0.11` may be an older program that adopted one
argument: both fit.

Only one lineage has: `mid_level_dataset_surplus` (`megatron-core-0.13`); `moe_permute_fusion`,
`cuda_graph_warmup_steps`, `iterations_to_skip` and others, without the former (0.11); `renormalize_blend_weights` (0.7,
in a whole namespace without those above); `data_impl` without `deepspeed` (`megatron-lm-legacy`);
`train_data_exact_num_epochs`, `data_efficiency_curriculum_learning` and others (`megatron-deepspeed`);
`train_weighted_split_paths`, `skip_train_iteration_range` and others (`bigscience`); `train_data_paths`,
`pipe_parallel_size` and others (`gpt-neox`). A whole namespace with `mock_data` and without
`num_dataset_builder_threads` is 0.5, one without `mock_data` and `data_impl` is 0.4.

Source: `megatron/arguments.py` or `megatron/training/arguments.py` of each release that
`treering.data.megatron.lineage` names; the arguments of megatron-core 0.11 came between commits 85676ca489 (its
rounding) and d5e76c2ebb (the surplus argument).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from treering.data.megatron.lineage import LINEAGES, Lineage

_MARKS: Final = {
    "megatron-core-0.13": ("mid_level_dataset_surplus",),
    "megatron-core-0.11": (
        "moe_permute_fusion",
        "cuda_graph_warmup_steps",
        "moe_router_score_function",
        "num_virtual_stages_per_pipeline_rank",
        "iterations_to_skip",
        "moe_enable_deepep",
        "mtp_num_layers",
    ),
    "megatron-core-0.7": ("renormalize_blend_weights",),
    "megatron-deepspeed": (
        "train_data_exact_num_epochs",
        "data_efficiency_curriculum_learning",
        "curriculum_learning_legacy",
        "train_doc_idx_path",
        "train_shuffle_idx_path",
        "random_ltd",
    ),
    "bigscience": (
        "train_weighted_split_paths",
        "skip_train_iteration_range",
        "kill_switch_path",
        "pp_partition_method",
        "valid_num_workers",
        "reweight_loss_based_on_position_frequency",
    ),
    "gpt-neox": (
        "train_data_paths",
        "pipe_parallel_size",
        "weight_by_num_documents",
        "weighted_sampler_alpha",
        "pack_impl",
        "train_micro_batch_size_per_gpu",
    ),
}
"""Arguments that only programs of one lineage have, among the lineages of its family."""
_CORE_FAMILY: Final = ("megatron-core-0.13", "megatron-core-0.7", "megatron-core-0.11")
_DEEPSPEED_FAMILY: Final = ("megatron-deepspeed", "bigscience")
_WHOLE: Final = 200
"""A namespace of so many arguments is whole: Megatron-LM has more than 250 since megatron-core has datasets."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """The lineages that fit some arguments.

    Attributes:
        lineages: those that may have saved the arguments, the likeliest first.
        argument: the argument that only the first of them has; None if several remain, or a missing name decided.
    """

    lineages: tuple[Lineage, ...]
    argument: str | None = None


def recognise(names: Collection[str], *, deepspeed: bool) -> Recognised:
    """The lineages that may have saved arguments.

    Args:
        names: of all arguments.
        deepspeed: whether DeepSpeed wrote the checkpoint.
    """
    neox = _mark("gpt-neox", names)
    if neox is not None:
        return _of("gpt-neox", argument=neox)
    if "data_impl" in names or (deepspeed and "mock_data" not in names):
        if not deepspeed and "deepspeed" not in names:
            return _of("megatron-lm-legacy", argument="data_impl")
        marked = _marked(_DEEPSPEED_FAMILY, names)
        if marked is None and len(names) >= _WHOLE and _mark("bigscience", names) is None:
            marked = _of("megatron-deepspeed")  # before it had arguments that only it has
        return marked or _of(*_DEEPSPEED_FAMILY)
    for name in _CORE_FAMILY:
        marks = list(_marks(name, names))
        if name == "megatron-core-0.11" and len(marks) == 1 and len(names) >= _WHOLE:
            return _of("megatron-core-0.7", name)  # an older program may have adopted one argument
        if marks:
            return _of(name, argument=marks[0])
    return _of(*_unmarked_core(names))


def _unmarked_core(names: Collection[str]) -> tuple[str, ...]:
    """The lineages of megatron-core for arguments without a decisive name."""
    if len(names) >= _WHOLE:
        if "num_dataset_builder_threads" in names:
            return ("megatron-core-0.7",)
        return ("megatron-core-0.5",) if "mock_data" in names else ("megatron-core-0.4",)
    marked = "mock_data" in names or "num_dataset_builder_threads" in names
    later = ("megatron-core-0.7", "megatron-core-0.11", "megatron-core-0.5")
    return later if marked else (*later, "megatron-core-0.4", "megatron-lm-legacy")


def _marked(family: Collection[str], names: Collection[str]) -> Recognised | None:
    """The one lineage of a family that has marks among the names; None if several have, or none."""
    marks = {name: mark for name in family for mark in _marks(name, names)}
    if len(marks) != 1:
        return None
    name, mark = marks.popitem()
    return _of(name, argument=mark)


def _mark(name: str, names: Collection[str]) -> str | None:
    return next(_marks(name, names), None)


def _marks(name: str, names: Collection[str]) -> Iterator[str]:
    return (mark for mark in _MARKS[name] if mark in names)


def _of(*names: str, argument: str | None = None) -> Recognised:
    return Recognised(tuple(LINEAGES[name] for name in names), argument)
