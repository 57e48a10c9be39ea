"""The first pass over one shard: read, extract, filter, compute signatures; text goes to the shelf."""

import gc
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from treering.config.corpora import DedupConfig
from treering.data.corpus.table import write_rows
from treering.data.curate.extract import extract
from treering.data.curate.filter import judge
from treering.data.curate.language import language
from treering.data.curate.minhash import MinHasher
from treering.data.curate.shards import Finished, Shard, begin, finish, finished, folder_name
from treering.data.curate.shelf import SignatureWriter, json_line
from treering.data.fragments import document_id
from treering.data.sources.documents import Intake, RawDocument
from treering.data.sources.pieces import changed
from treering.data.sources.raw import read_shard
from treering.data.words import Hashes, shingle_runs
from treering.errors import TreeringError, UserError
from treering.files import write_durably

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
PRELOADED = ("treering.data.curate.preloaded",)
"""What `engines.PoolEngine` imports before it forks workers for a function of this module."""
HASHED_STEPS = ("extract", "filter", "dedup")
"""Steps whose input is digested."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all shards of a stage share.

    Attributes:
        dedup: shape of the signatures.
        raw: folder of the sources.
        store: folder of the finished shards.
        cut: whether decontamination cuts: then ids that end like a fragment's are refused.
    """

    dedup: DedupConfig
    raw: Path
    store: Path
    cut: bool


def take_shard(setting: Setting, shard: Shard) -> Finished:
    """Reads one shard, puts documents that pass the filter on the shelf, and computes their signatures.

    A shard that was finished before is not read again. A fault in a document or of a source ends the shard there; it is
    in the result, since it is none if the corpus ends before that document.

    Raises:
        TreeringError: the language model is missing or another one.
    """
    if shard.rules.languages:
        language("")  # a fault of the model ends the stage: it is no document's
    inputs = shard.inputs(setting.dedup, cut=setting.cut)
    folder = setting.store / folder_name(inputs)
    found = finished(folder)
    if found is not None:
        return found
    done = Finished(begin(setting.store), 0, 0, 0, {}, {}, {})
    intake, dropped = Intake(), Counter[tuple[str, str]]()
    error: TreeringError | OSError | None = _changed(setting, shard, read=False)
    if error is None:
        with ExitStack() as stack:
            stack.enter_context(_rare_collections())
            try:
                write_rows(done.rows, _rows(setting, shard, done, intake, dropped, stack), RAW_SCHEMA)
            except (TreeringError, OSError) as fault:
                error = fault
        error = _changed(setting, shard, read=error is None) or error
    if intake.objects:
        write_durably(done.objects, json.dumps(intake.objects))
    intake.id_hashes.tofile(done.ids)
    counts = intake.num_documents, intake.num_bytes, intake.num_files_read
    reasons = dict(dropped), dict(intake.skipped), dict(intake.noted)
    return finish(Finished(done.folder, *counts, *reasons, error), inputs, folder)


def _changed(setting: Setting, shard: Shard, *, read: bool) -> UserError | None:
    """The fault of a file that is another than when the shard was cut: its digest would be of other documents."""
    path = changed(setting.raw / shard.corpus.name, shard.pieces, read=read)
    if path is None:
        return None
    return UserError(
        f"corpus {shard.corpus.name}: {setting.raw / shard.corpus.name / path} was changed while `treering curate` "
        "ran, expected a file that stays as it is; when nothing writes to it, run `treering fetch` and then "
        "`treering curate` again"
    )


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Looks for cycles among objects less often: readers of YAML and XML make millions of objects, nearly all without.

    Reference counts free those. With Python's own thresholds the search takes a tenth of the shard's time.
    """
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _rows(  # noqa: PLR0917 - the inner half of `take_shard`
    setting: Setting,
    shard: Shard,
    done: Finished,
    intake: Intake,
    dropped: Counter[tuple[str, str]],
    stack: ExitStack,
) -> Iterator[dict[str, Any]]:
    """A row for each raw document; writes all else on the way.

    Raises:
        UserError: the reader found a fault, or a library failed at a document.
        TreeringError: an object in S3 cannot be brought.
        MemoryError: of the machine.
        OSError: of the machine.
    """
    shelf = stack.enter_context(done.shelf.open("wb"))
    streams = {step: stack.enter_context(done.digests(step).open("wb")) for step in HASHED_STEPS}
    writer = stack.enter_context(SignatureWriter(done.signatures))
    hasher = MinHasher(setting.dedup.bands, setting.dedup.rows)
    directory = setting.raw / shard.corpus.name
    for number, document in enumerate(read_shard(shard.corpus, directory, shard.pieces, shard.cap_bytes, intake)):
        try:
            text, step, rule, bands = _examine(setting, shard, hasher, document, intake.noted)
        except (MemoryError, OSError, TreeringError):  # of the machine: no document's fault
            raise
        except Exception as error:
            intake.give_back(document)
            raise UserError(
                f"{intake.at(document.offset)}: document {document.id!r} cannot be curated ({type(error).__name__}: "
                f"{error}); shard {shard.number + 1} of corpus {shard.corpus.name} ends there. Take the document out, "
                "and report it: no text should do this"
            ) from error
        if setting.cut and document_id(document.id) != document.id:
            intake.give_back(document)
            raise UserError(
                f"{intake.at(document.offset)}: found id {document.id!r}, expected an id that does not end like a "
                "fragment's, since curation.decontamination.rule is cut; change the id, or leave all out: ids are made "
                "then"
            )
        streams["extract"].write(_sha256(document.text))
        digest = _sha256(text)
        if text:
            streams["filter"].write(digest)
        if bands is not None:
            streams["dedup"].write(digest)
            shelf.write(_line(document, text))
            writer.add(shelf.tell(), number, digest, bands)
        else:
            dropped[str(step), str(rule)] += 1
        yield {
            "id": document.id,
            "source": document.source,
            "offset": document.offset,
            "licence": document.licence,
            "characters": len(text),
            "step": step,
            "rule": rule,
        }


def _examine(
    setting: Setting, shard: Shard, hasher: MinHasher, document: RawDocument, noted: Counter[str]
) -> tuple[str, str | None, str | None, Hashes | None]:
    """The text of a document, the step and the rule that drop it, and the signature of one that stays."""
    text = extract(document.text, shard.corpus.kind, shard.corpus.html_extraction, noted)
    if not text:
        return text, "extract", "empty", None
    rule, words = judge(text, shard.rules)
    if rule is not None:
        return text, "filter", rule, None
    return text, None, None, hasher.bands(shingle_runs(words, setting.dedup.shingle_words))


def _line(document: RawDocument, text: str) -> bytes:
    row = {
        "id": document.id,
        "text": text,
        "source": document.source,
        "offset": document.offset,
        "licence": document.licence,
    }
    return json_line(row)


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
