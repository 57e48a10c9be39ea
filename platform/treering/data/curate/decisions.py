"""Decisions: for each raw document a row with what curation did with it, and why. The audit reads them.

Columns: corpus, id, source, offset, licence (see `data.sources.documents.RawDocument`); characters of the extracted
text; kept; step and rule that dropped it, null for a kept one; near_duplicate_of (`corpus:id` of the document that is
kept instead, or of the held-out twin); cluster (`corpus:id` of the first document of its near-duplicate cluster,
null if an earlier step dropped it); split (`train`, `heldout` or null).
"""

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
STEPS = ("extract", "filter", "dedup", "heldout", "decontaminate")
"""Steps that drop documents, in their order."""
