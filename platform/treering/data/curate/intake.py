"""The first pass over all corpora: shards go out, come back in any order, and are joined to corpora in theirs.

Shards go out in rounds. A corpus without a cap is one round. Of a corpus with a cap a round takes as many shards as
could reach the cap if all of their source were text, and the next round takes what is still missing.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from treering.config.canonical import parse_json
from treering.config.corpora import CorpusConfig, CurationConfig, FilterRules
from treering.data.curate.engines import Engine, until_fault
from treering.data.curate.ingest import HASHED_STEPS, Setting, take_shard
from treering.data.curate.shards import Finished, Shard, begin, joined_digest
from treering.data.curate.sorted_keys import SortedKeys, equal_keys
from treering.data.sources.documents import Intake
from treering.data.sources.pieces import Piece
from treering.data.sources.raw import cap_bytes, read_shard, source_of
from treering.errors import UserError
from treering.files import read_bytes
from treering.progress import Progress

_MEMORY_BYTES = 1 << 28
"""Most memory for the comparison of ids."""
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Taken:
    """What the first pass made of a corpus.

    Attributes:
        shards: in their order.
        intake: files in the corpus's sources, files that were opened before the cap was reached, documents taken, bytes
            of their raw text, the cap.
        dropped: documents by (step, rule).
        digests: by step, the digest of its input (`shards.joined_digest`).
        objects: the objects in S3 that were read, in order (`Intake.objects`).
        skipped: records of a web archive that are no document, by reason.
        noted: documents that are not whole or were read in another way, alike.
    """

    shards: list[Finished]
    intake: dict[str, int | None]
    dropped: dict[tuple[str, str], int]
    digests: dict[str, str]
    objects: list[dict[str, str | int]]
    skipped: dict[str, int]
    noted: dict[str, int]


@dataclass(slots=True)
class _Corpus:
    """A corpus while its shards are done.

    Attributes:
        config: of the corpus.
        rules: of its filter.
        num_files: files in its source.
        source: shards that have not gone out yet.
        cap: most raw text to take.
        waiting: shards to send out before any of `source`.
        shards: the ones that count, in order.
        done: what they left.
    """

    config: CorpusConfig
    rules: FilterRules
    num_files: int
    source: Iterator[tuple[Piece, ...]]
    cap: int | None
    waiting: list[Shard] = field(default_factory=list)
    shards: list[Shard] = field(default_factory=list)
    done: list[Finished] = field(default_factory=list)
    num_cut: int = 0

    @property
    def failed(self) -> bool:
        """Whether a document that counts has a fault."""
        return bool(self.done) and self.done[-1].error is not None

    @property
    def left(self) -> int | None:
        """What the cap leaves; None without a cap."""
        return None if self.cap is None else self.cap - sum(each.num_bytes for each in self.done)

    def next_round(self) -> list[Shard]:
        """The shards to send out now."""
        left = self.left
        if self.failed or (left is not None and left <= 0):
            return []
        found, num_bytes = [], 0
        while left is None or num_bytes < left:
            shard = self.waiting.pop(0) if self.waiting else self._cut(left)
            if shard is None:
                break
            found.append(shard)
            num_bytes += shard.num_bytes
        return found

    def _cut(self, left: int | None) -> Shard | None:
        pieces = next(self.source, None)
        if pieces is None:
            return None
        self.num_cut += 1
        return Shard(self.config, self.rules, self.num_cut - 1, pieces, left)

    def accept(self, shards: Sequence[Shard], results: Sequence[Finished | None]) -> None:
        """Takes what a round left, in order; a shard that has to be done again waits, with all behind it."""
        for place, (shard, result) in enumerate(zip(shards, results, strict=True)):
            left = self.left
            if left is not None and left <= 0:
                return
            too_much = left is not None and result is not None and result.num_bytes >= left and shard.cap_bytes != left
            if result is None or too_much:
                again = [Shard(each.corpus, each.rules, each.number, each.pieces, left) for each in shards[place:]]
                self.waiting = again + self.waiting
                return
            self.shards.append(shard)
            self.done.append(result)
            if result.error is not None:
                return


def take_corpora(
    corpora: Sequence[CorpusConfig],
    config: CurationConfig,
    setting: Setting,
    engine: Engine,
    *,
    shard_bytes: int,
    progress: Progress,
) -> Iterator[Taken]:
    """Does all shards of all corpora; yields what was taken of each corpus, in their order.

    Args:
        corpora: those with text.
        config: of curation.
        setting: what all shards share.
        engine: does the shards.
        shard_bytes: about the size of a shard.
        progress: told how many shards are done.

    Raises:
        UserError: a source is missing, broken or changed, an id occurs twice, or no document passes a corpus's filter;
            of several faults the first, in order of the documents.
        EvidenceError, StoreError, OSError: of a source that counts.
    """
    states = []
    for corpus in corpora:
        num_files, source = source_of(corpus, setting.raw / corpus.name, shard_bytes)
        states.append(_Corpus(corpus, config.rules(corpus), num_files, source, cap_bytes(corpus)))
    num_done, before = 0, {folder.name for folder in setting.store.glob("*")}
    while any(rounds := [state.next_round() for state in _until_failed(states)]):
        shards = [shard for each in rounds for shard in each]
        results = _do(engine, setting, shards, progress, num_done)
        num_done += len(shards)
        # Of two equal shards the later one finds the earlier one's folder: nothing was interrupted.
        results = [each and replace(each, resumed=each.resumed and each.folder.name in before) for each in results]
        for state, each in zip(states, rounds, strict=False):
            state.accept(each, [results.pop(0) for _ in each])
    for state in states:
        yield _joined(state, setting)


def _until_failed(states: Sequence[_Corpus]) -> Iterator[_Corpus]:
    """The corpora up to the first with a fault: what comes behind it is not reported."""
    for state in states:
        yield state
        if state.failed:
            return


def _do(
    engine: Engine, setting: Setting, shards: list[Shard], progress: Progress, num_done: int
) -> list[Finished | None]:
    """What the shards left; None for those that were given up since an earlier one has a fault."""
    return until_fault(
        engine.map(take_shard, setting, shards),
        len(shards),
        lambda place, result: result.error is not None and shards[place].corpus.max_megabytes is None,
        lambda count: progress("extract, filter", num_done + count, num_done + len(shards)),
    )


def _joined(state: _Corpus, setting: Setting) -> Taken:
    corpus, done = state.config, state.done
    _check_ids(state, setting)
    if done and done[-1].error is not None:
        raise done[-1].error
    count = sum(each.num_documents for each in done)
    dropped: Counter[tuple[str, str]] = Counter()
    skipped: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    for each in done:
        dropped.update(each.dropped)
        skipped.update(each.skipped)
        noted.update(each.noted)
    if not count:
        records = f" among {skipped.total():,} records ({listed(skipped)})" if skipped else ""
        raise UserError(
            f"corpus {corpus.name}: its {state.num_files} files below {setting.raw / corpus.name} hold no document"
            f"{records}, expected at least one"
        )
    if not any(len(each.signatures) for each in done):
        raise UserError(_nothing_kept(corpus, state.rules, count, dropped))
    intake = {
        "files": state.num_files,
        "files_read": sum(each.num_files_read for each in done),
        "documents": count,
        "bytes": sum(each.num_bytes for each in done),
        "cap_bytes": state.cap,
    }
    digests = {step: joined_digest(done, step) for step in HASHED_STEPS}
    objects = [each for shard in done if shard.objects.exists() for each in parse_json(read_bytes(shard.objects))]
    return Taken(done, intake, dict(dropped), digests, objects, dict(skipped), dict(noted))


def listed(reasons: Mapping[str, int]) -> str:
    """Reasons with their counts, highest first, at most six."""
    return ", ".join(f"{count:,} {reason}" for reason, count in Counter(reasons).most_common(_SHOWN))


def _check_ids(state: _Corpus, setting: Setting) -> None:
    """Looks for an id that two shards of a corpus have; each shard has checked its own.

    Raises:
        UserError: there is one; the first document that repeats an id is named.
    """
    done = [each for each in state.done if each.num_documents]
    if len(done) < 2:
        return
    starts = np.cumsum([0, *(each.num_documents for each in done)])
    scratch = begin(setting.store)
    keys = [
        SortedKeys.write(
            scratch / str(number),
            np.arange(starts[number], starts[number + 1]),
            np.fromfile(each.ids, np.uint64)[: each.num_documents, None, None],
        )
        for number, each in enumerate(done)
    ]
    twice = min((group[1] for group in equal_keys(keys, 1, scratch, _MEMORY_BYTES)), default=None)
    shutil.rmtree(scratch)
    if twice is None:
        return
    place = int(np.searchsorted(starts, twice, side="right")) - 1
    shard, intake = state.shards[state.done.index(done[place])], Intake()
    documents = read_shard(shard.corpus, setting.raw / shard.corpus.name, shard.pieces, None, intake)
    for number, document in enumerate(documents, int(starts[place])):
        if number == twice:
            raise intake.twice(document)


def _nothing_kept(corpus: CorpusConfig, rules: FilterRules, count: int, dropped: Counter[tuple[str, str]]) -> str:
    """Why no document of a corpus is left: the config fields that dropped them, most documents first."""
    by_rule = Counter({rule: number for (step, rule), number in dropped.items() if step == "filter"})
    if not by_rule:
        html = corpus.kind == "html"
        return (
            f"corpus {corpus.name}: found no text in {count:,} documents after extraction as {corpus.kind}"
            f"{f' ({corpus.html_extraction})' * html}, expected at least one with text; check `kind` of the corpus"
            f"{', its `extraction`' * html} and the documents"
        )
    place = f"curation.{corpus.kind}" if corpus.rules is None else f"corpora: {corpus.name}: rules"
    fields = [
        f"{place}.{rule} ({_setting(getattr(rules, rule))}) drops {number:,}" for rule, number in by_rule.most_common(3)
    ]
    own = ", or give the corpus `rules` of its own" if corpus.rules is None else ""
    return (
        f"corpus {corpus.name}: none of {count:,} documents passes the filter, expected at least one: "
        f"{'; '.join(fields)}. Change {place}.{by_rule.most_common(1)[0][0]} in the experiment's file{own}"
    )


def _setting(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
