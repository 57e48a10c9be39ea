"""Which dataset each sample of a Megatron blend comes from: the greedy rule of BlendedDataset, many samples at once.

Sample i goes to the dataset d with the largest error w(d) * max(i, 1) - c(d), the first one among equals; c(d) counts
what d gave before. The rule is sequential, but it forgets its beginning: started some steps earlier from counts near
w * i, it soon has the same counts as the true sequence. So the range is cut into chunks that run side by side, each
from a guess and a short run-up. A chunk is right if the chunk before it ends in the counts with which it began. The
first chunk begins with zero counts, so equality along the chain proves all chunks. A chunk that began wrongly runs
again.

Exact to the last bit of megatron-core's build for x86-64, which multiplies and subtracts in two roundings. Where a
compiler fuses them into one (aarch64), a run may have broken a near tie the other way.

Source: megatron-core 0.16.1, megatron/core/datasets/helpers.cpp, build_blending_indices and
build_exhaustive_blending_indices.
"""

import numpy as np
from numpy.typing import NDArray

_LANES = 4096
_MIN_CHUNK = 256
_RUN_UP = 64
_BLOCK = 64


def interleave(weights: NDArray[np.float64], size: int, limits: NDArray[np.int64] | None = None) -> NDArray[np.int16]:
    """The dataset of each sample.

    Args:
        weights: share of each dataset: float64 [num_datasets].
        size: number of samples.
        limits: samples that each dataset has, int64 [num_datasets], after which it gives no more; None: without limits.

    Returns:
        int16 [size].
    """
    chunk = max(-(-size // _LANES), _MIN_CHUNK)
    starts = np.arange(0, size, chunk, dtype=np.int64)
    run_up = np.minimum(_RUN_UP, starts)
    rule = _Rule(weights, limits)
    counts = rule.guess(starts - run_up)
    begun = np.zeros_like(counts)
    begun[:, 1:] = rule.run(starts[1:] - _RUN_UP, counts[:, 1:], _RUN_UP, None)
    datasets = np.empty((len(starts), chunk), dtype=np.int16)
    lanes = np.arange(len(starts))
    ended = rule.run(starts, begun, chunk, datasets)
    while True:
        wrong = lanes[1:][np.any(begun[:, 1:] != ended[:, :-1], axis=0)]
        if not len(wrong):
            return datasets.reshape(-1)[:size]
        begun[:, wrong] = ended[:, wrong - 1]
        again = np.empty((len(wrong), chunk), dtype=np.int16)
        ended[:, wrong] = rule.run(starts[wrong], begun[:, wrong], chunk, again)
        datasets[wrong] = again


class _Rule:
    """The rule over many lanes; each lane has its own sample number and counts, [num_datasets, num_lanes]."""

    def __init__(self, weights: NDArray[np.float64], limits: NDArray[np.int64] | None) -> None:
        self._weights = weights[:, None]
        self._limits = None if limits is None else limits[:, None].astype(np.float64)

    def guess(self, samples: NDArray[np.int64]) -> NDArray[np.float64]:
        """Counts that sum to the sample number: w * i rounded down, the rest to the largest remainders."""
        ideal = self._weights * samples
        counts: NDArray[np.float64] = np.floor(ideal)
        rest = samples - counts.sum(axis=0)
        order = np.argsort(counts - ideal, axis=0, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(len(order))[:, None], axis=0)
        counts += ranks < rest
        return counts

    def run(
        self, starts: NDArray[np.int64], counts: NDArray[np.float64], steps: int, out: NDArray[np.int16] | None
    ) -> NDArray[np.float64]:
        """Draws `steps` samples in every lane and returns the counts after them; the datasets go to `out`."""
        counts = np.array(counts, order="C")  # `flat` needs it contiguous, the caller needs its own untouched
        flat, num_lanes = counts.reshape(-1), len(starts)
        lanes = np.arange(num_lanes)
        samples = starts.astype(np.float64)
        errors = np.empty_like(counts)
        block = np.empty((_BLOCK, num_lanes), dtype=np.int16)
        for step in range(steps if num_lanes else 0):
            np.multiply(self._weights, np.maximum(samples, 1.0), out=errors)
            errors -= counts
            if self._limits is not None:
                errors[counts >= self._limits] = -np.inf
            chosen = errors.argmax(axis=0)
            flat[chosen * num_lanes + lanes] += 1
            samples += 1
            if out is not None:
                block[step % _BLOCK] = chosen
                if step % _BLOCK == _BLOCK - 1 or step == steps - 1:
                    first = step - step % _BLOCK
                    out[:, first : step + 1] = block[: step + 1 - first].T
        return counts
