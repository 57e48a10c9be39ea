"""Step quality: a classifier, trained on corpora that are declared good, judges the documents of other corpora.

Off unless `curation.quality` asks for it. It comes between the first pass and deduplication: `classifier_training`
picks documents and trains, `judging` scores the documents of a shard and decides about each, and here the shards are
merged.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from treering.config.corpora import CurationConfig
from treering.data.curate.classifier_training import train_classifier
from treering.data.curate.decisions import QUALITY
from treering.data.curate.engines import Engine
from treering.data.curate.intake import Taken
from treering.data.curate.judging import BANDS, RULE, Judging, bands_of, judge_shard
from treering.data.curate.library import Library
from treering.data.curate.shards import Finished, joined_digest
from treering.errors import UserError
from treering.progress import Progress, Say

_MIN_KEPT: Final = 2
"""One to train on, and one to hold out."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What the step did, over all corpora.

    Attributes:
        record: digests of the model and of the training text, documents by corpus, settings, how well it separates.
        alpha: of the Pareto distribution.
        seed: of the draws.
        bands: of each judged corpus, documents that were scored and that were kept, by band of the score.
    """

    record: dict[str, Any]
    alpha: float
    seed: int
    bands: dict[str, list[list[int]]]

    @property
    def summary(self) -> dict[str, Any]:
        """For people."""
        return {**self.record, "alpha": self.alpha, "seed": self.seed, "bands": self.bands}

    @property
    def parameters(self) -> dict[str, Any]:
        """What decided the step, without names of corpora."""
        used = {name: self.record[name] for name in ("model", "training_text", "library", "settings")}
        return {**used, "alpha": self.alpha, "seed": self.seed}


def judge_corpora(  # noqa: PLR0917 - a part of the stage's own inner half
    names: Sequence[str],
    taken: Sequence[Taken],
    config: CurationConfig,
    store: Path,
    out: Path,
    engine: Engine,
    say: Say,
    progress: Progress,
) -> tuple[list[Taken], Quality | None]:
    """Trains the classifier, and judges the corpora that the config names; without a section quality nothing is done.

    Args:
        names: of the corpora with text.
        taken: what the first pass left of each corpus.
        config: of curation.
        store: folder of the finished shards.
        out: folder to write the evidence to.
        engine: does the shards.
        say: told what the step did.
        progress: told how many shards are done.

    Returns:
        What is left of each corpus, and what the step did.

    Raises:
        UserError: there are too few documents to train on, or a corpus ends up empty.
    """
    quality, seed = config.quality, config.seed
    if quality is None:
        return list(taken), None
    library = Library(names, [each.shards for each in taken])
    folder, record = train_classifier(library, quality, seed, store, engine, say, progress)
    library.close()
    judging = Judging(folder / "model.bin", record["model"], quality.alpha, seed, store)
    places = [place for place, name in enumerate(names) if name in quality.corpora]
    tasks = [shard for place in places for shard in taken[place].shards]
    done: dict[int, Finished] = {}
    for number, shard in engine.map(judge_shard, judging, tasks):
        done[number] = shard
        progress("quality", len(done), len(tasks))
    in_order = iter([done[number] for number in range(len(tasks))])
    left, bands = list(taken), {}
    for place in places:
        shards = [next(in_order) for _ in taken[place].shards]
        counts = sum((bands_of(shard) for shard in shards), np.zeros((BANDS, 2), np.int64))
        bands[names[place]] = counts.tolist()
        scored, kept = counts.sum(axis=0).tolist()
        say(f"quality          {names[place]}: {scored - kept:,} of {scored:,} documents dropped")
        if kept < _MIN_KEPT:
            raise UserError(
                f"corpus {names[place]}: the quality classifier keeps {kept} of {scored:,} documents, expected at "
                f"least {_MIN_KEPT}; lower curation.quality.alpha, now {quality.alpha:g}, or take the corpus out of "
                "curation.quality.corpora"
            )
        left[place] = _left(taken[place], shards, scored - kept)
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("record.json"))
    return left, Quality(record, quality.alpha, seed, bands)


def _left(before: Taken, shards: list[Finished], num_dropped: int) -> Taken:
    """What is left of a corpus after the step."""
    return replace(
        before,
        shards=shards,
        dropped=before.dropped | ({(QUALITY, RULE): num_dropped} if num_dropped else {}),
        digests={**before.digests, QUALITY: before.digests["dedup"], "dedup": joined_digest(shards, "dedup")},
    )
