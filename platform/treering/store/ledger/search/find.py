"""Answers a query: the checkpoints or runs that fit, and what the ledger could not decide or did not see."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, exists, func, not_, or_, select
from sqlalchemy.orm import aliased

from treering.errors import UserError
from treering.store.ledger.database import Database
from treering.store.ledger.models import (
    CheckpointRow,
    CorpusRow,
    LicenceRow,
    NoteRow,
    PromotionRow,
    ReadRow,
    RunRow,
    ScoreRow,
    SourceRow,
    TagRow,
    UnreadRow,
)
from treering.store.ledger.search.conditions import Condition, Conditions, Judgement
from treering.store.ledger.search.query import Term, fold, label_names, parse, pattern

SORTS: Final = ("updated", "started", "project", "experiment", "step", "tokens", "score.NAME")
"""What an answer can be sorted by; `-` before it puts the largest first."""

_LIVE_S: Final = 300.0
"""A shipper reports at least once a minute while it runs."""


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint that fits a query, or the newest checkpoint of a run that fits.

    Attributes:
        run: the run's columns: id, project, experiment, state and so forth.
        checkpoint: the checkpoint's columns: step, status, digest, tokens and so forth.
        scores: all scores of the checkpoint.
        corpora: what the checkpoint read of each corpus, with the corpus's licences; `licences` is None if unknown.
        tags: the run's tags.
        notes: the run's notes, those of the ledger alone as well.
        promoted: aliases that the checkpoint holds.
    """

    run: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]
    corpora: Sequence[Mapping[str, Any]]
    tags: Sequence[str]
    notes: Sequence[Mapping[str, Any]]
    promoted: Sequence[str]

    def best_score(self, part: str) -> tuple[float, str] | None:
        """The highest of the scores that a part of a query names, and its name; None where there is none.

        Args:
            part: what stands behind `score.`: task, task.metric or task.metric@shots, as a pattern.
        """
        fits = pattern(part).fullmatch
        values = [
            (score["value"], f"{score['task']}.{score['metric']}")
            for score in self.scores
            if score["value"] is not None
            and any(fits(fold(name)) for name in label_names(score["task"], score["metric"], score["shots"]))
        ]
        return max(values, default=None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query found.

    Attributes:
        query: the query.
        each_checkpoint: whether checkpoints were asked about; else runs, each with its newest checkpoint.
        count: how many fit.
        found: those that were asked for, in order.
        undecided: how many more might fit: what they read, or its licences, is not known.
        doubt: what the ledger did not see, in words, each with what helps.
        seen_at: when the ledger heard of any project last, Unix seconds; None if never.
    """

    query: str
    each_checkpoint: bool
    count: int
    found: Sequence[Found]
    undecided: int
    doubt: Sequence[str]
    seen_at: float | None

    def asked_scores(self, sort: str) -> tuple[str, ...]:
        """The scores that the query and a sort name, see `Found.best_score`."""
        parts = [term.part for term in parse(self.query) if term.field == "score"]
        parts += [sort.removeprefix("-").removeprefix("score.")] if "score." in sort else []
        return tuple(dict.fromkeys(parts))

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def search(database: Database, query: str, *, sort: str = "-updated", limit: int | None = None) -> Answer:
    """Finds checkpoints and runs.

    Every term must hold of the same checkpoint. If no term and no sort is about checkpoints, runs are found.

    Args:
        database: the ledger.
        query: see `treering.store.ledger.search.query`.
        sort: one of `SORTS`, with `-` for the largest first.
        limit: most to return; the count is of all.

    Raises:
        UserError: the query or the sort cannot be read.
        StoreError: the database does not answer.
    """
    terms = parse(query)
    by = _sort_field(sort)
    with database.reading() as connection:
        conditions = Conditions(connection)
        judged = [conditions.of(term) for term in terms]
        each = any(term.of_checkpoint for term in terms) or by.startswith(("step", "tokens", "score."))
        shown = _shown(conditions, terms, each=each)
        fits = [shown, *(judgement.holds for judgement in judged)]
        both = RunRow.key == CheckpointRow.run
        fitting = select(CheckpointRow.key).select_from(RunRow).join(CheckpointRow, both).where(*fits)
        count = connection.execute(select(func.count()).select_from(fitting.subquery())).scalar()
        keys = fitting.order_by(*_order(conditions, by, sort)).limit(limit)
        found = _found(connection, conditions, list(connection.execute(keys).scalars()))
        undecided = _undecided(connection, shown, judged) if any(term.may_be_unknown for term in terms) else 0
        doubt = [*conditions.hints, *_doubt(connection, undecided, found)]
        seen_at = connection.execute(select(func.max(SourceRow.seen_at))).scalar()
    return Answer(query, each, count or 0, found, undecided, doubt, seen_at)


def _sort_field(sort: str) -> str:
    """The field of a sort.

    Raises:
        UserError: it is not one that an answer can be sorted by.
    """
    name = sort.removeprefix("-")
    if name not in SORTS[:-1] and not (name.startswith("score.") and len(name) > len("score.")):
        raise UserError(f"--sort: found {sort!r}, expected one of {', '.join(SORTS)}, with - for the largest first")
    return name


def _shown(conditions: Conditions, terms: Iterable[Term], *, each: bool) -> Condition:
    """Which checkpoints are asked about: abandoned ones only by name; of a run the newest one."""
    if any(term.field == "checkpoint" for term in terms):
        return CheckpointRow.key.is_not(None)
    kept = CheckpointRow.status != "abandoned"
    if each:
        return kept
    later = aliased(CheckpointRow)
    key, mine = conditions.exact(later.key), conditions.exact(CheckpointRow.key)
    same_step = and_(later.step == CheckpointRow.step, key > mine)
    newer = exists().where(
        later.run == CheckpointRow.run, later.status != "abandoned", or_(later.step > CheckpointRow.step, same_step)
    )
    return and_(kept, not_(newer))


def _order(conditions: Conditions, by: str, sort: str) -> list[Any]:
    columns: dict[str, Any] = {
        "updated": RunRow.updated_at,
        "started": RunRow.started_at,
        "project": conditions.exact(RunRow.project),
        "experiment": conditions.exact(RunRow.experiment),
        "step": CheckpointRow.step,
        "tokens": CheckpointRow.tokens,
    }
    first = columns[by] if by in columns else conditions.best_score(by.removeprefix("score."))
    ordered = first.desc() if sort.startswith("-") else first.asc()
    return [
        ordered.nulls_last(),
        conditions.exact(RunRow.key),
        CheckpointRow.step.desc(),
        conditions.exact(CheckpointRow.key),
    ]


def _undecided(connection: Connection, shown: Condition, judged: Sequence[Judgement]) -> int:
    """How many might fit, and are not known to."""
    possible = and_(*(each.possible for each in judged))
    known = and_(*(each.holds for each in judged))
    columns = select(func.count()).select_from(RunRow).join(CheckpointRow, RunRow.key == CheckpointRow.run)
    return connection.execute(columns.where(shown, possible, not_(known))).scalar() or 0


def _found(connection: Connection, conditions: Conditions, keys: Sequence[str]) -> list[Found]:
    """Everything about some checkpoints, in the order of their keys."""
    checkpoints = _by(connection, CheckpointRow, CheckpointRow.key, keys, "key")
    runs_of = sorted({str(row["run"]) for rows in checkpoints.values() for row in rows})
    runs = _by(connection, RunRow, RunRow.key, runs_of, "key")
    scores = _by(connection, ScoreRow, ScoreRow.checkpoint, keys, "checkpoint")
    reads = _by(connection, ReadRow, ReadRow.checkpoint, keys, "checkpoint")
    licences = _licences(connection, {str(row["corpus"]) for rows in reads.values() for row in rows})
    notes = _by(connection, NoteRow, NoteRow.run, runs_of, "run")
    tags = _by(connection, TagRow, TagRow.run, runs_of, "run")
    promoted = defaultdict(list)
    held = select(PromotionRow.checkpoint, PromotionRow.alias, PromotionRow.run).join(
        RunRow, RunRow.key == PromotionRow.run
    )
    for digest, alias, run in connection.execute(
        held.where(PromotionRow.run.in_(runs_of), conditions.newest_promotion())
    ):
        promoted[run, digest].append(alias)
    found = []
    for key in keys:
        (checkpoint,) = checkpoints[key]
        (run,) = runs[checkpoint["run"]]
        mine = sorted(notes[run["key"]], key=lambda row: row["at"])
        read = [{**_without(row, "checkpoint"), "licences": licences.get(row["corpus"])} for row in reads[key]]
        found.append(
            Found(
                run=_without(run, "extent", "position", "projection"),
                checkpoint=_without(checkpoint, "run"),
                scores=[_without(row, "checkpoint") for row in scores[key]],
                corpora=read,
                tags=_current(tags[run["key"]]),
                notes=[_without(row, "run", "folded", "key") for row in mine],
                promoted=sorted(promoted[run["key"], checkpoint["digest"]]),
            )
        )
    return found


def _by(connection: Connection, model: Any, column: Any, values: Sequence[str], name: str) -> dict[str, list[Any]]:
    """The rows of a table with some values in a column, by that value, ordered by their keys."""
    found: dict[str, list[Any]] = defaultdict(list)
    table = model.__table__
    for start in range(0, len(values), 1000):
        query = select(table).where(column.in_(values[start : start + 1000]))
        for row in connection.execute(query).mappings():
            found[row[name]].append(dict(row))
    for rows in found.values():
        rows.sort(key=lambda row: tuple(str(row[each.name]) for each in table.primary_key.columns))
    return found


def _licences(connection: Connection, corpora: set[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Documents and tokens by licence, of the corpora that are known."""
    found: dict[str, dict[str, dict[str, int]]] = {
        key: {} for key in connection.execute(select(CorpusRow.key)).scalars() if key in corpora
    }
    columns = select(LicenceRow.corpus, LicenceRow.licence, LicenceRow.documents, LicenceRow.tokens)
    for corpus, licence, documents, tokens in connection.execute(columns.order_by(LicenceRow.tokens.desc())):
        if corpus in found:
            found[corpus][licence] = {"documents": documents, "tokens": tokens}
    return found


def _current(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The tags that were given and not taken away later."""
    newest: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["at"], row["key"])):
        newest[row["tag"]] = row
    return sorted(tag for tag, row in newest.items() if row["given"])


def _doubt(connection: Connection, undecided: int, found: Sequence[Found]) -> list[str]:
    """What the ledger did not see, in words."""
    doubt = []
    if undecided:
        doubt.append(
            f"{undecided:,} more may fit: what they read, or the licences of its documents, is not in the ledger; "
            "`treering ship` where their corpora are adds the licences"
        )
    problems = select(SourceRow.project, SourceRow.host, UnreadRow.name, UnreadRow.problem).join(
        SourceRow, SourceRow.key == UnreadRow.source
    )
    for project, host, name, problem in connection.execute(problems.order_by(SourceRow.key, UnreadRow.name)):
        doubt.append(f"run {name} of project {project} on {host} could not be read: {problem}")
    seen: dict[tuple[str, str], float] = {}
    for project, host, at in connection.execute(select(SourceRow.project, SourceRow.host, SourceRow.seen_at)):
        seen[project, host] = max(at, seen.get((project, host), 0.0))
    silent = {
        (row.run["project"], row.run["host"], row.run["id"])
        for row in found
        if row.run["state"] == "running"
        and time.time() - seen.get((row.run["project"], row.run["host"]), 0.0) > _LIVE_S
    }
    doubt += [
        f"run {run} is said to be running, but nothing was heard from project {project} on {host} for more than "
        f"{_LIVE_S / 60:.0f} minutes; `treering ship` there tells how it is"
        for project, host, run in sorted(silent)
    ]
    return doubt


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
