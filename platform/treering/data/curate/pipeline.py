"""The stage `curate`: runs the steps over all corpora; `data/curated` appears when the result is complete.

Two passes read the text, with one process for each corpus: `ingest` before deduplication, `finalize` after it. Between
them deduplication reads the signatures from disk. The number of processes never changes a byte of the output.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from treering.config.canonical import canonical_json
from treering.config.corpora import CorpusConfig, CurationConfig
from treering.data.curate.decontaminate import task_ngrams
from treering.data.curate.dedup import KEPT, find_duplicates
from treering.data.curate.finalize import SPLITS, Checks, Decisions, Written, finish_corpus
from treering.data.curate.heldout import TwinIndex, choose_heldout
from treering.data.curate.ingest import Taken, take_corpus
from treering.data.curate.library import Library
from treering.data.curate.summary import parents, summary
from treering.data.curate.tasks import write_tasks
from treering.data.words import Hashes, shingles
from treering.errors import UserError
from treering.files import write_durably
from treering.progress import Say
from treering.project import NO_TASKS, Project
from treering.workers import worker_pool


def curate(
    corpora: Sequence[CorpusConfig], config: CurationConfig, project: Project, say: Say = print
) -> dict[str, Any]:
    """Curates every corpus that has text and returns the summary.

    Writes `data/curated`: `train/`, `heldout/` and `decisions/` by corpus, `tasks/`, `provenance/` and `summary.json`.
    The folder appears when it is complete; an interrupted run leaves the old folder.

    Raises:
        UserError: a source is missing or broken, or a corpus ends up empty.
    """
    with_text = [corpus for corpus in corpora if corpus.has_text]
    if all(corpus.declared for corpus in corpora):
        raise UserError(
            "corpora: all are declared, expected at least one with text; a declared blend can only be planned"
        )
    work = project.root / ".treering" / "curate"
    shutil.rmtree(work, ignore_errors=True)
    out = work / "out"
    for folder in (*SPLITS, "decisions", "tasks", "provenance"):
        (out / folder).mkdir(parents=True)
    if with_text:
        with worker_pool(config.num_processes) as pool:
            result = _curate(with_text, config, project, work, pool, say)
    else:
        say("curate           nothing to do: every corpus is tokens already")
        result = summary([], [], [], {})
        write_durably(out / "tasks" / NO_TASKS, "No corpus of this project has text, so no task was made.\n")
        _write_summary(out, result)
    if project.curated.exists():
        shutil.rmtree(project.curated)
    project.curated.parent.mkdir(parents=True, exist_ok=True)
    out.rename(project.curated)
    shutil.rmtree(work)
    return result


def _with_items(num_items: Mapping[str, int], folder: Path, say: Say) -> list[str]:
    """The tasks that have items; says which have none, and leaves a file in the place of the tasks if none has."""
    say("tasks            " + ", ".join(f"{task}: {count} items" for task, count in num_items.items()))
    found = [task for task, count in num_items.items() if count]
    if len(found) < len(num_items):
        without = ", ".join(task for task in num_items if task not in found)
        say(
            f"no items         for {without}: held-out prose has no passage of the form, so no checkpoint is scored "
            "on it; add prose, or raise curation.heldout.fraction"
        )
    if not found:
        write_durably(folder / NO_TASKS, "The held-out documents have no passage for any task.\n")
    return found


def _write_summary(out: Path, result: dict[str, Any]) -> None:
    write_durably(out / "summary.json", json.dumps(result, indent=2, sort_keys=True) + "\n")


def _curate(  # noqa: PLR0917 - the stage's own inner half
    corpora: Sequence[CorpusConfig],
    config: CurationConfig,
    project: Project,
    work: Path,
    pool: ProcessPoolExecutor,
    say: Say,
) -> dict[str, Any]:
    names, out = [corpus.name for corpus in corpora], work / "out"
    futures = [
        pool.submit(take_corpus, corpus, config.rules(corpus), config.dedup, project.raw, work) for corpus in corpora
    ]
    taken: list[Taken] = []
    for name, future in zip(names, futures, strict=True):
        taken.append(future.result())
        intake = taken[-1].intake
        say(
            f"extract, filter  {name}: {sum(taken[-1].dropped.values()):,} of {intake['documents']:,} documents dropped"
        )

    library = Library(names, work)

    def shingles_of(number: int) -> Hashes:
        return shingles(library.document(number)["text"], config.dedup.shingle_words)

    duplicates = find_duplicates(
        library.signatures,
        shingles_of,
        work / "dedup",
        min_jaccard=config.dedup.min_jaccard,
        cluster_jaccard=config.heldout.min_jaccard,
    )
    kept = duplicates.rule == KEPT
    say(f"dedup            {int((~kept).sum()):,} of {len(kept):,} dropped, {duplicates.num_compared:,} pairs compared")

    digests = np.concatenate([signatures.digests[:] for signatures in library.signatures])
    heldout = choose_heldout(
        corpus_of=np.repeat(np.arange(len(names)), np.diff(library.starts)),
        kept=kept,
        cluster=duplicates.cluster,
        digests=digests,
        names=names,
        config=config.heldout,
        seed=config.seed,
    )
    heldout_numbers = np.flatnonzero(heldout).tolist()
    say(f"heldout          {len(heldout_numbers):,} documents held out")

    def heldout_prose() -> Iterator[tuple[str, dict[str, Any]]]:
        for number in heldout_numbers:
            corpus = corpora[library.corpus(number)]
            if corpus.kind != "code":
                yield corpus.name, library.document(number)

    num_items = write_tasks(heldout_prose(), out / "tasks", config.tasks, config.seed)
    task_paths = [out / "tasks" / f"{task}.jsonl" for task in _with_items(num_items, out / "tasks", say)]
    task_paths += [project.root / path for path in config.decontamination.tasks]
    ngrams = task_ngrams(task_paths, config.decontamination.ngram_words)
    checks = Checks(
        TwinIndex((position, shingles_of(number)) for position, number in enumerate(heldout_numbers)),
        [library.name(number) for number in heldout_numbers],
        ngrams,
        config.dedup.shingle_words,
        config.heldout.min_jaccard,
    )

    written: list[Written] = []
    futures_out = []
    for index in range(len(names)):
        start, end = library.starts[index], library.starts[index + 1]
        decisions = Decisions(
            names,
            index,
            duplicates.rule[start:end],
            heldout[start:end],
            duplicates.original[start:end],
            duplicates.cluster[start:end],
        )
        futures_out.append(pool.submit(finish_corpus, config.seed, decisions, checks, work))
    for name, future_out in zip(names, futures_out, strict=True):
        written.append(future_out.result())
        documents = written[-1].documents
        say(f"decontaminate    {name}: {documents['train']:,} documents to train on, {documents['heldout']:,} held out")
    library.close()

    result = summary(names, taken, written, num_items)
    _write_summary(out, result)
    for corpus, steps in zip(corpora, parents(corpora, config, taken, written, ngrams.digest), strict=True):
        write_durably(out / "provenance" / f"{corpus.name}.json", canonical_json(steps) + "\n")
    return result
