"""A query over the run folders on this machine, of `treering runs` and the dashboard: no database is asked."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treering.errors import EvidenceError
from treering.runlog.directory import RunDirectory
from treering.runlog.journal import notes_and_tags
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.store.ledger.search.fields import FOLDER_FIELDS
from treering.store.ledger.search.query import WORD, Term, fold, parse, pattern

AnyRun = RunDirectory | RecordedRunDirectory


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query asks of one run.

    Attributes:
        id: of the run.
        experiment: its name.
        state: as in the list of runs.
        numbers: `step`, `tokens` and `loss` of the newest step; None where it is not known.
        trainer: `treering`, or `recorded` for other trainers.
        tags: of the run.
        notes: their texts.
        config: values by dotted name; empty where the config cannot be read.
    """

    id: str
    experiment: str
    state: str
    numbers: Mapping[str, float | None]
    trainer: str
    tags: Sequence[str]
    notes: Sequence[str]
    config: Mapping[str, Any]

    @classmethod
    def of(cls, run: AnyRun, experiment: str, state: str, numbers: Mapping[str, float | None]) -> "Asked":
        """Reads what a list of runs does not have; what is damaged counts as empty, since the list names the damage."""
        try:
            noted, tags = notes_and_tags(each.entry for each in run.journal.lines())
            notes = [each.text for each in noted]
        except EvidenceError:
            notes, tags = [], []
        try:
            config = _flat(_config(run))
        except EvidenceError:
            config = {}
        trainer = "treering" if isinstance(run, RunDirectory) else "recorded"
        return cls(run.path.name, experiment, state, numbers, trainer, tags, notes, config)


def folder_query(query: str) -> tuple[Term, ...]:
    """The terms of a query about run folders.

    Raises:
        UserError: it is not a query; the text points at the column and says what was expected there.
    """
    return parse(query, FOLDER_FIELDS, "runs")


def fits(asked: Asked, terms: Sequence[Term]) -> bool:
    """Whether all terms hold of a run."""
    return all(_holds(asked, term) != term.negated for term in terms)


def unknown_names(terms: Sequence[Term], runs: Sequence[Asked]) -> list[str]:
    """A line for each config value that a query names and no run has, with the nearest name that one has."""
    known = {name for run in runs for name in run.config}
    wanted = {_config_name(term): term for term in terms if term.field in FOLDER_FIELDS and _is_config(term)}
    return [
        f"query, column {term.column}: no run has the config value {name}{_nearest(name, known)}"
        for name, term in wanted.items()
        if known and name not in known
    ]


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else "; `treering show RUN --full` lists the values of a run"


def _config(run: AnyRun) -> dict[str, Any]:
    if isinstance(run, RecordedRunDirectory):
        return dict(run.record.config)
    values = run.resolved.model_dump(mode="json")
    return {**values["attempt"], **values["recipe"], "blend": values["blend"]}


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(_flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value})
    return flat


def _is_config(term: Term) -> bool:
    return FOLDER_FIELDS[term.field].kind == "value"


def _config_name(term: Term) -> str:
    return term.part if term.field == "config" else ".".join(filter(None, (term.field, term.part)))


def _holds(asked: Asked, term: Term) -> bool:
    if term.field == WORD:
        names = (asked.id, asked.experiment, *asked.tags, *asked.notes)
        return _any(names, term, inside=True)
    if _is_config(term):
        value = asked.config.get(_config_name(term))
        return any(_value_fits(each, term) for each in (value if isinstance(value, list) else [value]))
    if term.field in asked.numbers:
        number = asked.numbers[term.field]
        return number is not None and _compares(number, term)
    if term.field == "run":
        return any(pattern(f"{each}*").fullmatch(fold(asked.id)) is not None for each in term.values)
    texts: dict[str, Sequence[str]] = {
        "experiment": (asked.experiment,),
        "state": (asked.state,),
        "trainer": (asked.trainer,),
        "tag": _tags(asked.tags, term.part),
        "note": asked.notes,
    }
    return _any(texts[term.field], term, inside=term.field == "note")


def _tags(tags: Sequence[str], part: str) -> Sequence[str]:
    """The tags, or the values of those with a key."""
    if not part:
        return tags
    key = f"{fold(part)}="
    return [tag[len(key) :] for tag in tags if fold(tag).startswith(key)]


def _any(texts: Sequence[str], term: Term, *, inside: bool = False) -> bool:
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
