"""A data set in the order of a blend, for any training loop: sample g of the order, by position, without torch."""

import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import Corpus
from treering.data.order.batch import read_samples
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, UserError
from treering.project import Project
from treering.record.ranks import Rank


class BlendDataset:
    """The samples that one rank reads, in the order of a blend.

    A map-style data set as torch's `DataLoader` takes it, with `shuffle=False` and no sampler: the order is the
    blend's. Index i is sample `first_sample + i * world_size + rank`, so the ranks together read the order without a
    gap when each reads batches of one size. The order has no end; `num_samples` ends the data set.

    `treering.start(data=...)` moves the data set behind the samples that the run has consumed, at any world size.

    Args:
        project: folder of a project whose stage `blend` has run: its `data/blend.json` and `data/corpora`.
        num_samples: samples of the whole training, over all ranks; None: no end.
        first_sample: number of the first sample.
        rank: number of this process among those that read data; default as the launcher says.
        world_size: how many processes read data; default as the launcher says.

    Attributes:
        blend: the blend.
        first_sample: number of the first sample.

    Raises:
        UserError: an argument is wrong, or a corpus of the blend is declared and has no content.
        NotFoundError: a corpus is missing.
        EvidenceError: the blend or a corpus was changed.
    """

    def __init__(
        self,
        project: str | Path = ".",
        *,
        num_samples: int | None = None,
        first_sample: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self._project = Project(Path(project).absolute())
        self._num_samples = num_samples
        self._place = Rank.of(rank, world_size)
        self.first_sample = first_sample
        self.blend = ResolvedBlend.read(self._project.blend)
        if self.blend.declared:
            raise UserError(
                f"{self._project.blend}: found declared corpora ({', '.join(self.blend.declared)}), expected corpora "
                "with content; run `treering blend` after `treering tokenize`"
            )
        for component, corpus in zip(self.blend.components, self._corpora, strict=True):
            if corpus.digest != component.digest:
                raise EvidenceError(
                    f"{corpus.directory}: found corpus {corpus.digest}, expected {component.digest}, as "
                    f"{self._project.blend} says; run `treering blend`, or bring the corpus back",
                    file=corpus.directory,
                    found=corpus.digest,
                    expected=component.digest,
                )

    @cached_property
    def _corpora(self) -> list[Corpus]:
        return [Corpus.open(self._project.corpus(component.corpus)) for component in self.blend.components]

    @cached_property
    def _order(self) -> DataOrder:
        return DataOrder(self.blend)

    @property
    def sequence_length(self) -> int:
        """Tokens that a sample counts; it is read with one more, the last label."""
        return self.blend.sequence_length

    @property
    def world_size(self) -> int:
        """How many processes read data."""
        return self._place.world_size

    def __len__(self) -> int:
        """Samples of this rank that are left; without an end the largest length that Python has."""
        if self._num_samples is None:
            return sys.maxsize // self.world_size
        left = self._num_samples - self.first_sample - self._place.rank
        return max(0, -(-left // self.world_size))

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """The tokens of a sample of this rank: shape [sequence_length + 1].

        Raises:
            IndexError: the data set is shorter.
            EvidenceError: a corpus is damaged.
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        sample = self.first_sample + index * self.world_size + self._place.rank
        tokens: NDArray[np.int64] = read_samples(self._order, self._corpora, sample, sample + 1)[0].astype(np.int64)
        return tokens

    def record(self) -> dict[str, Any]:
        """What an attempt's header keeps of the data set, as JSON values."""
        return {
            "blend": self.blend.digest,
            "first_sample": self.first_sample,
            "corpora": {component.corpus: component.digest for component in self.blend.components},
        }

    def __getstate__(self) -> Mapping[str, Any]:
        """Without the open corpora: a data loader's worker opens them itself."""
        return {name: value for name, value in vars(self).items() if name not in ("_corpora", "_order")}
