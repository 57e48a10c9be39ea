"""Tokenization by shards: one is a function of some lines of a curated file, and a corpus is its shards, joined.

The result is the same for every size of a shard, every number of workers and every order of completion: a document's
tokens depend on its text alone, and shards are joined in the order of their bytes.

A finished shard is a folder with the files of a corpus (`write.write_part`), named by the digest of all that decides
them: its text, the tokenizer, the width of a token, and the code with the versions of its libraries. An interrupted
stage, started again, does only the shards that have none.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from treering.config.canonical import DIGEST_PREFIX, READ_BYTES
from treering.data.corpus.encode import Encoder, encoder, tokenized
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.write import join_parts, write_part
from treering.data.curate.engines import Engine, until_fault
from treering.data.curate.shards import begin, code_digest, folder_name, keep, read_record
from treering.data.tokenize.curated import read_documents
from treering.errors import UserError
from treering.files import open_regular
from treering.progress import Progress

_FORMAT: Final = 1
_CODE: Final = ("corpus", "tokenize")
_LIBRARIES: Final = ("numpy", "orjson", "pyarrow", "sentencepiece", "tokenizers")
_OTHER_CODE: Final = (
    "a node has another version of Treering or of its libraries; install the same packages on all nodes"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all shards of a stage share.

    Attributes:
        tokenizer: its file.
        digest: of the tokenizer.
        end_of_document: the token after every document.
        width: bytes of a token, 2 or 4.
        store: folder of the finished shards.
        code: `code_version` of the process that runs the stage.
        threads: whether the library uses all cores for a shard.
    """

    tokenizer: Path
    digest: str
    end_of_document: int
    width: int
    store: Path
    code: str
    threads: bool


@dataclass(frozen=True, slots=True)
class Shard:
    """Some lines of a curated file.

    Attributes:
        corpus: name of the corpus.
        path: the file.
        number: place of the shard in the file, from 0.
        begin: its first byte.
        end: the byte behind its last one.
    """

    corpus: str
    path: Path
    number: int
    begin: int
    end: int

    def __str__(self) -> str:
        split = f"{self.path.parent.name}/{self.path.name}"
        return f"corpus {self.corpus}, shard {self.number + 1} of {split} (bytes {self.begin:,} to {self.end:,})"


@dataclass(frozen=True, slots=True)
class Finished:
    """A shard that was done.

    Attributes:
        folder: where its files are.
        error: what ended it before its last document; None without a fault.
        resumed: whether it was done before this run.
    """

    folder: Path
    error: str | None = None
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Joint:
    """A corpus that is to be made of its finished shards.

    Attributes:
        directory: of the corpus.
        parts: folders of the shards, in order.
        about: further fields of the manifest.
    """

    directory: Path
    parts: tuple[Path, ...]
    about: dict[str, Any]


def tokenize_shard(setting: Setting, shard: Shard) -> Finished:
    """Turns the documents of a shard into tokens, unless that was done before; a fault is in the result."""
    if code_version() != setting.code:
        return Finished(setting.store, f"{shard}: {_OTHER_CODE}")
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if setting.threads else "false"
    inputs = {
        "format": _FORMAT,
        "code": setting.code,
        "text": _digest(shard),
        "tokenizer": setting.digest,
        "end_of_document": setting.end_of_document,
        "width": setting.width,
    }
    folder = setting.store / folder_name(inputs)
    if read_record(folder) is not None:
        return Finished(folder, resumed=True)
    scratch = begin(setting.store)
    documents = read_documents(shard.path, shard.begin, shard.end)
    try:
        encode = _encoder(setting.tokenizer, setting.digest)
        write_part(scratch, tokenized(documents, encode, setting.end_of_document), setting.width)
    except UserError as fault:
        shutil.rmtree(scratch)
        return Finished(folder, f"{shard}: {fault}")
    keep(scratch, folder, {"inputs": inputs})
    return Finished(folder)


def do_shards(engine: Engine, setting: Setting, shards: Sequence[Shard], progress: Progress) -> list[Finished]:
    """What all shards left, in order.

    Raises:
        UserError: a document has a fault; of several the first one in order of the documents.
    """
    results = until_fault(
        engine.map(tokenize_shard, setting, shards),
        len(shards),
        lambda _place, result: result.error is not None,
        lambda count: progress("tokenize", count, len(shards)),
    )
    done = [result for result in results if result is not None]
    for each in done:
        if each.error is not None:
            raise UserError(each.error)
    return done


def join_shards(width: int, joint: Joint) -> dict[str, Any]:
    """Makes a corpus of its shards, and returns its manifest."""
    return join_parts(joint.directory, joint.parts, joint.about, width=width)


def _digest(shard: Shard) -> str:
    state, left = hashlib.sha256(), shard.end - shard.begin
    with open_regular(shard.path) as file:
        file.seek(shard.begin)
        while left and (block := file.read(min(left, READ_BYTES))):
            state.update(block)
            left -= len(block)
    return DIGEST_PREFIX + state.hexdigest()


@cache
def code_version() -> str:
    """Digest of the code and of the libraries that decide the tokens of a shard."""
    return code_digest(_CODE, _LIBRARIES)


@lru_cache(maxsize=1)
def _encoder(path: Path, _digest: str) -> Encoder:
    """The encoder of a tokenizer, with the words that it has met in other shards."""
    return encoder(load_tokenizer(path))
