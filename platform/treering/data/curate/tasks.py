"""Evaluation tasks made of held-out documents; the harness reads their JSON Lines files.

- `lambada`: say the last word of a passage. As in LAMBADA (Paperno et al. 2016, arXiv 1606.06031) the word has to be
  guessed from the passage; here it occurs in the passage before, and no person has checked the item.
  Rows: id, text (= context + " " + target), context, target, document, corpus.
- `cloze`: which of four sentences continues a passage. The other three are drawn from other documents, of the same
  corpus if it has enough, after the story cloze test (Mostafazadeh et al. 2016, arXiv 1604.01696).
  Rows: id, context, choices [4], gold (index), document, corpus.
"""

import heapq
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from treering.config.corpora import TaskConfig
from treering.data.curate.seeded_hash import Keyed, key
from treering.data.words import words

TASKS = ("lambada", "cloze")
NUM_CHOICES = 4

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“])")
_LAST_WORD = re.compile(r"(.*\S)\s+([A-Za-z]{4,})[.!?]")
_MIN_CONTEXT_WORDS = 20
_SENTENCE_WORDS = range(6, 31)
_POOL = 1000


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space collapsed; a line break ends one too."""
    return [
        " ".join(sentence.split())
        for line in text.split("\n")
        for sentence in _SENTENCE.split(line.strip())
        if sentence.strip()
    ]


def _lambada_items(parts: list[str], config: TaskConfig) -> Iterator[tuple[int, dict[str, Any]]]:
    before: list[str] = []
    for number, part in enumerate(parts):
        match = _LAST_WORD.fullmatch(part) if number else None
        if match is not None:
            context = " ".join([*before, *match[1].split()][-config.context_words :])
            target = match[2]
            seen = words(context)
            if len(seen) >= _MIN_CONTEXT_WORDS and target.lower() in seen:
                yield number, {"text": f"{context} {target}", "context": context, "target": target}
        before = [*before, *part.split()][-config.context_words :]


def _cloze_items(parts: list[str], config: TaskConfig) -> Iterator[tuple[int, dict[str, Any]]]:
    before: list[str] = []
    for number, part in enumerate(parts):
        if number and _may_continue(part):
            context = " ".join(before)
            if len(words(context)) >= _MIN_CONTEXT_WORDS:
                yield number, {"context": context, "answer": part}
        before = [*before, *part.split()][-config.context_words :]


def _may_continue(sentence: str) -> bool:
    return sentence[-1] in ".!?" and len(words(sentence)) in _SENTENCE_WORDS


def write_tasks(
    documents: Iterable[tuple[str, dict[str, Any]]], directory: Path, config: TaskConfig, seed: int
) -> dict[str, int]:
    """Makes both tasks and writes `<task>.jsonl`; a task without an item has no file.

    Which items are taken depends on seed and content alone: every document's best-ranked item comes before any
    document's second.

    Args:
        documents: (corpus, row) of every held-out document of prose.
        directory: where the files go.
        config: how many items.
        seed: of the choice.

    Returns:
        Number of items by task.
    """
    ranked: dict[str, list[tuple[int, int, dict[str, Any]]]] = {task: [] for task in TASKS}
    pool: dict[str, list[tuple[int, str, str]]] = {}
    for corpus, row in documents:
        parts = sentences(row["text"])
        for task, make in (("lambada", _lambada_items), ("cloze", _cloze_items)):
            items = [
                (key(seed, task, f"{number} {row['text']}"), number, {**item, "document": row["id"], "corpus": corpus})
                for number, item in make(parts, config)
            ]
            best = heapq.nsmallest(config.max_items_per_document, items, key=lambda entry: entry[:2])
            ranked[task] += [(rank, chance, item) for rank, (chance, _, item) in enumerate(best)]
        fits = [(key(seed, "pool", part), part, row["id"]) for part in parts if _may_continue(part)]
        pool[corpus] = heapq.nsmallest(_POOL, pool.get(corpus, []) + heapq.nsmallest(3, fits))

    directory.mkdir(parents=True, exist_ok=True)
    counts = {}
    for task in TASKS:
        entries = sorted(ranked[task], key=lambda entry: entry[:2])
        rows = (_cloze_choices(item, pool, seed) if task == "cloze" else item for _, _, item in entries)
        taken = [row for row, _ in zip((row for row in rows if row), range(config.num_items), strict=False)]
        counts[task] = len(taken)
        if not taken:
            continue
        with (directory / f"{task}.jsonl").open("w", encoding="utf-8") as file:
            for number, row in enumerate(taken):
                file.write(json.dumps({"id": f"{task}-{number:05}", **row}, ensure_ascii=False) + "\n")
    return counts


def _cloze_choices(
    item: dict[str, Any], pool: dict[str, list[tuple[int, str, str]]], seed: int
) -> dict[str, Any] | None:
    """Adds the choices to a cloze item; None if there are too few other sentences.

    They come from the item's own corpus, and from the others only where that one has too few.
    """
    answer, own = item["answer"], item["corpus"]
    wrong: list[str] = []
    keyed = Keyed(seed, "wrong", answer)
    for corpus in sorted(filter(pool.get, pool), key=lambda name: (name != own, pool[name][0])):
        if len(wrong) == NUM_CHOICES - 1:
            break
        others = {text for _, text, document in pool[corpus] if (corpus, document) != (own, item["document"])}
        others -= {answer, *wrong}
        wrong += heapq.nsmallest(NUM_CHOICES - 1 - len(wrong), others, key=lambda text: (keyed.key(text), text))
    if len(wrong) < NUM_CHOICES - 1:
        return None
    gold = key(seed, "gold", item["context"] + answer) % NUM_CHOICES
    choices = [*wrong[:gold], answer, *wrong[gold:]]
    return {
        "context": item["context"],
        "choices": choices,
        "gold": gold,
        "document": item["document"],
        "corpus": item["corpus"],
    }
