r"""SentencePiece models: cut by SentencePiece itself, kept in a `tokenizer.json` that other programs can read as well.

The stored file is the model converted for the library `tokenizers`, with the model itself in a further first field. The
conversion spells tokens: it has the same numbers. It cuts nearly all text as the model does, but not all: its Unicode
normalization sees one character at a time, so `nmt_nfkc` turns `\r\n` into other spaces. So text is cut by the model.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MARK: Final = '{"sentencepiece": "'
"""How a stored tokenizer begins that holds a SentencePiece model."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Types of pieces. Source: sentencepiece_model.proto, `ModelProto.SentencePiece.Type`."""
_UNIGRAM, _BPE = 1, 2
"""Source: sentencepiece_model.proto, `TrainerSpec.ModelType`."""
_NEVER: Final = -1e6
"""Score of pieces that text never becomes, such as `</s>`."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A text as tokens.

    Attributes:
        ids: their numbers.
    """

    ids: list[int]


class SentencePieceTokenizer:
    """A SentencePiece model with the interface of a `tokenizers.Tokenizer`, as far as it is used here.

    Args:
        model: content of the `.model` file.

    Raises:
        ValueError: it is not a model.
    """

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 - only needed for such a model

        try:
            self._model = SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(str(error)) from None

    def encode(self, text: str) -> Cut:
        """The tokens of a text; a control piece that is spelled out in it is ordinary text."""
        return Cut(self._model.encode(text))

    def encode_batch_fast(self, texts: Sequence[str]) -> list[Cut]:
        """The tokens of several texts."""
        return [Cut(ids) for ids in self._model.encode(list(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; control pieces have none."""
        return str(self._model.decode(list(ids)))

    def get_vocab_size(self) -> int:
        """Number of pieces."""
        return int(self._model.get_piece_size())

    def token_to_id(self, token: str) -> int | None:
        """The number of a piece, None if the model does not have it."""
        number = int(self._model.piece_to_id(token))
        return number if self._model.id_to_piece(number) == token else None


def embedded_model(text: str) -> bytes:
    """The SentencePiece model in a stored tokenizer.

    Raises:
        ValueError: the field does not hold one.
    """
    return base64.b64decode(str(json.loads(text)["sentencepiece"]), validate=True)


def without_model(text: str) -> str:
    """A stored tokenizer as `tokenizers` reads it: without the model."""
    if not text.startswith(MARK):
        return text
    return json.dumps({key: value for key, value in json.loads(text).items() if key != "sentencepiece"})


def stored(model: bytes) -> str:
    """The text of the `tokenizer.json` that holds a SentencePiece model and its conversion.

    Raises:
        ValueError: it is not a model, or of a type that cannot be converted.
    """
    SentencePieceTokenizer(model)
    document = {"sentencepiece": base64.b64encode(model).decode(), **json.loads(_converted(model).to_str())}
    return json.dumps(document, ensure_ascii=False) + "\n"


def _converted(content: bytes) -> "Tokenizer":
    """Converts a model, by its own settings.

    Source: transformers 5.24, `SpmConverter.build_tokenizer_from_spm_proto`; here the prefix is prepended where
    SentencePiece does it, before spaces are escaped, and a control piece in a text stays text.

    Raises:
        ValueError: the model cuts into characters or words.
    """
    from sentencepiece import sentencepiece_model_pb2  # noqa: PLC0415 - as above
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers  # noqa: PLC0415

    proto: Any = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(content)
    rules, fallback = proto.normalizer_spec, bool(proto.trainer_spec.byte_fallback)
    unknown = next(number for number, piece in enumerate(proto.pieces) if piece.type == _UNKNOWN)
    user_defined = [piece.piece for piece in proto.pieces if piece.type == _USER_DEFINED]
    if proto.trainer_spec.model_type == _BPE:
        ranks = {piece.piece: (-piece.score, n) for n, piece in enumerate(proto.pieces) if piece.type == _NORMAL}
        merges = sorted(
            (*rank, token[:cut], token[cut:])
            for token, rank in ranks.items()
            for cut in range(1, len(token))
            if token[:cut] in ranks and token[cut:] in ranks
        )
        model: models.Model = models.BPE(
            vocab={piece.piece: number for number, piece in enumerate(proto.pieces)},
            merges=[(left, right) for _, _, left, right in merges],
            unk_token=proto.pieces[unknown].piece,
            fuse_unk=True,
            byte_fallback=fallback,
            ignore_merges=bool(user_defined),
        )
    elif proto.trainer_spec.model_type == _UNIGRAM:
        chosen = {_NORMAL, _USER_DEFINED}
        scores = [(piece.piece, piece.score if piece.type in chosen else _NEVER) for piece in proto.pieces]
        model = models.Unigram(scores, unk_id=unknown, byte_fallback=fallback)
    else:
        raise ValueError("its type is neither unigram nor bpe")
    tokenizer = Tokenizer(model)
    steps: list[normalizers.Normalizer] = []
    if rules.precompiled_charsmap:
        steps.append(normalizers.Precompiled(rules.precompiled_charsmap))
    if rules.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if rules.add_dummy_prefix:
        steps.append(normalizers.Prepend(" "))
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    if user_defined:
        pattern = "|".join(re.escape(piece) for piece in sorted(user_defined, key=len, reverse=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            *([decoders.ByteFallback()] if fallback else []),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if rules.add_dummy_prefix else []),
        ]
    )
    control = [piece.piece for piece in proto.pieces if piece.type == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in control])
    return tokenizer
