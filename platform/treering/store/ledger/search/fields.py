"""What a query can ask about: the name of each field, what its value is, and what it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["text", "number", "date", "value"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a query.

    Attributes:
        kind: what its value is; a `value` is a text, and behind > >= < <= a number.
        of: whether it is about a run, or about each checkpoint.
        meaning: what it says, for people.
        part: what a name behind the field and a dot names; empty where there is none.
        needs_part: whether that name must be there.
    """

    kind: Kind
    of: Literal["run", "checkpoint"]
    meaning: str
    part: str = ""
    needs_part: bool = False


FIELDS: Final[Mapping[str, Field]] = {
    "project": Field("text", "run", "name of the project"),
    "experiment": Field("text", "run", "name of the experiment"),
    "run": Field("text", "run", "beginning of the run's id"),
    "state": Field("text", "run", "running, finished, interrupted, failed or broken"),
    "trainer": Field("text", "run", "treering, or recorded for other trainers"),
    "host": Field("text", "run", "machine of one of the run's attempts"),
    "tag": Field("text", "run", "tag of the run; tag.owner:ada is the tag owner=ada", part="the text before ="),
    "note": Field("text", "run", "text in a note of the run"),
    "started": Field("date", "run", "when the run began, UTC: 2026, 2026-11, 2026-11-05 or 2026-11-05T12:30"),
    "updated": Field("date", "run", "when the run's newest step or end was"),
    "step": Field("number", "checkpoint", "the checkpoint's step"),
    "tokens": Field("number", "checkpoint", "tokens read up to it"),
    "checkpoint": Field("text", "checkpoint", "saved, removed, scored, unsaved or abandoned"),
    "corpus": Field("text", "checkpoint", "name of a corpus that it read"),
    "licence": Field("text", "checkpoint", "licence of a document in a corpus that it read"),
    "score": Field(
        "number", "checkpoint", "one of its scores", part="task, task.metric or task.metric@shots", needs_part=True
    ),
    "promoted": Field("text", "checkpoint", "alias that it holds"),
}

ALIASES: Final[Mapping[str, str]] = {"license": "licence"}
"""Other spellings of a field."""

_SECTIONS: Final = ("model", "optimizer", "schedule", "blend", "parallel", "kernels", "checkpoint", "precision", "seed")

_OF_FOLDERS: Final = ("experiment", "run", "project", "trainer", "host", "tag", "note", "started", "updated", "score")

FOLDER_FIELDS: Final[Mapping[str, Field]] = {
    **{name: FIELDS[name] for name in _OF_FOLDERS},
    "state": Field("text", "run", "running, stalled, diverging, finished, interrupted, failed, broken, damaged, empty"),
    "attention": Field("text", "run", "its level of attention, such as alarmed"),
    "step": Field("number", "run", "its newest step"),
    "tokens": Field("number", "run", "tokens that it has read"),
    "loss": Field("number", "run", "training loss of the newest step"),
    "config": Field("value", "run", "a value of the run's config", part="its name", needs_part=True),
    **{name: Field("value", "run", f"a value of the config's {name}", part="its name") for name in _SECTIONS},
}
"""What a query can ask of the run folders on this machine."""

EXAMPLES: Final = {
    "search": "licence:GPL* score.hellaswag>0.7 state:running",
    "runs": "model.num_layers>=24 tag:ablation -state:finished",
}
"""A query of each command."""

ONLY_NOW: Final = frozenset({"stalled", "diverging", "damaged"})
"""States that depend on the moment, or on a reading of the whole folder: the ledger does not keep them."""
