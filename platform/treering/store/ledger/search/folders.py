"""A query over the run folders on this machine, of `treering runs` and the dashboard: no database is asked."""

import difflib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from treering.errors import EvidenceError
from treering.metrics.compare import flatten, scores
from treering.metrics.contenders import contender_of
from treering.metrics.lines.line import RunLine
from treering.metrics.lines.settings import settings_of
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.journal import Scored
from treering.store.ledger.search.fields import FOLDER_FIELDS, Kind
from treering.store.ledger.search.query import WORD, Term, fold, label_names, parse, pattern

_LISTED = 8


class FolderFacts:
    """What a line does not say of a run, read from its folder when a term asks for it.

    What is damaged counts as empty, since the line names the damage.

    Args:
        run: the run.
        project: name of its project.
    """

    def __init__(self, run: AnyRun, project: str) -> None:
        self._run = run
        self.project = project

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Values of the config by dotted name."""
        try:
            return settings_of(self._run)
        except EvidenceError:
            return {}

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """What the runs of a group share, see `treering.metrics.contenders`; empty where the config does not hold."""
        try:
            return dict(flatten(contender_of(self._run).content))
        except EvidenceError:
            return {}

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The machine of each attempt."""
        return tuple(each.host for each in self._headers)

    @cached_property
    def started_at(self) -> float | None:
        """When the run began, Unix seconds; None before its first attempt."""
        return self._headers[0].started_at if self._headers else None

    @cached_property
    def scores(self) -> tuple[tuple[tuple[str, ...], float], ...]:
        """The scores of all checkpoints: how a query may name each, and its value."""
        found: list[tuple[tuple[str, ...], float]] = []
        try:
            if isinstance(self._run, RunDirectory):
                for evaluation in self._run.evaluations():
                    found += [(label_names(s.task, s.metric, s.shots), s.value) for s in scores(evaluation)]
                    found.append((label_names("validation", "loss", None), evaluation.validation_loss))
            else:
                reported = [line.entry for line in self._run.journal.lines()]
                found += [
                    (label_names(entry.task, metric, None), value)
                    for entry in reported
                    if isinstance(entry, Scored)
                    for metric, value in entry.metrics.items()
                ]
        except EvidenceError:
            return ()
        return tuple(found)

    @cached_property
    def _headers(self) -> Sequence[Any]:
        try:
            return [attempt.header for attempt in self._run.attempts()]
        except EvidenceError:
            return []


def folder_query(query: str) -> tuple[Term, ...]:
    """The terms of a query about run folders.

    Raises:
        UserError: it is not a query; the text points at the column and says what was expected there.
    """
    return parse(query, FOLDER_FIELDS, "runs")


def fits(line: RunLine, facts: FolderFacts, terms: Sequence[Term]) -> bool:
    """Whether all terms hold of a run."""
    return all(_holds(line, facts, term) != term.negated for term in terms)


def doubts(terms: Sequence[Term], runs: Collection[FolderFacts]) -> list[str]:
    """A line for each config value or score that a query names and no run has, with those that come near."""
    said = []
    for term in terms:
        if term.field == "score":
            known = {name for run in runs for names, _ in run.scores for name in names[:2]}
            if known and not any(_is_named(names, term.part) for run in runs for names, _ in run.scores):
                said.append(f"query, column {term.column}: no run has the score {term.part}; {_some(known)}")
        elif _is_config(term):
            name, known = _config_name(term), {name for run in runs for name in run.settings}
            if known and not any(_values(run.settings, name) for run in runs):
                said.append(f"query, column {term.column}: no run has the config value {name}{_nearest(name, known)}")
    return said


def _some(known: Collection[str]) -> str:
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"there are {', '.join(sorted(known)[:_LISTED])}{more}"


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else "; `treering show RUN --full` lists the values of a run"


def _is_config(term: Term) -> bool:
    return _kind(term) == "value"


def _kind(term: Term) -> Kind:
    return FOLDER_FIELDS[term.field].kind if term.field in FOLDER_FIELDS else "text"


def _config_name(term: Term) -> str:
    return term.part if term.field == "config" else ".".join(filter(None, (term.field, term.part)))


def _values(settings: Mapping[str, Any], name: str) -> list[Any]:
    """The value of a name, or the items of a list of that name."""
    if name in settings:
        return [settings[name]]
    begin = f"{name}."
    return [value for key, value in settings.items() if key.startswith(begin) and key.removeprefix(begin).isdigit()]


def _holds(line: RunLine, facts: FolderFacts, term: Term) -> bool:
    if _is_config(term):
        return any(_value_fits(each, term) for each in _values(facts.settings, _config_name(term)))
    if term.field == "run":
        return any(pattern(f"{each}*").fullmatch(fold(line.id)) is not None for each in term.values)
    if term.field == "score":
        return any(_compares(value, term) for names, value in facts.scores if _is_named(names, term.part))
    if _kind(term) in {"number", "date"}:
        number = _number(line, facts, term.field)
        return number is not None and not math.isnan(number) and _compares(number, term)
    return _any(_texts(line, facts, term), term, inside=term.field in {WORD, "note"})


def _number(line: RunLine, facts: FolderFacts, field: str) -> float | None:
    match field:
        case "step":
            return line.step
        case "tokens":
            return line.consumed_tokens if line.all_ranks else None
        case "loss":
            return line.loss
        case "started":
            return facts.started_at
        case _:
            return line.ended_at


def _texts(line: RunLine, facts: FolderFacts, term: Term) -> Iterable[str]:
    if term.field == "host":
        return facts.hosts
    if term.field == "tag":
        return tag_values(line.tags, term.part)
    notes = [note.text for note in line.notes]
    said: dict[str, Sequence[str]] = {
        "note": notes,
        "trainer": ["recorded" if line.recorded else "treering"],
        "project": [facts.project],
        "experiment": [line.experiment],
        "state": [line.state],
        "attention": [line.level.name],
        WORD: [line.id, line.experiment, *line.tags, *notes],
    }
    return said[term.field]


def _is_named(names: Sequence[str], part: str) -> bool:
    wanted = pattern(part).fullmatch
    return any(wanted(fold(name)) for name in names)


def tag_values(tags: Sequence[str], part: str) -> Sequence[str]:
    """The tags, or the values of those with a key."""
    if not part:
        return tags
    key = f"{fold(part)}="
    return [tag[len(key) :] for tag in tags if fold(tag).startswith(key)]


def _any(texts: Iterable[str], term: Term, *, inside: bool = False) -> bool:
    wanted = [pattern(each, inside=inside) for each in term.values]
    return any(each.fullmatch(fold(text)) for text in texts for each in wanted)


def _value_fits(value: Any, term: Term) -> bool:
    if value is None:
        return False
    if term.operator != ":":
        return isinstance(value, int | float) and not isinstance(value, bool) and _compares(value, term)
    return _any([str(value)], term) or any(_equal(value, each) for each in term.values)


def _equal(value: Any, text: str) -> bool:
    try:
        return not isinstance(value, bool) and float(value) == float(text)
    except (TypeError, ValueError):
        return False


def _compares(value: float, term: Term) -> bool:
    for first, last in term.spans:
        match term.operator:
            case ">":
                found = value > last
            case ">=":
                found = value >= first
            case "<":
                found = value < first
            case "<=":
                found = value <= last
            case _:
                found = first <= value <= last
        if found:
            return True
    return False
