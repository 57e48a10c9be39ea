"""The terms of a query as SQL.

Texts are compared here and not by the database, whose rules for capitals and alphabets differ: the few different values
of a column are read, and those that fit are asked for. Only notes are searched by the database, in a folded column.

A term about corpora or licences may be undecided: what a checkpoint read is not always known.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Select,
    and_,
    bindparam,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import aliased

from treering.store.ledger.models import (
    AttemptRow,
    CheckpointRow,
    CorpusRow,
    LicenceRow,
    NoteRow,
    PromotionRow,
    ReadRow,
    RunRow,
    ScoreRow,
    TagRow,
)
from treering.store.ledger.search.query import WORD, Term, fold, label_names, pattern

Condition = ColumnElement[bool]
Labels = list[tuple[str, str, int]]

_SHOWN: Final = 8
_ESCAPE: Final = "\\"


@dataclass(frozen=True, slots=True)
class Judgement:
    """When a term holds.

    Attributes:
        holds: whether it is known to hold; never NULL.
        possible: whether it may hold.
    """

    holds: Condition
    possible: Condition

    def negated(self) -> "Judgement":
        """When the term does not hold."""
        return Judgement(not_(self.possible), not_(self.holds))


class Conditions:
    """Makes conditions on a run and a checkpoint of it; reads the values that patterns are compared with.

    Args:
        connection: one view of the ledger.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.hints: list[str] = []
        """Patterns that fit nothing in the ledger, in words."""

    def of(self, term: Term) -> Judgement:
        """When a term holds."""
        makers: dict[str, Callable[[Term], Condition | Judgement]] = {
            WORD: self._word,
            "project": lambda term: self._among(term, RunRow.project),
            "experiment": lambda term: self._among(term, RunRow.experiment),
            "run": lambda term: or_(*(RunRow.id.like(f"{_like(each)}%", escape=_ESCAPE) for each in term.values)),
            "state": lambda term: self._among(term, RunRow.state),
            "trainer": lambda term: self._among(term, RunRow.trainer),
            "host": self._host,
            "tag": self._tag,
            "note": lambda term: self._noted(term.values),
            "started": lambda term: compare(RunRow.started_at, term),
            "updated": lambda term: compare(RunRow.updated_at, term),
            "step": lambda term: compare(CheckpointRow.step, term),
            "tokens": lambda term: and_(CheckpointRow.tokens.is_not(None), compare(CheckpointRow.tokens, term)),
            "checkpoint": lambda term: self._among(term, CheckpointRow.status),
            "corpus": self._corpus,
            "licence": self._licence,
            "score": self._score,
            "promoted": self._promoted,
        }
        found = makers[term.field](term)
        judgement = found if isinstance(found, Judgement) else Judgement(found, found)
        return judgement.negated() if term.negated else judgement

    def labels(self, part: str) -> Labels:
        """The scores that a part of the field `score` names: task, metric, shots."""
        fits = pattern(part).fullmatch
        columns = select(ScoreRow.task, ScoreRow.metric, ScoreRow.shots).distinct()
        return [
            (task, metric, shots)
            for task, metric, shots in self._connection.execute(columns)
            if any(fits(fold(name)) for name in label_names(task, metric, shots))
        ]

    def best_score(self, part: str) -> ColumnElement[Any]:
        """The largest score of a checkpoint that a part names, NULL where it has none."""
        named = tuple_(ScoreRow.task, ScoreRow.metric, ScoreRow.shots).in_(self.labels(part))
        best = select(func.max(ScoreRow.value)).where(ScoreRow.checkpoint == CheckpointRow.key, named)
        return best.scalar_subquery()

    def _word(self, term: Term) -> Condition:
        fits = [pattern(each, inside=True) for each in term.values]
        names = self._fitting(select(RunRow.name).distinct(), lambda text: any(each.fullmatch(text) for each in fits))
        tags = self._fitting(select(TagRow.tag).distinct(), lambda text: any(each.fullmatch(text) for each in fits))
        return or_(_in(RunRow.name, names), self._has_tag(tags), self._noted(term.values))

    def _host(self, term: Term) -> Condition:
        return exists().where(AttemptRow.run == RunRow.key, self._among(term, AttemptRow.host))

    def _tag(self, term: Term) -> Condition:
        values = [f"{term.part}={value}" for value in term.values] if term.part else term.values
        fits = [pattern(each) for each in values]
        found = self._fitting(select(TagRow.tag).distinct(), lambda text: any(each.fullmatch(text) for each in fits))
        self._hint(term, found, select(TagRow.tag).distinct())
        return self._has_tag(found)

    def _has_tag(self, tags: Sequence[str]) -> Condition:
        """Whether one of the tags was given to the run and not taken away later."""
        given, later = aliased(TagRow), aliased(TagRow)
        newer = or_(later.at > given.at, and_(later.at == given.at, self.exact(later.key) > self.exact(given.key)))
        overruled = exists().where(later.run == given.run, later.tag == given.tag, newer)
        return exists().where(given.run == RunRow.key, _in(given.tag, tags), given.given, not_(overruled))

    def _noted(self, values: Iterable[str]) -> Condition:
        return exists().where(
            NoteRow.run == RunRow.key,
            or_(*(NoteRow.folded.like(f"%{_like(each)}%", escape=_ESCAPE) for each in values)),
        )

    def _corpus(self, term: Term) -> Judgement:
        read = exists().where(ReadRow.checkpoint == CheckpointRow.key, self._among(term, ReadRow.name))
        return Judgement(read, or_(read, not_(RunRow.corpora)))

    def _licence(self, term: Term) -> Judgement:
        # By the few corpora that there are: a join would lead a planner to all checkpoints that read one of them.
        under = select(LicenceRow.corpus).where(self._among(term, LicenceRow.licence)).distinct()
        corpora = list(self._connection.execute(under).scalars())
        known = list(self._connection.execute(select(CorpusRow.key)).scalars())
        mine = ReadRow.checkpoint == CheckpointRow.key
        read = exists().where(mine, _in(ReadRow.corpus, corpora))
        unknown = exists().where(mine, not_(_in(ReadRow.corpus, known)))
        return Judgement(read, or_(read, not_(RunRow.corpora), unknown))

    def _score(self, term: Term) -> Condition:
        labels = self.labels(term.part)
        if not labels:
            columns = select(ScoreRow.task, ScoreRow.metric).distinct()
            known = sorted({f"{task}.{metric}" for task, metric in self._connection.execute(columns)})
            self.hints.append(f"{term.text}: no such score is in the ledger; {_listed('scores', known)}")
        named = tuple_(ScoreRow.task, ScoreRow.metric, ScoreRow.shots).in_(labels)
        value = and_(ScoreRow.value.is_not(None), compare(ScoreRow.value, term))
        return exists().where(ScoreRow.checkpoint == CheckpointRow.key, named, value)

    def _promoted(self, term: Term) -> Condition:
        held = and_(PromotionRow.run == RunRow.key, PromotionRow.checkpoint == CheckpointRow.digest)
        return exists().where(held, self._among(term, PromotionRow.alias), self.newest_promotion())

    def newest_promotion(self) -> Condition:
        """Whether a promotion of the run in question is the newest of its experiment and alias."""
        later, other = aliased(PromotionRow), aliased(RunRow)
        newer = or_(
            later.at > PromotionRow.at,
            and_(later.at == PromotionRow.at, self.exact(later.key) > self.exact(PromotionRow.key)),
        )
        same = and_(other.project == RunRow.project, other.experiment == RunRow.experiment)
        overruled = select(later.key).join(other, other.key == later.run)
        overruled = overruled.where(same, later.alias == PromotionRow.alias, newer)
        return not_(overruled.correlate(RunRow, PromotionRow).exists())  # it may be two queries deep

    def exact(self, column: Any) -> ColumnElement[str]:
        """A text column in the order of its bytes, in both databases."""
        ordered: ColumnElement[str] = column.collate("C") if self._connection.dialect.name == "postgresql" else column
        return ordered

    def _among(self, term: Term, column: Any) -> Condition:
        """Whether a column has one of the values that fit a term."""
        fits = [pattern(each) for each in term.values]
        values = select(column).distinct()
        found = self._fitting(values, lambda text: any(each.fullmatch(text) for each in fits))
        self._hint(term, found, values)
        return _in(column, found)

    def _fitting(self, values: Select[Any], fits: Callable[[str], bool]) -> list[str]:
        return [text for text in self._connection.execute(values).scalars() if fits(fold(text))]

    def _hint(self, term: Term, found: Sequence[str], values: Select[Any]) -> None:
        if not found:
            known = sorted(set(self._connection.execute(values).scalars()))
            self.hints.append(f"{term.text}: fits nothing in the ledger; {_listed(term.field, known)}")


def compare(column: Any, term: Term) -> Condition:
    """A number or date against the alternatives of a term."""
    compared: dict[str, Callable[[Any, Any], Condition]] = {
        ":": column.between,
        ">": lambda _, high: column > high,
        ">=": lambda low, _: column >= low,
        "<": lambda low, _: column < low,
        "<=": lambda _, high: column <= high,
    }
    # As numbers with a fraction: else PostgreSQL would round 0.5 to a step.
    bounds = [(literal(low, Float(53)), literal(high, Float(53))) for low, high in term.spans]
    return or_(*(compared[term.operator](low, high) for low, high in bounds))


def _in(column: Any, values: Sequence[str]) -> Condition:
    """`column IN values` with the values in the statement: their number has no limit."""
    found: Condition = column.in_(bindparam(None, list(values), expanding=True, literal_execute=True))
    return found if values else false()


def _like(text: str) -> str:
    """A pattern of a query as a pattern of `LIKE` for folded texts."""
    signs = {"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"}
    return "".join(signs.get(sign) or fold(sign) for sign in text)


def _listed(what: str, known: Sequence[str]) -> str:
    if not known:
        return f"it has no {what}"
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"it has {', '.join(known[:_SHOWN])}{more}"
