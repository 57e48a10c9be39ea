"""Golden vectors of the data order: samples that a run reads, compared before a reproduction trains."""

from collections.abc import Iterator, Mapping
from typing import Final

from treering.config.canonical import digest_json
from treering.config.resolved import ReadRange, ranges_before
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import Corpus, token_digest
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError
from treering.reproduce.capsule.contents import OrderVectors, Vector
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun

_BEGINNING: Final = 4096
"""Samples of an order whose places are digested."""


def orders_of(run: AnyRun) -> Iterator[ReadRange]:
    """The orders that a run reads, those of the runs before it first; nothing for a loader without a blend.

    Raises:
        EvidenceError: a config on the way is missing or was changed.
    """
    if isinstance(run, RunDirectory):
        resolved = run.resolved
        yield from ranges_before(run.path, resolved.recipe.start_from)
        yield ReadRange.of(resolved, resolved.schedule.num_steps)
    elif run.blend_file.exists():
        first = min((attempt.header.data or {"first_sample": 0})["first_sample"] for attempt in run.attempts())
        yield ReadRange(run.id, ResolvedBlend.read(run.blend_file), first, first + _BEGINNING)


def golden_vectors(read: ReadRange, corpora: Mapping[str, Corpus]) -> OrderVectors:
    """The vectors of one order.

    Args:
        read: the order, and which samples of it were read.
        corpora: those that are here, by digest; a sample of another one has no tokens.

    Raises:
        EvidenceError: a corpus is damaged.
    """
    order, length = DataOrder(read.blend), read.blend.sequence_length
    vectors = []
    before, after = order.counts(read.lo), order.counts(read.hi)
    for position, component in enumerate(read.blend.components):
        if before[position] == after[position]:
            continue
        for place in dict.fromkeys((before[position], after[position] - 1)):
            sample = order.select(position, place)
            found = order.samples(sample, sample + 1)
            index = int(found.index[0])
            corpus, tokens = corpora.get(component.digest or ""), None
            if corpus is not None:
                tokens = token_digest(corpus.tokens(index * length, index * length + length + 1))
            epoch = int(found.epoch[0])
            vectors.append(Vector(sample=sample, corpus=component.corpus, epoch=epoch, index=index, tokens=tokens))
    beginning = order.samples(read.lo, min(read.hi, read.lo + _BEGINNING))
    return OrderVectors(
        blend=read.blend.digest,
        sample_start=read.lo,
        sample_end=read.hi,
        vectors=tuple(vectors),
        beginning=digest_json([each.tolist() for each in (beginning.component, beginning.epoch, beginning.index)]),
    )


def check_vectors(run: AnyRun, recorded: tuple[OrderVectors, ...], corpora: Mapping[str, Corpus]) -> int:
    """Computes the golden vectors of a run's orders again; returns how many samples were compared by their tokens.

    Args:
        run: the run.
        recorded: what the capsule says.
        corpora: those that are here, by digest.

    Raises:
        EvidenceError: this version orders the samples otherwise, or a corpus has other tokens.
    """
    compared = 0
    found = [golden_vectors(read, corpora) for read in orders_of(run)]
    if len(found) != len(recorded):
        raise EvidenceError(
            f"{run.path}: reads {len(found)} data orders, the capsule has vectors of {len(recorded)}",
            file=run.path,
            found=len(found),
            expected=len(recorded),
        )
    for mine, theirs in zip(found, recorded, strict=True):
        places = [(each.sample, each.corpus, each.epoch, each.index) for each in mine.vectors]
        expected = [(each.sample, each.corpus, each.epoch, each.index) for each in theirs.vectors]
        if (mine.blend, mine.beginning, places) != (theirs.blend, theirs.beginning, expected):
            raise EvidenceError(
                f"{run.path}: this version of Treering orders the samples of blend {mine.blend} otherwise than the "
                "capsule's golden vectors say; install the version that made the capsule",
                file=run.path,
                found=mine.beginning,
                expected=theirs.beginning,
            )
        for one, other in zip(mine.vectors, theirs.vectors, strict=True):
            if one.tokens and other.tokens:
                compared += 1
                if one.tokens != other.tokens:
                    raise EvidenceError(
                        f"{run.path}: sample {one.sample} of corpus {one.corpus} has other tokens here than in the "
                        "capsule's golden vectors; `treering verify` says which file of the corpus is damaged",
                        file=run.path,
                        found=one.tokens,
                        expected=other.tokens,
                    )
    return compared
