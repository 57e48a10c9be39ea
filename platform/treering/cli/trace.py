"""`treering trace`, `takedown`, `diff`, `spikes`: from documents to checkpoints, and from one checkpoint to another."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.alarms import print_alarms
from treering.cli.audit import print_joins, print_shortfalls, progress_bars
from treering.cli.output import JsonOption, NamedCheckpoint, console, print_json, print_table, project
from treering.config.canonical import short
from treering.files import read_text, reason
from treering.foreign import say

if TYPE_CHECKING:
    from treering.audit.documents.exposure import CheckpointExposure, TracedDocument
    from treering.audit.report import Shortfall
    from treering.project import Project

DocumentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--document", metavar="CORPUS:ID", help="A document by its id, or its number as CORPUS:#123; repeatable."
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="PATTERN", help="Documents by source URI, a shell pattern; repeatable."),
]
LicenceOption = Annotated[
    list[str] | None, typer.Option("--licence", metavar="NAME", help="Documents of a licence; repeatable.")
]
TextOption = Annotated[
    Path | None,
    typer.Option("--text", metavar="FILE", help="Documents that hold the text of a file, or a run of 13 words of it."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", min=0, help="How many documents to show with their exposures; counts are of all.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes; default: one for each core, fewer for small corpora."),
]
BeforeOption = Annotated[int, typer.Option("--before", min=0, help="How many steps before the spike to show.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("trace")(trace)
    app.command("index")(index)
    app.command("takedown")(takedown)
    app.command("contamination")(contamination)
    app.command("diff")(diff)
    app.command("spikes")(spikes)


def trace(
    *,
    document: DocumentOption = None,
    source: SourceOption = None,
    licence: LicenceOption = None,
    text: TextOption = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Show every step that read some documents or a text, in every run, and which checkpoints saw them.

    Example: `treering trace --document code:django/urls/base.py`, or `treering trace --licence MIT --limit 0`
    """
    from treering.audit.documents.selection import Selector
    from treering.audit.documents.trace import trace_documents
    from treering.errors import UserError

    selectors = [
        *(Selector.parse(text) for text in document or ()),
        *(Selector("source", text) for text in source or ()),
        *(Selector("licence", text) for text in licence or ()),
    ]
    if bool(selectors) == (text is not None):
        given = "both documents and a text" if selectors else "nothing to look for"
        raise UserError(f"trace: found {given}, expected --document, --source and --licence, or --text")
    here = project()
    if text is not None:
        _trace_text(here, text, limit, json=json)
        return
    with progress_bars() as progress:
        found = trace_documents(here, selectors, limit=limit, progress=progress)
    if json:
        print_json(found.to_json())
        _end(found.shortfalls)
        return
    _print_documents(found.documents, found.num_documents)
    _print_checkpoints(found.checkpoints)
    _print_unanswered(found.unanswered)
    _end(found.shortfalls)


def _trace_text(here: "Project", file: Path, limit: int, *, json: bool) -> None:
    from treering.audit.documents.text import trace_text
    from treering.errors import UserError

    try:
        content = read_text(file, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: found an unreadable file ({reason(error)}), expected UTF-8 text") from None
    with progress_bars() as progress:
        found = trace_text(here, content, progress)
    if json:
        print_json(found.to_json())
        _end(found.shortfalls)
        return
    if not found.matches:
        console.print(f"no document at hand holds one of its {found.num_ngrams:,} runs of 13 words", "")
    for each in found.matches[:limit]:
        part = f"{each.match.ngrams:,} of {found.num_ngrams:,} runs of 13 words"
        spans = ", ".join(f"{start:,} to {end:,}" for start, end in each.match.spans)
        console.print(f"{'the whole text' if each.match.exact else part} in tokens {spans} of")
        _print_document(each.document)
    if len(found.matches) > limit:
        console.print(f"{len(found.matches) - limit:,} more documents; --limit shows more of them")
    _print_checkpoints(found.checkpoints)
    _print_unanswered(found.unanswered)
    _end(found.shortfalls)


def index(
    *,
    force: Annotated[bool, typer.Option("--force", help="Build anew what is there.")] = False,
    workers: WorkersOption = None,
    json: JsonOption = False,
) -> None:
    """Index the training corpora by their runs of 13 words, for `trace --text` and `contamination`.

    Example: `treering index`, or `treering index --force --workers 2`
    """
    from dataclasses import asdict

    from treering.data.corpus.corpus import MANIFEST, Corpus
    from treering.data.corpus.text import Detokenizer
    from treering.data.ngram_index.build import build_index
    from treering.data.ngram_index.index import NgramIndex, index_directory
    from treering.errors import NotFoundError, TreeringError

    here = project()
    folders = sorted(path.parent for path in here.corpora.glob(f"train/*/{MANIFEST}"))
    if not folders:
        raise NotFoundError(f"{here.corpora}: no corpus there; `dvc repro tokenize` makes them")
    text_of, found = Detokenizer(here.tokenizer), []
    with progress_bars() as progress:
        for folder in folders:
            corpus = Corpus.open(folder)
            try:
                facts = None if force else NgramIndex(index_directory(here.index, corpus.digest), corpus).facts
            except TreeringError:
                facts = None
            found.append(facts or build_index(corpus, text_of, here.index, progress, workers))
    if json:
        print_json([{**asdict(each), "bytes_per_token": each.bytes_per_token} for each in found])
        return
    print_table(
        ("corpus", "documents", "tokens", "entries", "MB", "bytes a token", "tokens a second"),
        [
            [
                each.corpus,
                f"{each.num_documents:,}",
                f"{each.num_tokens:,}",
                f"{each.num_entries:,}",
                f"{each.num_bytes / 1e6:.1f}",
                f"{each.bytes_per_token:.1f}",
                f"{each.num_tokens / each.seconds:,.0f}",
            ]
            for each in found
        ],
        numbers=("documents", "tokens", "entries", "MB", "bytes a token", "tokens a second"),
    )


def takedown(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="LIST", help="One entry a line: CORPUS:ID, CORPUS:#NUMBER, source=PATTERN or licence=NAME."
        ),
    ],
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Show which checkpoints saw any document of a list, or a recorded near-duplicate of one, and which are clean.

    Example: `treering takedown removals.txt --json`
    """
    from treering.audit.documents.takedown import read_list
    from treering.audit.documents.takedown import takedown as find

    with progress_bars() as progress:
        found = find(project(), read_list(file), limit=limit, progress=progress)
    if json:
        print_json(found.to_json())
        _end(found.shortfalls)
        return
    print_table(
        ("entry", "documents", "near-duplicates", "curation"),
        [
            [
                entry.asked,
                f"{entry.documents:,}",
                f"{entry.near_duplicates:,}",
                "; ".join(f"{count:,} {words}" for words, count in entry.fate.items())
                or ("no record" if entry.known else "unknown to every corpus at hand and to curation"),
            ]
            for entry in found.entries
        ],
        numbers=("documents", "near-duplicates"),
    )
    console.print()
    _print_documents([taken.document for taken in found.documents], found.num_documents)
    _print_checkpoints(found.checkpoints)
    _print_unanswered(found.unanswered)
    _end(found.shortfalls)


def contamination(
    checkpoint: NamedCheckpoint,
    tasks: Annotated[
        Path | None,
        typer.Option("--tasks", metavar="DIR", help="Folder of task files (*.jsonl); default: the project's."),
    ] = None,
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> None:
    """Show which evaluation examples a checkpoint had read, and when; its scores, split into clean and seen.

    Needs `treering index`.

    Example: `treering contamination 0123`
    """
    from treering.audit.documents.contamination import find_contamination
    from treering.runlog.find import named_checkpoint

    here = project()
    with progress_bars() as progress:
        found = find_contamination(named_checkpoint(here.runs, checkpoint), here, tasks, progress)
    if json:
        print_json(found.to_json())
        _end(found.shortfalls)
        return
    console.print(f"run {found.run}, step {found.step:,}", "")
    print_table(
        ("task", "examples", "with an n-gram", "in corpora", "seen"),
        [
            [each.task, f"{each.examples:,}", f"{each.checkable:,}", f"{each.in_corpora:,}", f"{each.seen:,}"]
            for each in found.tasks
        ],
        numbers=("examples", "with an n-gram", "in corpora", "seen"),
    )
    rows = [
        [each.task, score.shots, score.metric, _mean(score.clean, score.num_clean), _mean(score.seen, score.num_seen)]
        for each in found.tasks
        for score in each.scores
    ]
    if rows:
        console.print()
        print_table(("task", "shots", "metric", "clean", "seen"), rows, numbers=("shots", "clean", "seen"))
    if found.examples:
        console.print()
        print_table(
            ("example", "n-grams", "exposures", "steps", "documents"),
            [
                [
                    f"{each.task}:{each.id}",
                    f"{each.ngrams:,}",
                    f"{each.exposures:,}",
                    f"{each.first_step:,} to {each.last_step:,}" if each.seen else "not read",
                    ", ".join(each.documents),
                ]
                for each in found.examples[:limit]
            ],
            numbers=("n-grams", "exposures"),
        )
        if len(found.examples) > limit:
            console.print(f"{len(found.examples) - limit:,} more examples; --limit shows more of them")
    _print_unanswered(found.unanswered)
    _end(found.shortfalls)


def diff(a: NamedCheckpoint, b: NamedCheckpoint, json: JsonOption = False) -> None:
    """Show what two checkpoints read differently: effective blends, samples of only one, the first step that differs.

    Example: `treering diff 430e51 c6afcc`
    """
    from treering.audit.documents.difference import compare_checkpoints
    from treering.runlog.find import named_checkpoint

    here = project()
    with progress_bars() as progress:
        found = compare_checkpoints(named_checkpoint(here.runs, a), named_checkpoint(here.runs, b), here, progress)
    if json:
        print_json(found.to_json())
        _end(found.shortfalls)
        return
    for name, side in (("A", found.a), ("B", found.b)):
        console.print(
            f"{name}  run {side.run}, step {side.step:,}, {side.consumed_samples:,} samples: {side.checkpoint}"
        )
    console.print(
        "",
        f"{'same data' if found.same_data else f'first difference: step {found.first_step:,}'}, {found.reason}",
        "",
    )
    print_joins(found.joins)
    print_table(
        ("corpus", "share A", "share B", "only A", "only B", "both", "documents only A", "only B "),
        [
            [
                each.corpus,
                f"{each.share_a:.4f}",
                f"{each.share_b:.4f}",
                f"{each.only_a:,}",
                f"{each.only_b:,}",
                f"{each.both:,}",
                _count(each.documents_only_a),
                _count(each.documents_only_b),
            ]
            for each in found.corpora
        ],
        numbers=("share A", "share B", "only A", "only B", "both", "documents only A", "only B "),
    )
    _print_unanswered(found.missing)
    _end(found.shortfalls)


def spikes(
    run: Annotated[str, typer.Argument(help="Any unique prefix of a run's id, or its folder.")],
    step: Annotated[int | None, typer.Argument(min=1, help="A step; without it the alarms are listed.")] = None,
    before: BeforeOption = 5,
    json: JsonOption = False,
) -> None:
    """List the alarms of a run (spikes and the other rules of health), or show what was read before a step.

    With a step: the samples of the steps before it, and where else each was read.

    Example: `treering spikes 0123`, then `treering spikes 0123 1187`
    """
    from treering.audit.documents.spike import rings_left, spike_data
    from treering.metrics.run_summary import alarms_in
    from treering.runlog.find import find_run

    here = project()
    directory = find_run(here.runs, run)
    if step is None:
        rings, shortfalls = rings_left(directory)
        for shortfall in shortfalls:
            say(f"missing: {shortfall.text}")
        found = alarms_in(directory, rings)
        if json:
            print_json([alarm.to_dict() for alarm in found])
        else:
            print_alarms([alarm.to_dict() for alarm in found])
        _end(shortfalls)
        return
    data = spike_data(directory, step, here, before)
    if json:
        print_json(data.to_json())
        _end(data.shortfalls)
        return
    print_shortfalls(data.shortfalls, missing=True)
    for each in data.steps:
        attempt = "no attempt on record" if each.attempt is None else f"attempt {each.attempt}"
        numbers = "no ring is left"
        if each.loss is not None and each.grad_norm is not None:
            numbers = f"loss {each.loss:.4f}, gradient norm {each.grad_norm:.3f}"
        console.heading(f"step {each.step:,}, {attempt}: {numbers}")
        print_table(
            ("sample", "corpus", "epoch", "documents", "also read by step"),
            [
                [
                    f"{sample.sample:,}",
                    sample.corpus,
                    str(sample.epoch),
                    ", ".join(sample.documents),
                    ", ".join(
                        f"{reading.step:,}" + ("" if reading.run == data.run else f" of {short(reading.run, 8)}")
                        for reading in sample.elsewhere
                    ),
                ]
                for sample in each.samples
            ],
            numbers=("sample", "epoch"),
        )
    _end(data.shortfalls)


def _print_documents(documents: "Iterable[TracedDocument]", total: int) -> None:
    shown = 0
    for each in documents:
        shown += 1
        _print_document(each)
    if shown < total:
        console.print(f"{total - shown:,} more documents; --limit shows more of them")
    console.print()


def _print_document(each: "TracedDocument") -> None:
    console.print(
        f"{each.corpus}:{each.document}  {each.num_tokens:,} tokens  {each.source}  {each.licence}",
        style="bold",
    )
    if not each.exposures:
        console.print("read by no step")
    else:
        print_table(
            ("run", "attempt", "step", "sample", "in batch", "replica", "micro-batch", "epoch", "tokens"),
            [
                [
                    short(found.run, 8),
                    _count(found.attempt),
                    f"{found.step:,}",
                    f"{found.sample:,}",
                    f"{found.position:,}",
                    _count(found.replica),
                    _count(found.micro_batch),
                    str(found.epoch),
                    f"{found.start:,} to {found.end:,}",
                ]
                for found in each.exposures
            ],
            numbers=("attempt", "step", "sample", "in batch", "replica", "micro-batch", "epoch"),
        )


def _print_checkpoints(checkpoints: "Iterable[CheckpointExposure]") -> None:
    rows = [
        [
            short(each.run, 8),
            f"{each.step:,}" + (" superseded" if each.superseded else ""),
            "clean" if each.clean else "seen",
            f"{each.documents:,}",
            f"{each.exposures:,}",
            "" if each.first_step is None else f"{each.first_step:,} to {each.last_step:,}",
            f"{each.off_path:,}" if each.off_path else "",
        ]
        for each in checkpoints
    ]
    if not rows:
        console.print("no checkpoint in any run")
        return
    print_table(
        ("run", "checkpoint", "", "documents", "exposures", "steps", "off its path"),
        rows,
        numbers=("checkpoint", "documents", "exposures", "off its path"),
    )


def _end(shortfalls: "Sequence[Shortfall]") -> None:
    """Ends a command that has answered: with exit code 3 where evidence was missing for a part of it."""
    from treering.errors import EvidenceError

    if shortfalls:
        raise typer.Exit(EvidenceError.exit_code)


def _print_unanswered(texts: Iterable[str]) -> None:
    for text in texts:
        console.print(f"not looked into: {text}")


def _mean(value: float | None, count: int) -> str:
    return f"none of {count}" if value is None else f"{value:.3f} of {count:,}"


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
