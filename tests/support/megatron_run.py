"""A Megatron run as `pretrain_gpt.py` drives megatron-core: datasets and steps of its arguments, and its checkpoints.

Arguments are those that Megatron-LM's parser leaves, as far as data and steps depend on them; datasets, batch sizes,
the shared file of distributed checkpoints and `torch.save` are the real ones.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import megatron_data
from typer.testing import CliRunner

from treering.cli import app

SPLITS = ("train", "valid", "test")
LENGTHS = {"wiki": [9, 30, 14, 3, 40, 21, 8, 33], "books": [150, 90, 120, 60], "code": [4, 7, 2, 9, 12, 5]}
"""Tokens of each sequence of the data paths that `write_data` writes."""
BLEND = ["3", "data/wiki", "5", "data/books", "2", "data/code"]
STEPS = 7


def write_data(folder: Path) -> None:
    """Writes the data paths of `BLEND` into a folder; each token stands for its place in all of them."""
    first = 0
    for name, lengths in LENGTHS.items():
        first += len(megatron_data.write_pair(folder / "data" / name, lengths, first))


def audit_command(*arguments: object) -> Any:
    """The result of `treering audit --megatron-run` with arguments."""
    return CliRunner().invoke(app, ["audit", "--megatron-run", *map(str, arguments)], env={"COLUMNS": "200"})


def arguments(**changes: Any) -> argparse.Namespace:
    """Arguments of a run, with objects among them as Megatron leaves them there."""
    import torch
    from megatron.core.enums import ModelType
    from megatron.core.transformer.enums import AttnBackend

    said = {
        "data_path": None, "data_args_path": None, "per_split_data_args_path": None,
        "train_data_path": None, "valid_data_path": None, "test_data_path": None,
        "split": None, "seed": 1234, "seq_length": 10, "micro_batch_size": 1, "global_batch_size": 8,
        "rampup_batch_size": None, "decrease_batch_size_if_needed": False, "train_samples": None, "train_iters": None,
        "eval_interval": 4, "eval_iters": 1, "consumed_train_samples": 0, "consumed_valid_samples": 0,
        "skipped_train_samples": 0, "iterations_to_skip": [], "dataloader_type": "single", "mock_data": False,
        "data_cache_path": None, "mid_level_dataset_surplus": 0.005, "num_dataset_builder_threads": 1,
        "reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False, "finetune": False,
        "tokenizer_type": "NullTokenizer", "vocab_size": 60_000, "load": "ckpt", "save": "ckpt", "sft": False,
        "params_dtype": torch.bfloat16, "model_type": ModelType.encoder_or_decoder,
        "attention_backend": AttnBackend.auto, "device": torch.device("cpu"),
        "world_size": 2, "data_parallel_size": 2, "cache_root": Path("/nowhere"),
    }  # fmt: skip
    return argparse.Namespace(**(said | changes))


def datasets(args: argparse.Namespace) -> list[Any]:
    """The train, valid and test datasets, as `train_valid_test_datasets_provider` builds them."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.utils import get_blend_from_list
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer

    blend = blend_per_split = None
    if args.data_path or args.data_args_path:
        listed = args.data_path or Path(args.data_args_path).read_text().split()
        blend = get_blend_from_list(listed)
    elif args.per_split_data_args_path:
        told = json.loads(Path(args.per_split_data_args_path).read_text())
        blend_per_split = [get_blend_from_list(told[split]) for split in SPLITS]
    else:
        blend_per_split = [get_blend_from_list(getattr(args, f"{split}_data_path")) for split in SPLITS]
    config = GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        blend=blend,
        blend_per_split=blend_per_split,
        split=args.split,
        path_to_cache=args.data_cache_path,
        tokenizer=NullTokenizer(vocab_size=args.vocab_size),
        mid_level_dataset_surplus=args.mid_level_dataset_surplus,
        reset_position_ids=args.reset_position_ids,
        reset_attention_mask=args.reset_attention_mask,
        eod_mask_loss=args.eod_mask_loss,
        create_attention_mask=False,
    )
    train = args.train_samples or args.train_iters * args.global_batch_size
    evaluations = (args.train_iters or 12) // args.eval_interval + 1
    sizes = [train, evaluations * args.eval_iters * args.global_batch_size, args.eval_iters * args.global_batch_size]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built: list[Any] = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()
    return built


def batches(args: argparse.Namespace, steps: int, consumed: int = 0) -> Iterator[range]:
    """The samples of each step, by megatron-core's own calculator; a sequential sampler reads on where it stopped."""
    from megatron.core import num_microbatches_calculator as calculator

    calculator.init_num_microbatches_calculator(
        0, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size, args.data_parallel_size
    )
    try:
        for _ in range(steps):
            calculator.update_num_microbatches(consumed)
            size = calculator.get_current_running_global_batch_size()
            yield range(consumed, consumed + size)
            consumed += size
    finally:
        calculator.unset_num_microbatches_calculator()


def save(
    folder: Path,
    args: argparse.Namespace,
    iteration: int,
    form: str = "zip",
    *,
    state: dict[str, Any] | None = None,
    consumed: int | None = None,
) -> Path:
    """Writes a checkpoint and the tracker file; returns the checkpoint's folder.

    Args:
        folder: the save folder.
        args: of the launch.
        iteration: steps done.
        form: zip, legacy, pipeline (a rank's folder with more numbers), distributed, sharded, deepspeed.
        state: what else it holds, or holds otherwise.
        consumed: samples; by default those of so many steps from nothing.
    """
    import torch
    import torch.distributed.checkpoint

    args.consumed_train_samples = list(batches(args, iteration))[-1].stop if consumed is None else consumed
    layer = torch.nn.Linear(4, 4)
    held = {"args": args, "checkpoint_version": 3.0, "iteration": iteration, "model": layer.state_dict()}
    held |= {"optimizer": torch.optim.AdamW(layer.parameters()).state_dict(), "rng_state": [torch.get_rng_state()]}
    held = {name: value for name, value in (held | (state or {})).items() if value is not None}
    place = folder / (f"global_step{iteration}" if form == "deepspeed" else f"iter_{iteration:07d}")
    if form == "distributed":
        from megatron.core.dist_checkpointing.strategies.common import TorchCommonSaveStrategy

        place.mkdir(parents=True)
        TorchCommonSaveStrategy("torch", 1).save_common(held, place)
    elif form == "sharded":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.distributed.checkpoint.save(held, checkpoint_id=place, no_dist=True)
    else:
        names = {"deepspeed": "mp_rank_00_model_states.pt", "pipeline": "mp_rank_00_000/model_optim_rng.pt"}
        file = place / names.get(form, "mp_rank_00/model_optim_rng.pt")
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(held, file, _use_new_zipfile_serialization=form != "legacy")
    (folder / "latest_checkpointed_iteration.txt").write_text(str(iteration))
    return place
