"""The stage `curate`: runs the steps over all corpora; `data/curated` appears when the result is complete.

Two passes read the text, shard by shard: `ingest` before deduplication, `finalize` after it. Between them deduplication
reads the signatures from disk. Before it a classifier may judge documents (`quality`). `treering.data.curate.shards`
says why the engine never changes a byte of the output.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treering.config.canonical import canonical_json
from treering.config.corpora import CorpusConfig, CurationConfig, DecontaminationConfig
from treering.data.curate.checks import Checks, Drop, check_shard
from treering.data.curate.cuts import MAX_DOCUMENTS, CutDocument, cut_contaminated
from treering.data.curate.decontaminate import task_ngrams
from treering.data.curate.dedup import KEPT, find_duplicates
from treering.data.curate.engines import Engine, engine_for
from treering.data.curate.finalize import SPLITS, Decisions, Writing, write_corpus
from treering.data.curate.heldout import TwinIndex, choose_heldout
from treering.data.curate.ingest import Setting
from treering.data.curate.intake import Taken, listed, take_corpora
from treering.data.curate.library import Library, Training
from treering.data.curate.quality import judge_corpora
from treering.data.curate.shards import SHARD_BYTES, clear_unfinished
from treering.data.curate.summary import parents, summary
from treering.data.curate.tasks import write_tasks
from treering.data.words import Hashes, shingles
from treering.errors import UserError
from treering.files import write_durably
from treering.progress import Progress, Say, quiet
from treering.project import NO_TASKS, Project


def curate(
    corpora: Sequence[CorpusConfig],
    config: CurationConfig,
    project: Project,
    say: Say = print,
    *,
    engine: Engine | None = None,
    progress: Progress = quiet,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, Any]:
    """Curates every corpus that has text and returns the summary.

    Writes `data/curated`: `train/`, `heldout/` and `decisions/` by corpus, `tasks/`, `provenance/` and `summary.json`;
    of corpora in S3 also `objects/`, which names each object that was read, with the sha256 of its content.
    The folder appears when it is complete; an interrupted run leaves the old folder, and the shards that it finished.

    Args:
        corpora: of the experiment.
        config: of curation.
        project: whose `data/raw` is read.
        say: told what each step did.
        engine: does the shards; None for processes of this machine, as many as the config says.
        progress: told how many shards are done.
        shard_bytes: about the size of a shard; it never changes a byte of the output.

    Raises:
        UserError: a source is missing or broken, or a corpus ends up empty.
    """
    with_text = [corpus for corpus in corpora if corpus.has_text]
    if all(corpus.declared for corpus in corpora):
        raise UserError(
            "corpora: all are declared, expected at least one with text; a declared blend can only be planned"
        )
    work = project.root.resolve() / ".treering" / "curate"
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    clear_unfinished(work / "shards")
    for folder in (*SPLITS, "decisions", "tasks", "provenance"):
        (out / folder).mkdir(parents=True)
    if with_text:
        with closing(engine or engine_for(None, config.num_processes)) as workers:
            result = _curate(with_text, config, project, work, workers, say, progress, shard_bytes)
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


def _write_objects(out: Path, corpora: Sequence[CorpusConfig], taken: Sequence[Taken]) -> None:
    """Writes which objects in S3 were read, of each corpus that has some."""
    for corpus, each in zip(corpora, taken, strict=True):
        if each.objects:
            record = {"url": (corpus.own or ("", ""))[1], "objects": each.objects}
            (out / "objects").mkdir(exist_ok=True)
            write_durably(out / "objects" / f"{corpus.name}.json", json.dumps(record, indent=1, sort_keys=True) + "\n")


def _taken(corpora: Sequence[CorpusConfig], joined: Iterator[Taken], say: Say) -> list[Taken]:
    """What was taken of each corpus; says it."""
    taken = []
    for corpus, each in zip(corpora, joined, strict=True):
        taken.append(each)
        dropped, count = sum(each.dropped.values()), each.intake["documents"]
        say(f"extract, filter  {corpus.name}: {dropped:,} of {count:,} documents dropped")
        if each.skipped:
            say(f"no documents     {corpus.name}: {sum(each.skipped.values()):,} records: {listed(each.skipped)}")
        if each.noted:
            say(f"not as usual     {corpus.name}: documents: {listed(each.noted)}")
    resumed = sum(shard.resumed for each in taken for shard in each.shards)
    if resumed:
        say(f"resumed          {resumed:,} shards that an interrupted run had finished")
    return taken


def _curate(  # noqa: PLR0917 - the stage's own inner half
    corpora: Sequence[CorpusConfig],
    config: CurationConfig,
    project: Project,
    work: Path,
    engine: Engine,
    say: Say,
    progress: Progress,
    shard_bytes: int,
) -> dict[str, Any]:
    names, out = [corpus.name for corpus in corpora], work / "out"
    setting = Setting(config.dedup, project.raw.resolve(), work / "shards", cut=config.decontamination.rule == "cut")
    taken = _taken(
        corpora, take_corpora(corpora, config, setting, engine, shard_bytes=shard_bytes, progress=progress), say
    )
    taken, quality = judge_corpora(names, taken, config, setting.store, out / "quality", engine, say, progress)
    shards = [each.shards for each in taken]
    library = Library(names, shards)

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

    training = _training(library, duplicates.rule == KEPT, heldout)
    late: list[dict[int, Drop]] = [{} for _ in names]
    places = [(number, shard) for number, each in enumerate(shards) for shard in range(len(each))]
    for count, (place, drops) in enumerate(engine.map(check_shard, checks, training), 1):
        number, shard = places[place]
        start = library.first(number, shard) - library.first(number, 0)
        late[number].update({start + index: drop for index, drop in drops.items()})
        progress("decontaminate", count, len(training))
    cuts, num_ignored = _cut(engine, checks, library, late, config.decontamination, say)

    decisions = [
        Decisions(
            index,
            duplicates.rule[here],
            heldout[here],
            duplicates.original[here],
            duplicates.cluster[here],
            drops,
            cuts[index],
        )
        for index, drops in enumerate(late)
        for here in [slice(library.starts[index], library.starts[index + 1])]
    ]
    found = dict(engine.map(write_corpus, Writing(names, shards, config.seed, out, quality is not None), decisions))
    written = [found[index] for index in range(len(names))]
    for name, each in zip(names, written, strict=True):
        documents = each.documents
        if not documents["train"]:
            raise UserError(f"corpus {name}: no document is left to train on after decontamination; give it more text")
        say(f"decontaminate    {name}: {documents['train']:,} documents to train on, {documents['heldout']:,} held out")
        if each.cut is not None:
            say(f"                 {each.cut['documents']:,} were cut, into {each.cut['fragments']:,} fragments")
    library.close()

    result = summary(names, taken, written, num_items, num_ignored=num_ignored, quality=quality)
    _write_summary(out, result)
    steps_of = parents(corpora, config, taken, written, tasks=ngrams.digest, num_ignored=num_ignored, quality=quality)
    for corpus, steps in zip(corpora, steps_of, strict=True):
        write_durably(out / "provenance" / f"{corpus.name}.json", canonical_json(steps) + "\n")
    _write_objects(out, corpora, taken)
    return result


def _cut(  # noqa: PLR0917 - the end of `_curate`
    engine: Engine,
    checks: Checks,
    library: Library,
    late: list[dict[int, Drop]],
    config: DecontaminationConfig,
    say: Say,
) -> tuple[Sequence[dict[int, CutDocument] | None], int | None]:
    """Cuts the documents that decontamination would drop; in `late` stay those of which too little is left.

    Returns:
        Documents that were cut, by corpus and place in it, and how many n-grams were ignored. None by the rule
        `document`, which cuts nothing.
    """
    if config.rule == "document":
        return [None] * len(late), None
    found = [
        {index: drops.pop(index) for index, (step, _, _) in list(drops.items()) if step == "decontaminate"}
        for drops in late
    ]
    training, starts = [], []
    for corpus, shards in enumerate(library.shards):
        contaminated = np.array(sorted(found[corpus]), dtype=np.int64)
        for place, shard in enumerate(shards):
            start = library.first(corpus, place) - library.first(corpus, 0)
            here = contaminated[(contaminated >= start) & (contaminated < start + len(shard.signatures))] - start
            if len(here):
                training.append(Training(shard, here))
                starts.append((corpus, start))
    done, num_ignored = cut_contaminated(engine, checks, training)
    cuts: list[dict[int, CutDocument]] = [{} for _ in late]
    for (corpus, start), each in zip(starts, done, strict=True):
        for place, document in sorted(each.items()):
            cuts[corpus][start + place] = document
            if document.dropped_by is not None:
                late[corpus][start + place] = ("decontaminate", document.dropped_by, None)
    if num_ignored:
        say(f"decontaminate    {num_ignored:,} n-grams of tasks ignored: more than {MAX_DOCUMENTS} documents hold each")
    return cuts, num_ignored


def _training(library: Library, kept: npt.NDArray[np.bool_], heldout: npt.NDArray[np.bool_]) -> list[Training]:
    """The training documents of each shard, in order of corpora and shards."""
    return [
        Training(
            shard, np.flatnonzero((kept & ~heldout)[library.first(corpus, place) : library.first(corpus, place + 1)])
        )
        for corpus, shards in enumerate(library.shards)
        for place, shard in enumerate(shards)
    ]
