"""Text is cut piece by piece, and the tokens are those that the library gives for the whole text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prose_text import make_text
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from treering.config.corpora import TokenizerConfig
from treering.data.corpus import encode
from treering.data.corpus.encode import PIECES, encoder
from treering.data.corpus.text_tokenizer import load_tokenizer, train_tokenizer

WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)
HARD = ["'s", "'ll", " 're", "\u2019s", "\r\n", "  ", "\n\n", "x9", "é's", "...", *"aZsmt'd \n\t\r09.,-_~@[`{/"]
HARD += [*"\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\u180e\u2028\u3000é中ß\u0410٣²½Ⅷ\u0301\u200b\U0001f600\ufeff"]


def words(text: str) -> list[str]:
    return [word for word, _ in WORDS.pre_tokenize_str(text)]


@example("x's x't x're x've x'm x'll x'd 's't're've'm'll'd x'sd 'S")
@given(st.lists(st.sampled_from(HARD) | st.characters(exclude_categories=["Cs"])).map("".join))
def test_no_word_crosses_the_border_of_a_piece(text: str) -> None:
    pieces = PIECES.findall(text)
    assert "".join(pieces) == text
    assert [word for piece in pieces for word in words(piece)] == words(text)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer([make_text(seed) for seed in range(60)], TokenizerConfig(vocabulary_size=600)).save(str(found))
    return found


class Counted:
    """A tokenizer that counts the texts that it is asked to cut."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode_batch_fast(self, texts: Sequence[str]) -> Any:
        self.count += len(texts)
        return self._tokenizer.encode_batch_fast(texts)


@pytest.mark.parametrize("most_bytes", [1 << 27, 1_000])
def test_each_piece_is_cut_once_until_there_are_too_many(
    path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr(encode, "_MOST_BYTES", most_bytes)
    tokenizer = Counted(load_tokenizer(path))
    texts = [*(make_text(seed) for seed in (1, 2, 3, 1, 2, 3)), "".join(HARD), "", "It says <|endoftext|> here."]
    expected = [each.ids for each in load_tokenizer(path).encode_batch_fast(texts)]
    assert [tokens.tolist() for tokens in encoder(tokenizer)(texts)] == expected
    distinct = len({piece for text in texts for piece in PIECES.findall(text)})
    assert tokenizer.count == distinct if most_bytes > 1_000 else tokenizer.count > distinct


def changed(path: Path, change: str) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    if change == "prefix":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif change == "pattern":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    elif change == "normalizer":
        tokenizer.normalizer = normalizers.NFC()
    elif change == "added":
        tokenizer.add_tokens([AddedToken("two words", special=False)])
    elif change == "dropout":
        tokenizer.model.dropout = 0.5
    else:
        tokenizer.pre_tokenizer = None
    return tokenizer


@pytest.mark.parametrize("change", ["prefix", "pattern", "normalizer", "added", "none"])
def test_a_tokenizer_of_another_kind_cuts_whole_texts(path: Path, tmp_path: Path, change: str) -> None:
    changed(path, change).save(str(tmp_path / "tokenizer.json"))
    texts = ["two words, two words", "e\u0301 a", "a  b"]
    tokenizer = Counted(load_tokenizer(tmp_path / "tokenizer.json"))
    found = [tokens.tolist() for tokens in encoder(tokenizer)(texts)]
    assert found == [tokenizer.encode(text).ids for text in texts]
    assert tokenizer.count == 3
    assert np.concatenate(list(encoder(tokenizer)(texts))).dtype == np.uint32


def test_no_merge_is_left_out_by_chance(path: Path, tmp_path: Path) -> None:
    changed(path, "dropout").save(str(tmp_path / "tokenizer.json"))
    text = make_text(1)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.encode(text).ids == load_tokenizer(path).encode(text).ids
    (tokens,) = encoder(tokenizer)([text])
    assert tokens.tolist() == tokenizer.encode(text).ids
