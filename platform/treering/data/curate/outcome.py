"""Last pass over one corpus: decontaminate, shuffle, write. Runs in a process of its own.

Reads the shelf and the decisions made so far; writes the corpus's curated documents and its decision table.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.config.corpora import CurationConfig
from treering.data.curate.decisions import read_rows, write_rows
from treering.data.curate.decontaminate import TaskNgrams
from treering.data.curate.dedup import EXACT, KEPT
from treering.data.curate.heldout import TwinIndex
from treering.data.curate.keyed import keys
from treering.data.curate.shelf import Shelf, Signatures
from treering.data.curate.words import run_hashes, word_hashes
from treering.errors import UserError

SPLITS = ("train", "heldout")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What dedup and heldout decided about the documents of one shelf.

    Attributes:
        rule: KEPT, EXACT or NEAR: uint8 [n].
        heldout: bool [n].
        original: name (`corpus:id`) of the document kept in its stead, by index on the shelf.
        cluster: name of the first document of its cluster, where that is another one.
        heldout_names: names of the held-out documents of all corpora, as `TwinIndex` numbers them.
    """

    rule: npt.NDArray[np.uint8]
    heldout: npt.NDArray[np.bool_]
    original: dict[int, str]
    cluster: dict[int, str]
    heldout_names: list[str]


@dataclass(frozen=True, slots=True)
class Written:
    """What the last pass counted: documents and characters by split, documents dropped by (step, rule)."""

    documents: dict[str, int]
    characters: dict[str, int]
    dropped: dict[tuple[str, str], int]


def finish_corpus(
    name: str, config: CurationConfig, verdicts: Verdicts, twins: TwinIndex, ngrams: TaskNgrams, work: Path, out: Path
) -> Written:
    """Checks every training document against the held-out ones and the tasks, and writes what is left, shuffled.

    Raises:
        UserError: no document is left to train on.
    """
    signatures = Signatures.load(work / f"{name}.npz")
    shelf = Shelf(work / f"{name}.jsonl", signatures.offsets)
    late: dict[int, tuple[str, str, str | None]] = {}
    for index in np.flatnonzero((verdicts.rule == KEPT) & ~verdicts.heldout).tolist():
        verdict = _late_verdict(shelf.document(index)["text"], config, verdicts, twins, ngrams)
        if verdict is not None:
            late[index] = verdict

    order = np.argsort(keys(config.seed, "shuffle", signatures.digests), kind="stable").tolist()
    documents, characters = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0)
    split_of: dict[int, str] = {}
    for split in SPLITS:
        with (out / split / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for index in order:
                if verdicts.rule[index] == KEPT and bool(verdicts.heldout[index]) == (split == "heldout") and index not in late:
                    row = shelf.document(index)
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    documents[split] += 1
                    characters[split] += len(row["text"])
                    split_of[index] = split
    if not documents["train"]:
        raise UserError(f"corpus {name}: no document is left to train on after decontamination; give it more text")

    dropped: Counter[tuple[str, str]] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        shelved = dict(zip(signatures.rows.tolist(), range(len(signatures)), strict=True))
        for number, raw in enumerate(read_rows(work / f"{name}.parquet")):
            row = {"corpus": name, **raw, "kept": False, "near_duplicate_of": None, "cluster": None, "split": None}
            index = shelved.get(number)
            if index is not None:
                row["cluster"] = verdicts.cluster.get(index, f"{name}:{raw['id']}")
                if verdicts.rule[index] != KEPT:
                    row["step"], row["rule"] = "dedup", "exact" if verdicts.rule[index] == EXACT else "near"
                    row["near_duplicate_of"] = verdicts.original[index]
                elif index in late:
                    row["step"], row["rule"], row["near_duplicate_of"] = late[index]
                else:
                    row["kept"], row["split"] = True, split_of[index]
                if row["step"]:
                    dropped[row["step"], row["rule"]] += 1
            yield row

    write_rows(out / "decisions" / f"{name}.parquet", rows())
    shelf.close()
    return Written(documents, characters, dict(dropped))


def _late_verdict(
    text: str, config: CurationConfig, verdicts: Verdicts, twins: TwinIndex, ngrams: TaskNgrams
) -> tuple[str, str, str | None] | None:
    """(step, rule, twin) that drops a training document; None to keep it."""
    hashes = word_hashes(text)
    length = min(config.dedup.shingle_words, max(1, len(hashes)))
    twin = twins.twin(np.unique(run_hashes(hashes, length)), config.heldout.min_jaccard)
    if twin is not None:
        return "heldout", "twin", verdicts.heldout_names[twin]
    task = ngrams.contaminated_by(hashes)
    return None if task is None else ("decontaminate", task, None)
