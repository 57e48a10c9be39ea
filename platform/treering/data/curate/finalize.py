"""The last pass: writes each corpus, shuffled, and its decisions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treering.data.corpus.table import read_rows, write_rows
from treering.data.curate.checks import Drop
from treering.data.curate.cuts import CutDocument, Fragment
from treering.data.curate.decisions import QUALITY_FIELDS, REMOVED, SCHEMA
from treering.data.curate.dedup import EXACT, KEPT
from treering.data.curate.library import Library
from treering.data.curate.seeded_hash import keys
from treering.data.curate.shards import Finished
from treering.data.curate.shelf import DIGEST_BYTES, json_line
from treering.data.fragments import fragment_id

SPLITS = ("train", "heldout")
_NO_SPLIT = -1


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided about the documents of one corpus that passed the filter.

    Attributes:
        corpus: place of the corpus among the names.
        rule: KEPT, EXACT or NEAR: uint8 [n].
        heldout: bool [n].
        original: number of the document that is kept instead, over all corpora: int64 [n].
        cluster: number of the first document of its cluster: int64 [n].
        late: what `check_shard` dropped, by place in the corpus.
        cuts: documents that were cut, by place in the corpus; None where decontamination does not cut.
    """

    corpus: int
    rule: npt.NDArray[np.uint8]
    heldout: npt.NDArray[np.bool_]
    original: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]
    late: dict[int, Drop]
    cuts: dict[int, CutDocument] | None


@dataclass(frozen=True, slots=True)
class Writing:
    """What the writing of all corpora shares.

    Attributes:
        names: of the corpora, in order of priority.
        shards: of each corpus.
        seed: of the shuffle.
        out: the folder to write to.
        judged: whether a quality classifier judged a corpus.
    """

    names: Sequence[str]
    shards: Sequence[Sequence[Finished]]
    seed: int
    out: Path
    judged: bool


@dataclass(frozen=True, slots=True)
class Written:
    """Counts of the last pass.

    Attributes:
        documents: raw documents by split.
        characters: by split.
        dropped: documents by (step, rule).
        cut: documents that were cut, the fragments that are left of them, and characters that are gone; None where
            decontamination does not cut.
    """

    documents: dict[str, int]
    characters: dict[str, int]
    dropped: dict[tuple[str, str], int]
    cut: dict[str, int] | None


def write_corpus(writing: Writing, decisions: Decisions) -> Written:
    """Writes the documents that are left of one corpus, shuffled, and the decision about each raw document."""
    library, name = Library(writing.names, writing.shards), writing.names[decisions.corpus]
    first, count = library.first(decisions.corpus, 0), len(decisions.rule)
    split = np.where(decisions.rule == KEPT, decisions.heldout.astype(np.int8), np.int8(_NO_SPLIT))
    split[list(decisions.late)] = _NO_SPLIT
    cuts = {index: each for index, each in (decisions.cuts or {}).items() if index not in decisions.late}
    fragments = [(index, fragment) for index, each in sorted(cuts.items()) for fragment in each.fragments]
    in_split = np.concatenate([split, split[[index for index, _ in fragments]]])
    in_split[list(cuts)] = _NO_SPLIT
    order = _shuffled(writing, decisions.corpus, [fragment for _, fragment in fragments])
    characters = Counter[str]()
    for number, name_of_split in enumerate(SPLITS):
        with (writing.out / name_of_split / f"{name}.jsonl").open("wb") as file:
            for place in order[in_split[order] == number]:
                index, fragment = (place, None) if place < count else fragments[place - count]
                row = library.document(first + index)
                if fragment is not None:
                    row["id"] = fragment_id(row["id"], fragment.start, fragment.end)
                    row["text"] = row["text"][fragment.start : fragment.end]
                characters[name_of_split] += len(row["text"])
                file.write(json_line(row))
    dropped: Counter[tuple[str, str]] = Counter()
    rows = _decisions(library, decisions, split, dropped)
    schema = pa.schema(
        [*SCHEMA, *([] if decisions.cuts is None else [REMOVED]), *(QUALITY_FIELDS if writing.judged else [])]
    )
    write_rows(writing.out / "decisions" / f"{name}.parquet", rows, schema)
    library.close()
    cut = {
        "documents": len(cuts),
        "fragments": len(fragments),
        "characters": sum(gone.end - gone.start for each in cuts.values() for gone in each.removed),
    }
    return Written(
        {each: int((split == number).sum()) for number, each in enumerate(SPLITS)},
        {each: characters[each] for each in SPLITS},
        dict(dropped),
        None if decisions.cuts is None else cut,
    )


def _shuffled(writing: Writing, corpus: int, fragments: Sequence[Fragment]) -> npt.NDArray[np.int64]:
    """The order of a corpus's documents and, numbered behind them, of its fragments: int64 [n]."""
    parts = [keys(writing.seed, "shuffle", shard.signatures.digests[:]) for shard in writing.shards[corpus]]
    cut = np.frombuffer(b"".join(each.key for each in fragments), np.uint8).reshape(-1, DIGEST_BYTES)
    return np.argsort(np.concatenate([*parts, keys(writing.seed, "shuffle", cut)]), kind="stable")


def _decisions(
    library: Library, decisions: Decisions, split: npt.NDArray[np.int8], dropped: Counter[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    """The decision about every raw document; counts into `dropped` what the late steps dropped."""
    name, first = library.names[decisions.corpus], library.first(decisions.corpus, 0)
    for place, shard in enumerate(library.shards[decisions.corpus]):
        start = library.first(decisions.corpus, place) - first
        shelved = {int(row): index for index, row in enumerate(shard.signatures.rows[:].ravel(), start)}
        for number, raw in enumerate(read_rows(shard.rows)):
            row = {"corpus": name, **raw, "kept": False, "near_duplicate_of": None, "cluster": None, "split": None}
            index = shelved.get(number)
            if index is not None:
                cluster = int(decisions.cluster[index])
                row["cluster"] = f"{name}:{raw['id']}" if cluster == first + index else library.name(cluster)
                if decisions.rule[index] != KEPT:
                    row["step"], row["rule"] = "dedup", "exact" if decisions.rule[index] == EXACT else "near"
                    row["near_duplicate_of"] = library.name(int(decisions.original[index]))
                elif index in decisions.late:
                    row["step"], row["rule"], row["near_duplicate_of"] = decisions.late[index]
                else:
                    row["kept"], row["split"] = True, SPLITS[split[index]]
                if decisions.cuts is not None and index in decisions.cuts:
                    row["removed"] = [asdict(each) for each in decisions.cuts[index].removed]
                if row["step"]:
                    dropped[row["step"], row["rule"]] += 1
            yield row
