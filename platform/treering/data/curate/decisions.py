"""Decisions: for each raw document a row with what curation did with it, and why. The audit reads them.

Columns: corpus, id, source, offset, licence (see `data.sources.documents.RawDocument`); characters of the extracted
text; kept; step and rule that dropped it, null for a kept one; near_duplicate_of (`corpus:id` of the document that
deduplication preferred, which a later step may have dropped, or of the held-out twin); cluster (`corpus:id` of the
first document of its near-duplicate cluster, null if an earlier step dropped it); split (`train`, `heldout` or null).

Where decontamination cuts there is a column more, `removed`: what it cut out, as characters [start, end) of the
extracted text, the task items that match there, and the sha256 of the text that is gone. A document that was cut is
kept, in fragments (`treering.data.fragments`): what lies between is all of it. Null where nothing was cut.

Where a quality classifier judges a corpus, the tables of all corpora have two columns more, `quality_score` and
`quality_draw`, null for what was not judged: a document is dropped with a draw of at most 1 - score.
"""

from collections.abc import Container
from dataclasses import dataclass

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("licence", pa.string(), nullable=False),
        pa.field("characters", pa.int64(), nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("step", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("near_duplicate_of", pa.string()),
        pa.field("cluster", pa.string()),
        pa.field("split", pa.string()),
    ]
)
REMOVED = pa.field(
    "removed",
    pa.list_(
        pa.struct(
            [
                pa.field("start", pa.int64(), nullable=False),
                pa.field("end", pa.int64(), nullable=False),
                pa.field("items", pa.list_(pa.string()), nullable=False),
                pa.field("digest", pa.string(), nullable=False),
            ]
        )
    ),
)
QUALITY_FIELDS = (pa.field("quality_score", pa.float64()), pa.field("quality_draw", pa.float64()))
"""Columns that follow where the step quality is on."""

QUALITY = "quality"
STEPS = ("extract", "filter", QUALITY, "dedup", "heldout", "decontaminate")
"""Steps that drop documents, in their order; quality is there only where the config asks for it."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was cut out of a document.

    Attributes:
        start: its first character.
        end: the character behind it.
        items: `task: item` of each task item that has an n-gram there.
        digest: of the text, as UTF-8.
    """

    start: int
    end: int
    items: list[str]
    digest: str


def steps_of(counted: Container[str]) -> tuple[str, ...]:
    """The steps of a curation.

    Args:
        counted: names of the steps that a record of it has counts of.
    """
    return tuple(step for step in STEPS if step != QUALITY or step in counted)
