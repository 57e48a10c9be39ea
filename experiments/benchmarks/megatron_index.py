"""The index that megatron-core builds over a blend, by its own builder, and what it takes."""

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.indexed import read_sequence_lengths
from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.indices import DatasetIndices
from treering.data.megatron.order import MegatronComponent, MegatronOrder, blend_weights, plan_datasets


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """An index that megatron-core built.

    Attributes:
        blend: what it was built for.
        dataset: megatron-core's `BlendedDataset`.
        files_bytes: what it wrote to disk.
    """

    blend: MegatronBlend
    dataset: Any
    files_bytes: int

    def order(self) -> MegatronOrder:
        """The order that it holds, by Megatron's own arrays."""
        lengths = [read_sequence_lengths(Path(prefix).with_suffix(".idx")) for prefix in self.blend.prefixes]
        plans = plan_datasets(self.blend, lengths)
        components = [
            MegatronComponent(
                prefix, weight, held, plan, DatasetIndices(each.document_index, each.sample_index, each.shuffle_index)
            )
            for prefix, weight, held, plan, each in zip(
                self.blend.prefixes,
                blend_weights(self.blend, plans),
                lengths,
                plans,
                self.dataset.datasets,
                strict=True,
            )
        ]
        return MegatronOrder(self.blend, components, self.dataset.dataset_index)


def load_builder() -> None:
    """Imports megatron-core and torch, so that a clock that starts afterwards counts the build alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import megatron.core.datasets.blended_megatron_dataset_builder
        import megatron.core.datasets.gpt_dataset
        import megatron.core.tokenizers.text.libraries.null_tokenizer  # noqa: F401


def build_index(blend: ResolvedBlend, prefixes: Mapping[str, Path], num_samples: int, cache: Path) -> BuiltIndex:
    """Builds the index of the first samples of a blend, or opens the one that it wrote before.

    Args:
        blend: corpora and weights.
        prefixes: of their `.bin/.idx` pairs, by corpus.
        num_samples: how many samples.
        cache: folder for its files.
    """
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer

    names = [component.corpus for component in blend.components]
    asked = MegatronBlend(
        prefixes=tuple(str(prefixes[name]) for name in names),
        weights=tuple(float(component.weight) for component in blend.components),
        seed=blend.seed,
        sequence_length=blend.sequence_length,
        num_samples=num_samples,
    )
    config = GPTDatasetConfig(
        random_seed=asked.seed,
        sequence_length=asked.sequence_length,
        path_to_cache=str(cache),
        tokenizer=NullTokenizer(vocab_size=60_000),
        mid_level_dataset_surplus=asked.surplus,
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        blend_per_split=[(list(asked.prefixes), list(asked.weights or ())), None, None],
    )
    logging.disable(logging.WARNING)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            builder = BlendedMegatronDatasetBuilder(GPTDataset, [num_samples, 1, 1], lambda: True, config)
            built = builder.build()[0]
    finally:
        torch.distributed.destroy_process_group()
        logging.disable(logging.NOTSET)
    written = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    return BuiltIndex(asked, built, written)
