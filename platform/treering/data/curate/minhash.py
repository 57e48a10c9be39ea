"""MinHash signatures, kept as the hash of each band.

Two documents are candidates if all hashes of one band agree. Only the band's hash is kept, 8 bytes instead of
`rows` · 4: with MT-NLG's 20 bands of 13 rows 160 bytes for each document instead of 1,040. Without the signature the
Jaccard similarity cannot be estimated, and need not be: `dedup` computes it exactly for every pair of candidates.
`datasketch` would keep the whole signature of each document, and a Python dict entry for each of its bands.

Source: Broder 1997, "On the resemblance and containment of documents"; bands as in Leskovec, Rajaraman, Ullman,
"Mining of Massive Datasets", section 3.4. P(candidate) = 1 - (1 - J^rows)^bands.
"""

import numpy as np
import numpy.typing as npt

from treering.data.compiled import lowest_hashes
from treering.data.words import Hashes


class MinHasher:
    """Computes band hashes; the permutations are fixed by the shape alone, so that signatures can be compared.

    Args:
        bands: number of bands.
        rows: hashes in a band.
    """

    def __init__(self, bands: int, rows: int) -> None:
        generator = np.random.Generator(np.random.PCG64(0x7265_6572_696E_67))
        count = bands * rows
        # Multiply-shift hashing (Dietzfelbinger et al. 1997): the multiplier is odd, the high 32 bits are the hash.
        self._multipliers = generator.integers(0, 2**63, count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._offsets = generator.integers(0, 2**64, count, dtype=np.uint64)
        self._folds = generator.integers(0, 2**63, rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._shape = (bands, rows)

    def bands(self, shingles: Hashes) -> npt.NDArray[np.uint64]:
        """Band hashes of a set of shingles, which may repeat: uint64 [bands]; an empty set has zeros."""
        bands, _ = self._shape
        if not len(shingles):
            return np.zeros(bands, dtype=np.uint64)
        minima = np.full(len(self._multipliers), 2**64 - 1, dtype=np.uint64)
        lowest_hashes(shingles, self._multipliers, self._offsets, minima)
        folded: npt.NDArray[np.uint64] = ((minima >> np.uint64(32)).reshape(self._shape) * self._folds).sum(
            axis=1, dtype=np.uint64
        )
        return folded ^ (folded >> np.uint64(29))
