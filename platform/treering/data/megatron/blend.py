"""A Megatron blend as its launch names it, and how many samples each dataset is asked for.

The arithmetic is Megatron's, down to the rounding of each float, since a sample more or less moves everything after it.

Three generations round differently, and agree on all but a few sequences or samples:

- `core`: megatron-core from the version on that has `--mid-level-dataset-surplus`;
- `core-early`: megatron-core before, which rounds a dataset's share up once, not twice;
- `legacy`: Megatron-LM before megatron-core had datasets, and Megatron-DeepSpeed: as `core-early`, and each split's
  size is rounded by itself, not its bounds; weights are summed one after the other.

Source: megatron-core 0.16.1, megatron/core/datasets/blended_megatron_dataset_builder.py and
blended_megatron_dataset_config.py; Megatron-DeepSpeed, megatron/data/dataset_utils.py and gpt_dataset.py.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from treering.errors import UserError

IndexSplit = Literal["train", "valid", "test"]
Generation = Literal["core", "core-early", "legacy"]
_SPLITS: tuple[IndexSplit, ...] = ("train", "valid", "test")
_NUMBERS = re.compile(r"[.0-9]+")


@dataclass(frozen=True, slots=True)
class MegatronBlend:
    """What decides the order of one split of a Megatron run.

    Attributes:
        prefixes: of the `.bin/.idx` pairs, as the run named them.
        weights: one for each, in any scale; None where the run gave none: then the datasets' lengths weigh.
        seed: `--seed`.
        sequence_length: tokens a sample counts.
        num_samples: samples asked of the split (`--train-samples`); None: one epoch of everything.
        split: shares of train, valid and test as `--split` has them; None where the prefixes are this split's own
            (`--train-data-path`).
        index_split: which of them.
        surplus: margin by which each dataset is built longer than its share.
        extra_token: whether a sample is read with one token more than its length.
        drop_last_partial_validation: whether `valid` leaves out a last sample that would need padding.
        generation: whose rounding it is.
    """

    prefixes: tuple[str, ...]
    weights: tuple[float, ...] | None
    seed: int
    sequence_length: int
    num_samples: int | None
    split: str | None = None
    index_split: IndexSplit = "train"
    surplus: float = 0.005
    extra_token: bool = True
    drop_last_partial_validation: bool = True
    generation: Generation = "core"

    def __post_init__(self) -> None:
        """Checks what Megatron asserts.

        Raises:
            UserError: a value that no Megatron run can have.
        """
        if not self.prefixes:
            raise UserError("megatron blend: no data paths, expected at least one prefix of a .bin/.idx pair")
        if self.sequence_length < 1:
            raise UserError(f"megatron blend: sequence length is {self.sequence_length}, expected at least 1")
        if self.num_samples is not None and self.num_samples < 1:
            raise UserError(f"megatron blend: {self.num_samples} samples, expected at least 1")
        if self.weights is None:
            return
        if len(self.weights) != len(self.prefixes) or not all(w > 0 and math.isfinite(w) for w in self.weights):
            raise UserError(
                f"megatron blend: weights {list(self.weights)} for {len(self.prefixes)} data paths, expected one "
                "number above 0 for each"
            )
        if self.num_samples is None:
            raise UserError("megatron blend: weights without a number of samples, expected both, as Megatron does")

    @property
    def drop_last_partial(self) -> bool:
        """Whether a last sample that would need padding is left out."""
        return self.index_split != "valid" or self.drop_last_partial_validation

    @property
    def blended(self) -> bool:
        """Whether a BlendedDataset stands above the datasets."""
        return len(self.prefixes) > 1 or (self.weights is not None and self.split is not None)

    @property
    def shares(self) -> list[float] | None:
        """The weights as Megatron scales them when it reads the blend; None without weights."""
        if self.weights is None:
            return None
        if self.generation == "legacy":
            total = sum(self.weights)  # one after the other; numpy sums eight side by side
            return [weight / total for weight in self.weights]
        return normalize(self.weights)

    def requested(self) -> tuple[int | None, ...]:
        """The samples that each dataset is asked for, None for one epoch."""
        if not self.blended:
            return (self.num_samples,)
        if self.shares is None or self.num_samples is None:
            return (None,) * len(self.prefixes)
        if self.generation == "core":
            return tuple(math.ceil(math.ceil(self.num_samples * w) * (1 + self.surplus)) for w in self.shares)
        return tuple(math.ceil(self.num_samples * w * (1 + self.surplus)) for w in self.shares)

    def size(self, lengths: Sequence[int]) -> int | None:
        """Samples of the whole blend, from those that each dataset has; None: all of them, until all are spent."""
        if self.shares is not None and self.num_samples is not None:
            if self.generation != "core":
                return self.num_samples  # its blend is longer by the surplus, which no training reads
            return sum(math.ceil(self.num_samples * w) for w in self.shares)
        return None if self.num_samples is None else min(self.num_samples, sum(lengths))

    def sequences(self, num_sequences: int) -> tuple[int, int]:
        """The sequences [first, end) of a dataset that the split takes.

        Raises:
            UserError: the split takes none.
        """
        if self.split is None:
            return 0, num_sequences
        ends = self._ends(self.split, num_sequences)
        position = _SPLITS.index(self.index_split)
        first, end = ends[position], ends[position + 1]
        if first >= end:
            raise UserError(
                f"megatron blend: split {self.split!r} leaves {self.index_split} none of {num_sequences} sequences"
            )
        return first, end

    def _ends(self, split: str, num_sequences: int) -> list[int]:
        """Where the splits end, from 0."""
        try:
            parts = [float(number) for number in _NUMBERS.findall(split)]
        except ValueError:
            parts = []
        if not 1 <= len(parts) <= len(_SPLITS) or sum(parts) <= 0:
            raise UserError(
                f"megatron blend: split {split!r}, expected up to three shares of train, valid and test, as '969,30,1'"
            )
        parts += [0.0] * (len(_SPLITS) - len(parts))
        if self.generation == "legacy":
            sizes = [round(part / sum(parts) * float(num_sequences)) for part in parts]
            over = sum(sizes) - num_sequences
            return [0, *(end - over for end in accumulate(sizes))]
        return [round(end * float(num_sequences)) for end in accumulate([0.0, *normalize(parts)])]


def normalize(weights: Sequence[float]) -> list[float]:
    """Weights that sum to 1, divided in double precision by numpy's sum."""
    values = np.array(weights, dtype=np.float64)
    normalized: list[float] = (values / np.sum(values)).tolist()
    return normalized
