"""Which documents train the quality classifier, and how well it tells good documents from judged ones.

`pick_shard` is a function of a shard: the documents with the lowest keys, which are hashes of their text. The merge
takes as many good documents as judged ones, and at most a fifth of the judged ones, since the classifier scores those
that it was trained on too low. A tenth of the documents is left out of the training and measures the classifier.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treering.config.canonical import digest_bytes, digest_file, parse_json
from treering.config.quality import QualityConfig
from treering.data.corpus.table import write_rows
from treering.data.curate import classifier
from treering.data.curate.engines import Engine
from treering.data.curate.library import Library
from treering.data.curate.seeded_hash import keys
from treering.data.curate.shards import Finished, begin, folder_name, keep, read_record
from treering.errors import UserError
from treering.files import read_bytes, write_durably
from treering.progress import Progress, Say

MAX_DOCUMENTS: Final = 100_000
"""Most documents of each side that are picked."""
MIN_DOCUMENTS: Final = 50
"""Fewest documents of each side: a classifier of fewer documents learns names, not quality."""
_JUDGED_PER_EXAMPLE: Final = 5
"""Judged documents for each one that is picked, at least."""
_MEASURED_EVERY: Final = 10
_DOCUMENTS: Final = pa.schema(
    [
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("good", pa.bool_(), nullable=False),
        pa.field("score", pa.float64()),
    ]
)
"""A row for each picked document; one with a score measured the classifier, the others trained it."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A shard to pick documents from.

    Attributes:
        shard: where they are.
        first: number of its first document, over all corpora.
    """

    shard: Finished
    first: int


def pick_shard(seed: int, pick: Pick) -> npt.NDArray[np.uint64]:
    """Key and number of the documents of a shard with the lowest keys, at most `MAX_DOCUMENTS`: uint64 [n, 2]."""
    found = keys(seed, "quality", pick.shard.signatures.digests[:])
    return _lowest(np.stack([found, np.arange(pick.first, pick.first + len(found), dtype=np.uint64)], axis=1))


def _lowest(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The rows with the lowest keys, in their order; of equal texts the first document."""
    ordered = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    new = np.concatenate([[True], ordered[1:, 0] != ordered[:-1, 0]]) if len(ordered) else np.empty(0, np.bool_)
    return ordered[new][:MAX_DOCUMENTS]


def train_classifier(  # noqa: PLR0917 - what the step has
    library: Library, quality: QualityConfig, seed: int, store: Path, engine: Engine, say: Say, progress: Progress
) -> tuple[Path, dict[str, Any]]:
    """Picks documents, and trains and measures a classifier; one from before an interruption is used again.

    Args:
        library: the documents that passed the filter.
        quality: which corpora are good, and which are judged.
        seed: of the choice.
        store: folder of the finished shards.
        engine: does the shards.
        say: told what is done.
        progress: told how many shards are done.

    Returns:
        The folder with `model.bin`, `documents.parquet` and `classifier.json`, and what the latter holds.

    Raises:
        UserError: there are too few documents.
    """
    names = {name: corpus for corpus, name in enumerate(library.names)}
    good, judged = (
        _picked(library, [names[name] for name in side], seed, engine, progress)
        for side in (quality.good, quality.corpora)
    )
    judged = judged[~np.isin(judged[:, 0], good[:, 0])]  # a text of both sides is a good one
    for field, found in (("good", good), ("corpora", judged)):
        if len(found) < MIN_DOCUMENTS:
            raise UserError(
                f"curation.quality.{field}: found {len(found)} different documents that pass the filter in "
                f"{', '.join(getattr(quality, field))}, expected at least {MIN_DOCUMENTS} to train the classifier on; "
                "name more corpora, or leave the section curation.quality out"
            )
    num_judged = sum(len(shard.signatures) for name in quality.corpora for shard in library.shards[names[name]])
    count = min(len(good), len(judged), max(MIN_DOCUMENTS, num_judged // _JUDGED_PER_EXAMPLE))
    examples = sorted(
        (key, number, side, place % _MEASURED_EVERY == 0)
        for side, found in ((True, good), (False, judged))
        for place, (key, number) in enumerate(found[:count].tolist())
    )
    num_trained = sum(not measures for *_, measures in examples)
    settings = classifier.settings(num_trained)
    folder = begin(store)
    training_text = classifier.write_examples(
        ((side, library.document(number)["text"]) for _, number, side, measures in examples if not measures),
        folder / "text",
    )
    inputs = {
        "training_text": training_text,
        "good": list(quality.good),
        "corpora": list(quality.corpora),
        "library": f"floret {version('floret')}",
        "settings": settings,
    }
    target = store / folder_name(inputs)
    if read_record(target) is None:
        say(f"quality          training on {num_trained:,} documents")
        classifier.train(folder / "text", folder / "model.bin", settings)
        (folder / "text").unlink()
        record = _measured(library, examples, folder)
        write_durably(folder / "classifier.json", json.dumps({**inputs, **record}, indent=2, sort_keys=True) + "\n")
        keep(folder, target, {"inputs": inputs})
    record = parse_json(read_bytes(target / "classifier.json"))
    say(
        f"quality          a good document scores higher than a judged one in {record['auc']:.1%} of the pairs of "
        f"{record['measured']:,} documents that were left out of the training"
    )
    return target, record


def _measured(library: Library, examples: Sequence[tuple[int, int, bool, bool]], folder: Path) -> dict[str, Any]:
    """Scores the documents that were left out, writes the table of all, and returns what is known of the classifier."""
    trained = classifier.Classifier(folder / "model.bin")
    scores: dict[bool, list[float]] = {True: [], False: []}
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    rows = []
    for _, number, side, measures in examples:
        document, corpus = library.document(number), library.names[library.corpus(number)]
        score = trained.score(document["text"]) if measures else None
        if score is not None:
            scores[side].append(score)
        counts[side][corpus] += 1
        digest = digest_bytes(document["text"].encode())
        rows.append({"corpus": corpus, "id": document["id"], "digest": digest, "good": side, "score": score})
    write_rows(folder / "documents.parquet", rows, _DOCUMENTS)
    return {
        "model": digest_file(folder / "model.bin"),
        "documents": {"good": dict(counts[True]), "judged": dict(counts[False])},
        "documents_digest": digest_file(folder / "documents.parquet"),
        "measured": len(scores[True]) + len(scores[False]),
        "auc": round(classifier.auc(scores[True], scores[False]), 6),
    }


def _picked(
    library: Library, corpora: Sequence[int], seed: int, engine: Engine, progress: Progress
) -> npt.NDArray[np.uint64]:
    """Key and number of the documents of some corpora with the lowest keys: uint64 [n, 2]."""
    picks = [
        Pick(shard, library.first(corpus, place))
        for corpus in sorted(corpora)
        for place, shard in enumerate(library.shards[corpus])
    ]
    found = np.empty((0, 2), dtype=np.uint64)
    for count, (_, each) in enumerate(engine.map(pick_shard, seed, picks), 1):
        found = _lowest(np.concatenate([found, each]))
        progress("pick for quality", count, len(picks))
    return found
