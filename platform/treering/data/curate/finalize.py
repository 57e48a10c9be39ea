"""Last pass over one corpus, in its own process: decontaminate, shuffle, write.

Reads the shelf and the earlier decisions; writes the corpus's curated documents and its decision table.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.data.corpus.table import read_rows, write_rows
from treering.data.curate.decisions import SCHEMA
from treering.data.curate.decontaminate import TaskNgrams
from treering.data.curate.dedup import EXACT, KEPT
from treering.data.curate.heldout import TwinIndex
from treering.data.curate.library import Library
from treering.data.curate.seeded_hash import keys
from treering.data.words import shingle_set, word_hashes
from treering.errors import UserError

SPLITS = ("train", "heldout")


Drop = tuple[str, str, str | None]
"""Step and rule that drop a document, and the document that it is too similar to, if that is the reason."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What dedup and heldout decided about the documents of one shelf.

    Attributes:
        names: of all corpora, in order of priority.
        corpus: place of the shelf's corpus among the names.
        rule: KEPT, EXACT or NEAR: uint8 [n].
        heldout: bool [n].
        original: number of the document that is kept instead, over all corpora: int64 [n].
        cluster: number of the first document of its cluster: int64 [n].
    """

    names: Sequence[str]
    corpus: int
    rule: npt.NDArray[np.uint8]
    heldout: npt.NDArray[np.bool_]
    original: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Checks:
    """The last checks of every training document.

    Attributes:
        twins: the held-out documents of all corpora.
        twin_names: their names, as `twins` numbers them.
        ngrams: of all tasks.
        shingle_words: words in a shingle.
        min_jaccard: a training document this similar to a held-out one is dropped.
    """

    twins: TwinIndex
    twin_names: list[str]
    ngrams: TaskNgrams
    shingle_words: int
    min_jaccard: float

    def drop(self, text: str) -> Drop | None:
        """Why a training document is dropped; None to keep it."""
        hashes = word_hashes(text)
        twin = self.twins.twin(shingle_set(hashes, self.shingle_words), self.min_jaccard)
        if twin is not None:
            return "heldout", "twin", self.twin_names[twin]
        task = self.ngrams.contaminated_by(hashes)
        return None if task is None else ("decontaminate", task, None)


@dataclass(frozen=True, slots=True)
class Written:
    """Counts of the last pass: documents and characters by split, documents dropped by (step, rule)."""

    documents: dict[str, int]
    characters: dict[str, int]
    dropped: dict[tuple[str, str], int]


def finish_corpus(seed: int, decisions: Decisions, checks: Checks, work: Path) -> Written:
    """Checks every training document; writes the remaining ones, shuffled, and all decisions, to `<work>/out`.

    Raises:
        UserError: no document is left to train on.
    """
    library = Library(decisions.names, work)
    name, signatures = decisions.names[decisions.corpus], library.signatures[decisions.corpus]
    first = int(library.starts[decisions.corpus])
    kept = decisions.rule == KEPT
    late: dict[int, Drop] = {}
    for index in np.flatnonzero(kept & ~decisions.heldout).tolist():
        drop = checks.drop(library.document(first + index)["text"])
        if drop is not None:
            late[index] = drop

    order = np.argsort(keys(seed, "shuffle", signatures.digests[:]), kind="stable").tolist()
    members = {split: kept & (decisions.heldout == (split == "heldout")) for split in SPLITS}
    split_of = {index: split for split in SPLITS for index in order if members[split][index] and index not in late}
    documents, characters = Counter(split_of.values()), Counter[str]()
    for split in SPLITS:
        with (work / "out" / split / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for index in (index for index, its in split_of.items() if its == split):
                row = library.document(first + index)
                characters[split] += len(row["text"])
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    if not documents["train"]:
        raise UserError(f"corpus {name}: no document is left to train on after decontamination; give it more text")

    dropped: Counter[tuple[str, str]] = Counter()
    rows = _decisions(library, read_rows(work / f"{name}.parquet"), decisions, late, split_of, dropped)
    write_rows(work / "out" / "decisions" / f"{name}.parquet", rows, SCHEMA)
    library.close()
    return Written(
        {split: documents[split] for split in SPLITS}, {split: characters[split] for split in SPLITS}, dict(dropped)
    )


def _decisions(  # noqa: PLR0917 - all that was decided, in the order of the steps
    library: Library,
    raw_rows: Iterable[dict[str, Any]],
    decisions: Decisions,
    late: dict[int, Drop],
    split_of: dict[int, str],
    dropped: Counter[tuple[str, str]],
) -> Iterator[dict[str, Any]]:
    """The decision about every raw document; counts into `dropped` what the late steps dropped."""
    name, first = library.names[decisions.corpus], int(library.starts[decisions.corpus])
    shelved = {int(row): index for index, row in enumerate(library.signatures[decisions.corpus].rows[:].ravel())}
    for number, raw in enumerate(raw_rows):
        row = {"corpus": name, **raw, "kept": False, "near_duplicate_of": None, "cluster": None, "split": None}
        index = shelved.get(number)
        if index is not None:
            cluster = int(decisions.cluster[index])
            row["cluster"] = f"{name}:{raw['id']}" if cluster == first + index else library.name(cluster)
            if decisions.rule[index] != KEPT:
                row["step"], row["rule"] = "dedup", "exact" if decisions.rule[index] == EXACT else "near"
                row["near_duplicate_of"] = library.name(int(decisions.original[index]))
            elif index in late:
                row["step"], row["rule"], row["near_duplicate_of"] = late[index]
            else:
                row["kept"], row["split"] = True, split_of[index]
            if row["step"]:
                dropped[row["step"], row["rule"]] += 1
        yield row
