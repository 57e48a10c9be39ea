"""What every data order answers, whatever its algorithm: the contract between orders and their callers.

Two algorithms implement it: `treering-1` (`data.order.treering1`), closed forms without an index, and Megatron's own
(`treering.data.megatron`), for runs that were trained with it. `tests/data/test_order_contract.py` holds both to it by
brute force.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from treering.data.order.spans import Span

UNDEFINED_EPOCH = -1
"""The epoch of a sample where the order shuffles several epochs of a corpus into one another."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Where one sample comes from.

    Attributes:
        g: its number in the order.
        component: its component, by position in the blend.
        epoch: how often the component's samples were all read before, from 0.
        index: its number inside the corpus; its tokens begin at index * sequence_length.
        spans: the parts of documents that it holds, in order; empty if the order was opened without documents.
    """

    g: int
    component: int
    epoch: int
    index: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class SampleArrays:
    """Samples [lo, hi), int64 arrays of shape [hi - lo]; meanings as in `Sample`."""

    component: NDArray[np.int64]
    epoch: NDArray[np.int64]
    index: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Exposures:
    """Samples that hold a part of something, int64 arrays of one length, sorted by `item`, then by `sample`.

    Attributes:
        item: which of the things that were asked for, by its position among them.
        sample: the sample's number.
        epoch: as in `Sample`.
        index: as in `Sample`.
    """

    item: NDArray[np.int64]
    sample: NDArray[np.int64]
    epoch: NDArray[np.int64]
    index: NDArray[np.int64]


class OrderedCorpus(Protocol):
    """A component of an order."""

    @property
    def corpus(self) -> str:
        """Name of the corpus."""


class Order(Protocol):
    """A data order: which documents are sample g, and its inverse.

    Samples count from 0 in the order in which they are read; an order that continues another one continues its numbers.
    A component is its position in the blend, a document its number in the corpus. A question outside the order is a
    `UserError`, an unknown document or corpus a `NotFoundError`.
    """

    @property
    def sequence_length(self) -> int:
        """Tokens a sample counts; it is read with one more, the last label."""

    @property
    def components(self) -> Sequence[OrderedCorpus]:
        """The components in declared order."""

    def index_of(self, corpus: str) -> int:
        """The component that holds a corpus."""

    def sample(self, g: int) -> Sample:
        """Sample g: component, epoch (or `UNDEFINED_EPOCH`), index in the corpus, and its parts of documents.

        The parts are in the order in which their tokens are read. No part is empty; a document may have several parts.
        """

    def samples_with_spans(self, lo: int, hi: int) -> list[Sample]:
        """`sample` of each of samples [lo, hi)."""

    def samples(self, lo: int, hi: int) -> SampleArrays:
        """Samples [lo, hi) without their documents, as arrays."""

    def count(self, component: int, g: int) -> int:
        """How many samples of a component precede sample g, those that the orders before it read included."""

    def counts(self, g: int) -> tuple[int, ...]:
        """`count` of every component; they sum to g where the order begins with sample 0."""

    def select(self, component: int, k: int) -> int:
        """The number of a component's k-th sample (from 0): the inverse of `count`."""

    def exposures(self, component: int, document: int, g: int) -> NDArray[np.int64]:
        """The order's samples below g that hold at least one token of a document, sorted, each once."""

    def document_exposures(self, component: int, documents: NDArray[np.int64], lo: int, hi: int) -> Exposures:
        """The samples [lo, hi) that hold at least one token of each of some documents."""

    def touched(self, component: int, g: int) -> NDArray[np.bool_]:
        """Which documents of a component the order's samples below g hold a token of: bool [num_documents]."""

    def documents_touched(self, component: int, g: int) -> int:
        """The number of those documents."""
