"""Tokenizers of text: trained on curated text, or your own; as they are asked to cut text, and checked."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from treering.config.corpora import TokenizerConfig
from treering.data.corpus.sentencepiece_model import MARK, SentencePieceTokenizer, embedded_model
from treering.data.corpus.token_bytes import LETTERS_OF_TEXT, Spelling
from treering.data.corpus.tokenizer import TextTokenizer, num_entries, parse_tokenizer
from treering.errors import UserError
from treering.files import read_text
from treering.progress import Say

_PROBES = ("word", "Two words of text", "one\nline more", "naïve café", "中文", "x")


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

    Text is nothing but text: special tokens that are spelled out in it are ordinary text, none are put around it, it is
    not cut to a length, and no merge is left out by chance (`dropout`). Only `encode.tokenized` ends a document.

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
    if isinstance(tokenizer.model, models.BPE):
        tokenizer.model.dropout = None
    return tokenizer


def check_own_tokenizer(text: str, path: Path, config: TokenizerConfig, say: Say) -> None:
    """Refuses a tokenizer of your own that does not fit the config, or whose tokens the audit could not spell.

    Args:
        text: as `read_own_tokenizer` gives it.
        path: where it was read.
        config: the section `tokenizer`.
        say: told which bytes of text it loses.

    Raises:
        UserError: it has another size, or a decoder that the audit cannot repeat.
        EvidenceError: it is not a readable `tokenizer.json`.
    """
    tokenizer, decoder = _cutter(text, path), parse_tokenizer(text, path)
    entries, count = num_entries(decoder), decoder.get_vocab_size()
    if entries != config.vocabulary_size:
        gaps = f", {entries - count:,} of them numbers that no token has" if entries > count else ""
        raise UserError(
            f"tokenizer.vocabulary_size: found {config.vocabulary_size}, expected {entries}, the entries of "
            f"{path}{gaps}"
        )
    spelling = Spelling.of(decoder)
    for probe in _PROBES:
        ids = tokenizer.encode(probe).ids
        (spelled,) = spelling.texts(np.array(ids, dtype=np.int64), np.array([len(ids)]))
        if spelled not in (probe, decoded := decoder.decode(ids)):
            raise UserError(
                f"tokenizer.file: {path}: tokens of {probe!r} spell {spelled!r}, but its decoder gives {decoded!r}, "
                "expected the same: the audit spells documents token by token; take a tokenizer without such a decoder"
            )
    if lost := _lost_bytes(decoder):
        say(
            f"tokenizer        {path.name} has no token for {lost} of the {len(LETTERS_OF_TEXT)} bytes of UTF-8, and no"
            " unknown token: characters with one of them lose it without a trace"
        )


def _lost_bytes(tokenizer: Tokenizer) -> int:
    """How many bytes of text a byte-level BPE leaves out: those without an entry, if there is no unknown token."""
    model = tokenizer.model
    byte_level = "ByteLevel" in f"{tokenizer.pre_tokenizer} {tokenizer.normalizer}"
    if not byte_level or not isinstance(model, models.BPE) or model.unk_token is not None:
        return 0
    return sum(tokenizer.token_to_id(letter) is None for letter in LETTERS_OF_TEXT)


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
