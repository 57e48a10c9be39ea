"""Step decontaminate: finds the training documents that hold an n-gram of an evaluation task.

It fails closed: without tasks, with an empty task or with a task that gives no n-gram, curation ends with an error.
By the rule `document` such a document is dropped, so that every training document is a whole document of its source.
By the rule `cut` the match is cut out of it (`treering.data.curate.cuts`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.config.canonical import digest_bytes, digest_json, parse_json
from treering.data.words import Hashes, RunTable, run_hashes, word_hashes
from treering.errors import UserError

_MIN_WORDS = 8
"""Words of the shortest text of a task that counts, as one n-gram; a shorter text would match too many documents."""
LABELS = frozenset(("id", "document", "corpus", "source", "licence"))
"""Keys that name where a row came from. A long text under such a key counts: some tasks hold whole texts there."""


@dataclass(frozen=True, slots=True)
class TaskNgrams:
    """The n-grams of all tasks.

    Attributes:
        tables: by n-gram length: the hashes, and the number of the item that each belongs to first.
        items: task and id of each item; for an item without an id its row, counted from 1: `row 3`.
    """

    tables: dict[int, tuple[RunTable, npt.NDArray[np.int64]]]
    items: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """Identity of the set of n-grams, whatever the tasks and files are called."""
        return digest_json(
            [[length, digest_bytes(table.hashes.tobytes())] for length, (table, _) in self.tables.items()]
        )

    def contaminated_by(self, hashes: Hashes) -> str | None:
        """Name of a task that has an n-gram in common with a document of these word hashes; None without one."""
        for length, (table, owners) in self.tables.items():
            hit = table.find(hashes, length)
            if hit >= 0:
                return self.items[int(owners[hit])][0]
        return None

    def matches(self, hashes: Hashes) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """All n-grams in common with a document: length, first word in the document, and row in the table."""
        for length, (table, _) in self.tables.items():
            runs = run_hashes(hashes, length)
            rows = np.minimum(np.searchsorted(table.hashes, runs), len(table.hashes) - 1)
            first = np.flatnonzero(table.hashes[rows] == runs)
            yield length, first, rows[first]

    def without(self, rows: Iterable[tuple[int, int]]) -> "TaskNgrams":
        """The n-grams without some, each given as its length and its row in the table."""
        left = {length: np.ones(len(owners), np.bool_) for length, (_, owners) in self.tables.items()}
        for length, row in rows:
            left[length][row] = False
        tables = {
            length: (RunTable(table.hashes[left[length]]), owners[left[length]])
            for length, (table, owners) in self.tables.items()
            if left[length].any()
        }
        return TaskNgrams(tables, self.items)


def task_ngrams(paths: Sequence[Path], length: int) -> TaskNgrams:
    """Reads every task file and collects its n-grams.

    Every text of a row counts, inside lists (all choices) and objects too; under a key that names where the row came
    from only a text of at least an n-gram. A row's context and its target are also read together, joined by a space.

    Args:
        paths: the task files, JSON Lines; the file's stem names the task. Without tasks there is nothing to check.
        length: words in an n-gram.

    Raises:
        UserError: a task's file is missing, empty, unreadable or gives no n-gram.
    """
    found: dict[int, dict[int, int]] = {}
    items: list[tuple[str, str]] = []
    for path in paths:
        before = sum(map(len, found.values()))
        num_rows = 0
        for row in task_rows(path):
            num_rows += 1
            number = len(items)
            items.append((path.stem, str(row.get("id", f"row {num_rows}"))))
            for key, text in row_texts(row):
                hashes = word_hashes(text)
                size = min(length, len(hashes))
                if size >= (length if key in LABELS else min(_MIN_WORDS, length)):
                    for run in run_hashes(hashes, size).tolist():
                        found.setdefault(size, {}).setdefault(run, number)
        if not num_rows:
            raise UserError(
                f"decontamination: {path} is empty, expected a row for each item; refusing to pass text unchecked"
            )
        if sum(map(len, found.values())) == before:
            raise UserError(
                f"decontamination: {path} adds no {length}-gram, expected at least one (its texts have under "
                f"{_MIN_WORDS} words, or are a copy of another task); refusing to pass text unchecked"
            )
    tables = {}
    for size, owners in sorted(found.items()):
        table = np.array(sorted(owners), dtype=np.uint64)
        tables[size] = (RunTable(table), np.array([owners[run] for run in table.tolist()], dtype=np.int64))
    return TaskNgrams(tables, tuple(items))


def task_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a task.

    Raises:
        UserError: the file is unreadable, or a line is not a JSON object.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if line.strip():
                    row = parse_json(line)
                    if not isinstance(row, dict):
                        raise UserError(f"decontamination: {path}, line {number + 1}: expected a JSON object")
                    yield row
    except FileNotFoundError:
        raise UserError(f"decontamination: {path} does not exist; refusing to pass text unchecked") from None
    except (OSError, ValueError) as error:
        raise UserError(f"decontamination: {path} is not a JSON Lines file: {error}") from None


def row_texts(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text of a row with the row's key that holds it."""
    context = row.get("context")
    for key, value in row.items():
        for text in _strings(value):
            yield key, text
            if isinstance(context, str) and key in ("choices", "target"):
                yield key, f"{context} {text}"


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
