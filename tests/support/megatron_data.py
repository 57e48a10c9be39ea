"""Real Megatron data: token files on disk, and the datasets that megatron-core itself builds over them."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from treering.data.corpus.indexed import index_bytes
from treering.data.megatron.blend import MegatronBlend

SPLITS = ("train", "valid", "test")


def write_pair(prefix: Path, lengths: Sequence[int], first_token: int = 0) -> np.ndarray:
    """A `.bin/.idx` pair whose tokens count up from `first_token`, so that a token tells where it stands."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tokens = (first_token + np.arange(sum(lengths))).astype(np.uint16)
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    prefix.with_suffix(".idx").write_bytes(index_bytes(np.array(lengths, dtype=np.int32)))
    return tokens


@contextmanager
def process_group() -> Iterator[None]:
    """The group of one process that BlendedDataset asks for its rank."""
    import torch

    if torch.distributed.is_initialized():  # by another test of this process
        yield
        return
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def build(blend: MegatronBlend, cache: Path) -> Any:
    """The dataset of one split, built by megatron-core's own builder; a cache is read where there is one."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer

    position = SPLITS.index(blend.index_split)
    paths = (list(blend.prefixes), None if blend.weights is None else list(blend.weights))
    own = [paths if each == position else None for each in range(len(SPLITS))]
    where = {"blend_per_split": own} if blend.split is None else {"blend": paths, "split": blend.split}
    config = GPTDatasetConfig(
        random_seed=blend.seed,
        sequence_length=blend.sequence_length,
        path_to_cache=str(cache),
        tokenizer=NullTokenizer(vocab_size=60_000),
        mid_level_dataset_surplus=blend.surplus,
        add_extra_token_to_sequence=blend.extra_token,
        drop_last_partial_validation_sequence=blend.drop_last_partial_validation,
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        **where,
    )
    # With weights every split needs a size, which decides nothing of this one; a split without tokens never ends.
    sizes = [blend.num_samples if each == position else (None if blend.weights is None else 1) for each in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[position]


def place(dataset: Any, g: int) -> tuple[int, Any, int]:
    """Which dataset of a blend holds sample g, and as which of its samples."""
    if not hasattr(dataset, "datasets"):
        return 0, dataset, g
    component = int(dataset.dataset_index[g])
    return component, dataset.datasets[component], int(dataset.dataset_sample_index[g])
