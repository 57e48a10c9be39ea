"""Joins the digests of what each replica was fed into the batch digest, and agrees with all ranks before each step.

Two exchanges before each step: the replicas of the first and of the last stage exchange the digests of their samples,
then all ranks exchange 32 bytes and three flags. First and last stage must have the same batch digest on every tensor
rank: otherwise the loss would be computed against other tokens than were embedded.
"""

from dataclasses import dataclass

import numpy as np
import torch
from megatron.core import parallel_state
from numpy.typing import NDArray

from treering.config.layout import RankCoordinates
from treering.data.order.batch import batch_digest
from treering.errors import EvidenceError
from treering_trainer.core.batch_reader import DIGEST_BYTES, raw_digest, text_digest
from treering_trainer.core.topology import all_gather


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks have agreed on before a step.

    Attributes:
        batch_digest: digest of the global batch.
        stop: whether any rank was asked to stop.
        ready: whether every rank has done its part of the checkpoint that is being saved.
    """

    batch_digest: str
    stop: bool
    ready: bool


def verify_batch(
    coordinates: RankCoordinates,
    device: torch.device,
    digests: NDArray[np.uint8],
    *,
    stop: bool,
    ready: bool,
) -> Agreement:
    """Exchanges batch digests, requests to stop, and what is ready; collective over all ranks.

    Args:
        coordinates: of this rank in the layout.
        device: where its collectives run.
        digests: uint8 [samples, 32] of this replica, in the order of its micro-batches.
        stop: whether this rank was asked to stop.
        ready: whether this rank has done its part of the checkpoint that is being saved.

    Raises:
        EvidenceError: two ranks that read data were fed different batches. Raised on every rank.
    """
    mine = np.zeros(DIGEST_BYTES + 3, dtype=np.uint8)
    mine[DIGEST_BYTES + 1 :] = stop, ready
    if coordinates.reads_data:
        mine[:DIGEST_BYTES] = raw_digest(_join_replicas(coordinates, device, digests))
        mine[DIGEST_BYTES] = 1
    every = all_gather(torch.from_numpy(mine).to(device), coordinates.layout.world_size)
    readers = every[every[:, DIGEST_BYTES] == 1][:, :DIGEST_BYTES]
    differing = np.flatnonzero((every[:, DIGEST_BYTES] == 1) & (every[:, :DIGEST_BYTES] != readers[0]).any(axis=1))
    if differing.size:
        reader = np.flatnonzero(every[:, DIGEST_BYTES] == 1)[0]
        found, expected = text_digest(every[differing[0], :DIGEST_BYTES]), text_digest(readers[0])
        raise EvidenceError(
            f"batch digest: rank {differing[0]} was fed {found}, rank {reader} {expected}: first and last stage must "
            "read the same batch; nothing was trained on it",
            found=found,
            expected=expected,
        )
    return Agreement(
        text_digest(readers[0]),
        stop=bool(every[:, DIGEST_BYTES + 1].any()),
        ready=bool(every[:, DIGEST_BYTES + 2].all()),
    )


def _join_replicas(coordinates: RankCoordinates, device: torch.device, digests: NDArray[np.uint8]) -> str:
    """The batch digest of one stage, over the samples of all replicas by number (`Layout.place`)."""
    data, micro_batch_size = coordinates.layout.data, coordinates.layout.micro_batch_size
    group = parallel_state.get_data_parallel_group()
    gathered = all_gather(torch.from_numpy(digests).to(device), data, group) if data > 1 else digests[None]
    micro_batches = digests.shape[0] // micro_batch_size
    by_replica = gathered.reshape(data, micro_batches, micro_batch_size, DIGEST_BYTES)
    in_order = by_replica.transpose(1, 0, 2, 3).reshape(-1, DIGEST_BYTES)
    return batch_digest(text_digest(row) for row in in_order)
