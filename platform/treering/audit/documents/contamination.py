"""Whether a checkpoint had read its evaluation: for every example, when its 13-grams were read; scores split by that.

Curation drops training documents that hold an n-gram of a task. This looks at what was read all the same: on corpora
that were not decontaminated, of tasks that came later, of tasks of somebody else's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from treering.audit.documents.exposure import seen_by
from treering.audit.documents.exposure_index import corpora_of
from treering.audit.documents.readers import missing_corpora
from treering.audit.documents.text import traced_matches
from treering.audit.documents.text_match import TextFinder, TextMatch
from treering.audit.evidence.recovery import RecoveredAncestry, recover_ancestry
from treering.audit.report import Gap, json_fields, messages
from treering.config.canonical import digest_file
from treering.data.curate.decontaminate import LABELS, row_texts, task_rows
from treering.data.ngram_index.index import NGRAM_WORDS
from treering.data.words import words
from treering.errors import NotFoundError, UserError
from treering.progress import Progress, quiet
from treering.project import NO_TASKS, Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory


@dataclass(frozen=True, slots=True)
class Example:
    """An evaluation example of which a training document holds an n-gram.

    Attributes:
        task: name of its task.
        id: its id, or its line.
        documents: the documents, as `corpus:id`.
        ngrams: most distinct n-grams of it that one document holds.
        exposures: samples on the checkpoint's path that held such an n-gram's tokens.
        first_step: the first step that read one, None if the checkpoint never did.
        last_step: the last one.
    """

    task: str
    id: str
    documents: tuple[str, ...]
    ngrams: int
    exposures: int
    first_step: int | None
    last_step: int | None

    @property
    def seen(self) -> bool:
        """Whether the checkpoint's path read an n-gram of it."""
        return self.first_step is not None


@dataclass(frozen=True, slots=True)
class SplitScore:
    """Scores of one task, examples that were read apart from those that were not.

    Attributes:
        shots: examples in the prompt.
        metric: name of the metric.
        clean: mean over examples that were not read, None if there is none.
        seen: mean over examples that were read, None if there is none.
        num_clean: how many were not.
        num_seen: how many were.
    """

    shots: str
    metric: str
    clean: float | None
    seen: float | None
    num_clean: int
    num_seen: int


@dataclass(frozen=True, slots=True)
class TaskContamination:
    """One task.

    Attributes:
        task: its name.
        digest: of its file.
        examples: how many it has.
        checkable: how many have an n-gram; shorter ones cannot be looked for.
        in_corpora: how many share one with a training document.
        seen: how many share one with what the checkpoint's path read.
        scores: of this checkpoint, split; empty where no scores by example are on record for this task's file.
    """

    task: str
    digest: str
    examples: int
    checkable: int
    in_corpora: int
    seen: int
    scores: tuple[SplitScore, ...]


@dataclass(frozen=True, slots=True)
class Contamination:
    """What a checkpoint read of its evaluation.

    Attributes:
        run: id of its run.
        step: its step.
        tasks: by task.
        examples: those that share an n-gram with a training document.
        unanswered: what could not be looked into.
        gaps: what of that is evidence that is missing, and what is answered without it.
    """

    run: str
    step: int
    tasks: tuple[TaskContamination, ...]
    examples: tuple[Example, ...]
    unanswered: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return {**json_fields(self), "examples": [{**asdict(each), "seen": each.seen} for each in self.examples]}


def find_contamination(
    checkpoint: CheckpointDirectory, project: Project, tasks: Path | None = None, progress: Progress = quiet
) -> Contamination:
    """Looks for every evaluation example in what a checkpoint read.

    Args:
        checkpoint: the checkpoint.
        project: the project.
        tasks: folder of task files (JSON Lines), default the project's.
        progress: is called with the state of the slow parts.

    Raises:
        UserError: `tasks/` is empty, or a file in it is not a task file.
        NotFoundError: no available corpus has an index.
        EvidenceError: the tokenizer is missing, or both manifest and config of the checkpoint are.
    """
    folder = project.tasks if tasks is None else tasks
    files = sorted(folder.glob("*.jsonl"))
    if not files and (folder / NO_TASKS).is_file():
        raise UserError(f"{folder}: no corpus has text, so no task was made; name a folder of tasks by --tasks")
    if not files:
        raise UserError(f"{folder}: found no task (*.jsonl), expected at least one; `dvc repro curate` makes them")
    ancestry = recover_ancestry(checkpoint, project)
    runs = list({piece.run.path: piece.run for piece in ancestry.pieces}.values())
    catalog, unanswered = corpora_of(project, runs)
    finder = TextFinder(project, catalog, unanswered)
    if not finder.corpora:
        lacking = messages((*ancestry.gaps, *missing_corpora(catalog, [ancestry])), unanswered)
        raise NotFoundError("; ".join(lacking))
    gaps = [*ancestry.gaps]
    found: list[TaskContamination] = []
    examples: list[Example] = []
    for done, file in enumerate(files, 1):
        texts = dict(_examples(file))
        checkable = sum(any(len(words(text)) >= NGRAM_WORDS for text in parts) for parts in texts.values())
        matches = finder.find_all(texts)
        mine = list(_exposed(file.stem, matches, ancestry, runs, finder, gaps))
        examples += mine
        seen = {each.id for each in mine if each.seen}
        digest = digest_file(file)
        scores = tuple(_split_scores(ancestry, file.stem, digest, seen))
        found.append(TaskContamination(file.stem, digest, len(texts), checkable, len(mine), len(seen), scores))
        progress("tasks", done, len(files))
    missing = tuple(dict.fromkeys(gaps))
    return Contamination(
        ancestry.run_id, ancestry.step, tuple(found), tuple(examples), messages(missing, unanswered), missing
    )


def _examples(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Id and texts of every example of a task, the ones that decontamination looks for."""
    for number, row in enumerate(task_rows(file), 1):
        yield str(row.get("id", f"line {number}")), [text for key, text in row_texts(row) if key not in LABELS]


def _exposed(  # noqa: PLR0917 - private, called once
    task: str,
    matches: Mapping[str, Sequence[TextMatch]],
    ancestry: RecoveredAncestry,
    runs: Sequence[RunDirectory],
    finder: TextFinder,
    gaps: list[Gap],
) -> Iterator[Example]:
    flat = [match for found in matches.values() for match in found]
    found_traces, missing = traced_matches(runs, flat, finder.catalog, [ancestry])
    gaps += missing
    traced = iter(found_traces)
    for name, found in matches.items():
        documents = [next(traced).document for _match in found]
        seen = seen_by(ancestry, documents)
        yield Example(
            task=task,
            id=name,
            documents=tuple(f"{document.corpus}:{document.document}" for document in documents),
            ngrams=max(match.ngrams for match in found),
            exposures=seen.exposures,
            first_step=seen.first_step,
            last_step=seen.last_step,
        )


def _split_scores(ancestry: RecoveredAncestry, task: str, digest: str, seen: set[str]) -> Iterator[SplitScore]:
    """Scores of the very checkpoint on the very task, by example."""
    checkpoint = ancestry.checkpoint
    if ancestry.manifest is None:
        return
    for record in checkpoint.run.evaluations():
        if record.checkpoint != checkpoint.digest or record.tasks.get(task) != digest or record.items is None:
            continue
        for shots, metrics in record.items.get(task, {}).items():
            for metric, values in metrics.items():
                parts = {
                    which: [value for name, value in values.items() if (name in seen) == which]
                    for which in (False, True)
                }
                means = {which: sum(part) / len(part) if part else None for which, part in parts.items()}
                yield SplitScore(shots, metric, means[False], means[True], len(parts[False]), len(parts[True]))
