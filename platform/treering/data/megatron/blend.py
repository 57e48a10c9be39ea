"""A Megatron blend as its launch names it, and how many samples each dataset must give.

The arithmetic is Megatron's, down to the rounding of each float, since one sample more or less moves every sample after
it. Where programs differ, the lineage decides (`lineage.py`).

Source: megatron-core 0.16.1, megatron/core/datasets/blended_megatron_dataset_builder.py and
blended_megatron_dataset_config.py; the other sources are named with each lineage.
"""

import math
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Literal

import numpy as np

from treering.data.megatron.lineage import CORE, Lineage
from treering.errors import UserError

IndexSplit = Literal["train", "valid", "test"]
_SPLITS: tuple[IndexSplit, ...] = ("train", "valid", "test")
_NUMBERS = re.compile(r"[.0-9]+")
_MARGIN = 0.005


@dataclass(frozen=True, slots=True)
class MegatronBlend:
    """Everything that decides the order of one split of a Megatron run.

    Attributes:
        prefixes: of the `.bin/.idx` pairs, as the run named them.
        weights: one for each prefix, in any scale; None where the run gave none, and the lineage decides.
        seed: `--seed`.
        sequence_length: tokens a sample counts.
        num_samples: samples that the split must give (`--train-samples`); None: one epoch of everything.
        split: shares of train, valid and test as in `--split`; None where the prefixes are for this split alone
            (`--train-data-path`).
        index_split: which split.
        surplus: margin by which each dataset is built longer than its share, where the lineage takes it as an argument.
        extra_token: whether a sample is read with one token more than its length.
        drop_last_partial_validation: whether `valid` leaves out a last sample that would need padding.
        lineage: whose rules hold.
        ranges: of each prefix, the part of its sequences that is read, from 0 to 1; None: all of them, or by `split`.
        renormalized: `--renormalize-blend-weights`.
        exact_epochs: `--train-data-exact-num-epochs`.
    """

    prefixes: tuple[str, ...]
    weights: tuple[float, ...] | None
    seed: int
    sequence_length: int
    num_samples: int | None
    split: str | None = None
    index_split: IndexSplit = "train"
    surplus: float = _MARGIN
    extra_token: bool = True
    drop_last_partial_validation: bool = True
    lineage: Lineage = CORE
    ranges: tuple[tuple[float, float] | None, ...] | None = None
    renormalized: bool = False
    exact_epochs: int | None = None

    def __post_init__(self) -> None:
        """Checks what Megatron asserts.

        Raises:
            UserError: a value that a run of the lineage cannot have.
        """
        if not self.prefixes:
            raise UserError("megatron blend: data paths are missing, expected at least one prefix of a .bin/.idx pair")
        if self.sequence_length < 1:
            raise UserError(f"megatron blend: sequence length is {self.sequence_length}, expected at least 1")
        if self.num_samples is not None and self.num_samples < 1:
            raise UserError(f"megatron blend: {self.num_samples} samples, expected at least 1")
        self._check_options()
        if self.weights is None:
            if len(self.prefixes) > 1 and self.lineage.without_weights == "refused":
                raise self._refused(f"{len(self.prefixes)} data paths without weights", "a weight for each data path")
            return
        if len(self.weights) != len(self.prefixes) or not all(w >= 0 and math.isfinite(w) for w in self.weights):
            raise UserError(
                f"megatron blend: weights {list(self.weights)} for {len(self.prefixes)} data paths, expected one "
                "number above 0 for each"
            )
        if not sum(self.weights):
            raise UserError(f"megatron blend: weights {list(self.weights)}, expected at least one above 0")
        if 0 in self.weights and self.blended and not self.lineage.zero_weight:
            named = self.prefixes[self.weights.index(0)]
            raise self._refused(f"weight 0 of {named}", "weights above 0: leave the path out, as the run must have")
        if self.num_samples is None:
            raise UserError("megatron blend: weights without a number of samples, expected both, as Megatron does")

    def _check_options(self) -> None:
        """Checks the options that only some lineages have.

        Raises:
            UserError: the blend's lineage does not have one that is set, or two exclude each other.
        """
        if len(self.prefixes) > self.lineage.max_paths:
            raise self._refused(f"{len(self.prefixes)} data paths", f"at most {self.lineage.max_paths}")
        if self.split is not None and len(self.prefixes) > 1 and self.lineage.blends_one_path == "always":
            raise self._refused("several data paths with a split", "one data path, or paths of each split's own")
        if self.renormalized and not self.lineage.renormalizes:
            raise self._refused("--renormalize-blend-weights", "megatron-core-0.7 with it")
        if self.exact_epochs is not None and not self.lineage.exact_epochs:
            raise self._refused("--train-data-exact-num-epochs", "megatron-deepspeed with it")
        if self.ranges is not None and not self.lineage.parts:
            raise self._refused("parts of the data paths", "bigscience with them")
        if self.ranges is not None and (self.split is not None or len(self.ranges) != len(self.prefixes)):
            raise UserError("megatron blend: ranges of sequences with a split, expected one of them")

    def _refused(self, found: str, expected: str) -> UserError:
        return UserError(
            f"megatron blend: {found}, which programs of the lineage {self.lineage.name} refuse; expected {expected}, "
            "or another --lineage (docs/data-order.md)"
        )

    @property
    def drop_last_partial(self) -> bool:
        """Whether a last sample that would need padding is left out."""
        return self.index_split != "valid" or self.drop_last_partial_validation

    @property
    def holds_empty(self) -> bool:
        """Whether a dataset that must give nothing may hold less than a sample."""
        return self.lineage.holds_empty == "always" or (self.lineage.holds_empty == "own" and self.split is None)

    @property
    def blended(self) -> bool:
        """Whether the program builds a blend, also over one dataset."""
        if len(self.prefixes) > 1:
            return True
        alone = self.lineage.blends_one_path
        if self.split is not None:
            return self.weights is not None and alone != "always"
        return alone == "always" or (alone == "weighted" and self.weights is not None)

    @property
    def shares(self) -> list[float] | None:
        """The weights as the program scales them when it reads the blend; None where the lengths are the weights."""
        weights = self.weights
        if weights is None and self.blended and self.lineage.without_weights == "equal":
            weights = (1.0,) * len(self.prefixes)
        if weights is None:
            return None
        if not self.lineage.sum_in_turn:
            return normalize(weights)
        total = self._sum_of(weights, by_python=self.lineage.python_sums == "split and weights")
        return [weight / total for weight in weights]

    def _sum_of(self, numbers: Sequence[float], *, by_python: bool) -> float:
        """A sum as the program computes it; `by_python`: with Python's `sum`."""
        return compensated_sum(numbers) if by_python and self.lineage.compensated else sum_in_turn(numbers)

    @property
    def margin(self) -> float:
        """The part by which each dataset is built longer than its share."""
        return self.surplus if self.lineage.surplus_argument else _MARGIN

    def requested(self) -> tuple[int | None, ...]:
        """The samples that each dataset must give, None for one epoch."""
        if not self.blended:
            return (self.num_samples,)
        if self.shares is None or self.num_samples is None:
            return (None,) * len(self.prefixes)
        if self.lineage.share_rounding == "twice":
            return tuple(math.ceil(math.ceil(self.num_samples * w) * (1 + self.margin)) for w in self.shares)
        return tuple(math.ceil(self.num_samples * w * (1 + self.margin)) for w in self.shares)

    def blend_weights(self, lengths: Sequence[int]) -> list[float]:
        """The share of each dataset in the greedy rule; scaled twice where the run gave weights.

        Args:
            lengths: samples that each dataset has.
        """
        requested = self.requested()
        if self.renormalized and self.shares is not None:
            asked = [number or 0 for number in requested]
            return normalize([number / sum(asked) for number in asked])
        return normalize(self.shares or lengths)

    def whole_size(self, lengths: Sequence[int]) -> int | None:
        """Samples of the blend as the program builds it; None: until every dataset is used up.

        Args:
            lengths: samples that each dataset has.
        """
        if self.lineage.blend_length == "datasets":
            return sum(lengths)
        if self.shares is None or self.num_samples is None:
            return None if self.num_samples is None else min(self.num_samples, sum(lengths))
        if self.lineage.blend_length == "shares":
            return sum(math.ceil(self.num_samples * w) for w in self.shares)
        return sum(number or 0 for number in self.requested())

    def size(self, lengths: Sequence[int]) -> int | None:
        """Samples of the blend that a training can read; None: until every dataset is used up.

        A program that does not check its blend may build samples that a dataset does not have, after the last sample
        that a training reads.

        Args:
            lengths: samples that each dataset has.
        """
        size = self.whole_size(lengths)
        if self.lineage.refuses_overdraw or size is None or self.num_samples is None:
            return size
        return min(size, self.num_samples)

    def sequences(self, num_sequences: int, component: int = 0) -> tuple[int, int]:
        """The sequences [first, end) of a dataset that the split takes.

        Raises:
            UserError: the split is empty.
        """
        if self.ranges is not None:
            return self._ranged(self.ranges[component], num_sequences, component)
        shares = self.split_shares
        if shares is None:
            return 0, num_sequences
        ends = self._ends(shares, num_sequences)
        position = _SPLITS.index(self.index_split)
        first, end = ends[position], ends[position + 1]
        if first >= end:
            raise UserError(
                f"megatron blend: split {self.split!r} gives {self.index_split} none of {num_sequences} sequences"
            )
        return first, end

    def _ranged(self, part: tuple[float, float] | None, num_sequences: int, component: int) -> tuple[int, int]:
        if part is None:
            return 0, num_sequences
        first, end = (round(bound * float(num_sequences)) for bound in part)
        if not 0 <= first < end <= num_sequences:
            raise UserError(
                f"megatron blend: range {part[0]}:{part[1]} holds none of the {num_sequences} sequences of "
                f"{self.prefixes[component]}, expected START:END from 0 to 1"
            )
        return first, end

    @property
    def split_shares(self) -> list[float] | None:
        """The shares of train, valid and test, which sum to 1; None where the prefixes are this split's own.

        Raises:
            UserError: the split does not have up to three shares.
        """
        split = self.split
        if split is None:
            return None
        try:
            parts = [float(number) for number in _NUMBERS.findall(split)]
        except ValueError:
            parts = []
        if not 1 <= len(parts) <= len(_SPLITS) or sum(parts) <= 0:
            raise UserError(
                f"megatron blend: split {split!r}, expected up to three shares of train, valid and test, as '969,30,1'"
            )
        parts += [0.0] * (len(_SPLITS) - len(parts))
        if self.lineage.python_sums == "none":
            return normalize(parts)
        total = self._sum_of(parts, by_python=True)
        return [part / total for part in parts]

    def _ends(self, shares: Sequence[float], num_sequences: int) -> list[int]:
        """Where the splits end, from 0."""
        if self.lineage.split_rounding == "sizes":
            sizes = [round(share * float(num_sequences)) for share in shares]
            over = sum(sizes) - num_sequences
            return [0, *(end - over for end in accumulate(sizes))]
        return [round(end * float(num_sequences)) for end in accumulate([0.0, *shares])]


def sum_in_turn(numbers: Iterable[float]) -> float:
    """The sum as a loop computes it, and `sum` of Python 3.11 and earlier: each addition is rounded.

    Python's own `sum` must not be used in this package: the answer would depend on the Python that reads the run.
    """
    return reduce(operator.add, numbers, 0.0)


def compensated_sum(numbers: Iterable[float]) -> float:
    """The sum as `sum` of Python 3.12 and later computes it: the rounding errors are added at the end.

    Weights of one or two decimals often give another last bit than `sum_in_turn`, and the greedy rule of a blend then
    breaks near ties otherwise.

    Source: CPython 3.12, Python/bltinmodule.c, builtin_sum_impl (Neumaier's algorithm).
    """
    total = error = 0.0
    for number in numbers:
        added = total + number
        larger, smaller = (total, number) if abs(total) >= abs(number) else (number, total)
        error += (larger - added) + smaller
        total = added
    return total + error if error and math.isfinite(error) else total


def normalize(weights: Sequence[float]) -> list[float]:
    """Weights that sum to 1, divided in double precision by numpy's sum."""
    values = np.array(weights, dtype=np.float64)
    normalized: list[float] = (values / np.sum(values)).tolist()
    return normalized
