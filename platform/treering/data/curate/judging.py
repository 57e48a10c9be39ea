"""Judging, a function of a shard: the quality classifier scores its documents, and a draw decides about each.

A document is kept if a draw from a Pareto distribution is higher than 1 - score, the rule of GPT-3 (Brown et al. 2020,
arXiv 2005.14165, appendix A). So some documents with a low score are kept too: the share that is kept is (2 - score) to
the power of -alpha. The draw is a hash of the text and a seed, so that no order and no engine changes it.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treering.data.corpus.table import read_rows, write_rows
from treering.data.curate import classifier
from treering.data.curate.decisions import QUALITY, QUALITY_FIELDS
from treering.data.curate.ingest import RAW_SCHEMA
from treering.data.curate.seeded_hash import key
from treering.data.curate.shards import Finished, begin, finish, finished, folder_name
from treering.data.curate.shelf import Column, SignatureWriter

RULE: Final = "pareto"
BANDS: Final = 10
"""Bands of the score that are counted, each 0.1 wide."""
_ROWS: Final = pa.schema([*RAW_SCHEMA, *QUALITY_FIELDS])


@dataclass(frozen=True, slots=True)
class Judging:
    """What the judging of all shards shares.

    Attributes:
        model: file of the classifier.
        digest: of that file.
        alpha: of the Pareto distribution.
        seed: of the draws.
        store: folder of the finished shards.
    """

    model: Path
    digest: str
    alpha: float
    seed: int
    store: Path

    def draw(self, digest: bytes) -> float:
        """A draw from the Pareto distribution (Lomax's, as numpy's `pareto`) that depends on a text alone.

        Args:
            digest: of the text.
        """
        uniform = (key(self.seed, RULE, digest) + 1) / 2**64
        return float(uniform ** (-1 / self.alpha) - 1)


def judge_shard(judging: Judging, shard: Finished) -> Finished:
    """Scores the documents of a shard, and leaves a shard with those that stay."""
    inputs = {
        "shard": shard.folder.name,
        "model": judging.digest,
        "rule": RULE,
        "alpha": judging.alpha,
        "seed": judging.seed,
    }
    folder = judging.store / folder_name(inputs)
    found = finished(folder)
    if found is not None:
        return found
    done = replace(shard, folder=begin(judging.store), dropped={}, resumed=False)
    dropped: Counter[tuple[str, str]] = Counter()
    bands = np.zeros((BANDS, 2), dtype=np.int64)
    with ExitStack() as stack:
        write_rows(done.rows, _judged_rows(judging, shard, done, dropped, bands, stack), _ROWS)
    bands.tofile(done.folder / "bands")
    return finish(replace(done, dropped=dict(dropped)), inputs, folder)


def _judged_rows(  # noqa: PLR0917 - the inner half of `judge_shard`
    judging: Judging,
    shard: Finished,
    done: Finished,
    dropped: Counter[tuple[str, str]],
    bands: npt.NDArray[np.int64],
    stack: ExitStack,
) -> Iterator[dict[str, Any]]:
    """A row for each raw document of a shard; writes all else on the way."""
    source = stack.enter_context(shard.shelf.open("rb"))
    shelf = stack.enter_context(done.shelf.open("wb"))
    stream = stack.enter_context(done.digests("dedup").open("wb"))
    digests = stack.enter_context(shard.digests("dedup").open("rb"))
    writer = stack.enter_context(SignatureWriter(done.signatures))
    shelved = {int(row): place for place, row in enumerate(shard.signatures.rows[:].ravel())}
    signatures = shard.signatures.bands[:] if shelved else np.empty((0, 0), np.uint64)
    scorer = classifier.load(judging.model)
    for number, raw in enumerate(read_rows(shard.rows)):
        row, place = raw, shelved.get(number)
        if place is not None:
            line, digest = source.readline(), digests.read(32)
            score, draw = scorer.score(json.loads(line)["text"]), judging.draw(digest)
            kept = draw > 1 - score
            row = {**raw, "quality_score": score, "quality_draw": draw}
            bands[min(BANDS - 1, int(score * BANDS))] += (1, kept)
            if kept:
                stream.write(digest)
                shelf.write(line)
                writer.add(shelf.tell(), number, digest, signatures[place])
            else:
                row["step"], row["rule"] = QUALITY, RULE
                dropped[QUALITY, RULE] += 1
        yield row


def bands_of(shard: Finished) -> npt.NDArray[np.int64]:
    """Documents of a judged shard that were scored, and that were kept, by band of the score: int64 [BANDS, 2]."""
    return Column(shard.folder / "bands", "int64", 2)[:]
