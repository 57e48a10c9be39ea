"""How often the version of Python that trained decides the order of a Megatron run.

    python experiments/benchmarks/python_sums.py

Python 3.12 changed `sum` of floats, with which GPT-NeoX adds the weights of a blend and older programs the shares of a
split (docs/data-order.md). This counts random blends whose shares and whose order depend on it, and numbers of
sequences for which the bounds of a split do. Both sums are Treering's own, so any Python prints the same.
"""

import random

import numpy as np

from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.greedy import interleave
from treering.data.megatron.lineage import Lineage, lineage_named

BLENDS = 2000
SAMPLES = 20_000
SEQUENCES = 200_000
SPLITS = ("969,30,1", "98,2,0", "0.969,0.030,0.001", "0.95,0.04,0.01", "0.9,0.05,0.05", "0.7,0.2,0.1")


def by_both(name: str) -> tuple[Lineage, Lineage]:
    """A lineage on Python 3.11 and on Python 3.12."""
    return lineage_named(f"{name}-python3.11"), lineage_named(f"{name}-python3.12")


def blends() -> tuple[int, int]:
    """Of random blends of GPT-NeoX: how many have other shares, and another order of the first samples."""
    generator = random.Random(1)
    other_shares = other_order = 0
    for _ in range(BLENDS):
        decimals = generator.choice((1, 2, 3, 4))
        count = generator.randint(2, 15)
        weights = tuple(round(generator.uniform(0.01, 1), decimals) or 0.1 for _ in range(count))
        names = tuple(map(str, range(count)))
        shares = [
            MegatronBlend(names, weights, 1, 16, SAMPLES, lineage=lineage).blend_weights([])
            for lineage in by_both("gpt-neox")
        ]
        if shares[0] != shares[1]:
            other_shares += 1
            orders = [interleave(np.array(each), SAMPLES) for each in shares]
            other_order += not np.array_equal(*orders)
    return other_shares, other_order


def split_bounds(split: str) -> int:
    """For how many numbers of sequences a split ends its training part elsewhere."""
    older, newer = (
        MegatronBlend(("a",), None, 1, 16, 1, split, lineage=lineage) for lineage in by_both("megatron-lm-legacy")
    )
    if older.split_shares == newer.split_shares:
        return 0
    return sum(older.sequences(number) != newer.sequences(number) for number in range(2, SEQUENCES + 1))


def main() -> None:
    """Prints the counts."""
    other_shares, other_order = blends()
    print(f"{BLENDS:,} random blends: {other_shares} with other shares, {other_order} with another order")
    for split in SPLITS:
        print(f"split {split}: {split_bounds(split):,} of {SEQUENCES - 1:,} numbers of sequences")


if __name__ == "__main__":
    main()
