"""First pass over one corpus, in its own process: read, extract, filter, compute signatures; text goes to the shelf."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from treering.config.corpora import CorpusConfig, DedupConfig, FilterRules
from treering.data.corpus.table import write_rows
from treering.data.curate.extract import extract
from treering.data.curate.filter import failed_rule
from treering.data.curate.minhash import MinHasher
from treering.data.curate.shelf import Signatures, SignatureWriter
from treering.data.sources.documents import Intake
from treering.data.sources.raw import read_corpus
from treering.data.words import shingles
from treering.errors import UserError

RAW_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("offset", pa.int64()),
        ("licence", pa.string()),
        ("characters", pa.int64()),
        ("step", pa.string()),
        ("rule", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Taken:
    """Counts of the first pass.

    Attributes:
        intake: see `treering.data.sources.raw.Intake`.
        dropped: documents by (step, rule).
        digests: by step, the digest of its input: sha256 over the sha256 of every text that entered it, in order.
    """

    intake: dict[str, int | None]
    dropped: dict[tuple[str, str], int]
    digests: dict[str, str]


def take_corpus(corpus: CorpusConfig, rules: FilterRules, dedup: DedupConfig, raw: Path, work: Path) -> Taken:
    """Reads one corpus, writes documents that pass the filter to the shelf, and computes their signatures.

    Writes `<work>/<name>.jsonl` (the shelf), its signatures and `.parquet` (a row for each raw document).

    Raises:
        UserError: a source is missing or broken, or no document passes the filter.
    """
    intake = Intake()
    hasher = MinHasher(dedup.bands, dedup.rows)
    dropped: Counter[tuple[str, str]] = Counter()
    streams = {step: hashlib.sha256() for step in ("extract", "filter", "dedup")}

    signatures = Signatures(work / corpus.name)
    with (work / f"{corpus.name}.jsonl").open("wb") as shelf, SignatureWriter(signatures) as writer:

        def decide() -> Any:
            for number, document in enumerate(read_corpus(corpus, raw / corpus.name, intake)):
                streams["extract"].update(_sha256(document.text))
                text = extract(document.text, corpus.kind)
                step, rule = (None, None) if text else ("extract", "empty")
                if text:
                    digest = _sha256(text)
                    streams["filter"].update(digest)
                    rule = failed_rule(text, rules)
                    step = "filter" if rule else None
                if step is None:
                    streams["dedup"].update(digest)
                    line = json.dumps(
                        {
                            "id": document.id,
                            "text": text,
                            "source": document.source,
                            "offset": document.offset,
                            "licence": document.licence,
                        },
                        ensure_ascii=False,
                    )
                    shelf.write(line.encode("utf-8", "replace") + b"\n")
                    writer.add(shelf.tell(), number, digest, hasher.bands(shingles(text, dedup.shingle_words)))
                else:
                    dropped[step, str(rule)] += 1
                yield {
                    "id": document.id,
                    "source": document.source,
                    "offset": document.offset,
                    "licence": document.licence,
                    "characters": len(text),
                    "step": step,
                    "rule": rule,
                }

        count = write_rows(work / f"{corpus.name}.parquet", decide(), RAW_SCHEMA)
    if not len(signatures):
        raise UserError(_nothing_kept(corpus, rules, count, dropped))
    return Taken(
        {
            "files": intake.num_files,
            "files_read": intake.num_files_read,
            "documents": intake.num_documents,
            "bytes": intake.num_bytes,
            "cap_bytes": intake.cap_bytes,
        },
        dict(dropped),
        {step: f"sha256:{state.hexdigest()}" for step, state in streams.items()},
    )


def _nothing_kept(corpus: CorpusConfig, rules: FilterRules, count: int, dropped: Counter[tuple[str, str]]) -> str:
    """Why no document of a corpus is left: the config fields that dropped them, most documents first."""
    if not count:
        return f"corpus {corpus.name}: found no document in its sources, expected at least one; give it files with text"
    by_rule = Counter({rule: number for (step, rule), number in dropped.items() if step == "filter"})
    if not by_rule:
        return (
            f"corpus {corpus.name}: found no text in {count:,} documents after extraction as {corpus.kind}, expected "
            f"at least one with text; check `kind` of the corpus and the documents"
        )
    place = f"curation.{corpus.kind}" if corpus.rules is None else f"corpora: {corpus.name}: rules"
    fields = [
        f"{place}.{rule} ({_setting(getattr(rules, rule))}) drops {number:,}" for rule, number in by_rule.most_common(3)
    ]
    own = ", or give the corpus `rules` of its own" if corpus.rules is None else ""
    return (
        f"corpus {corpus.name}: none of {count:,} documents passes the filter, expected at least one: "
        f"{'; '.join(fields)}. Change {place}.{by_rule.most_common(1)[0][0]} in the experiment's file{own}"
    )


def _setting(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
