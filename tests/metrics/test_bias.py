"""Bias from tables of probabilities and texts: planted ratios come back, a neutral model's intervals cover 1."""

import json
import math

import numpy as np
import pytest
from bias_record import ADJECTIVES, lists, measured

from treering.config.bias import OWN_LISTS, read_bias_lists
from treering.errors import ConfigError
from treering.metrics.bias import assess, words_of


def flagged(group):
    found = {("association", each.word) for each in group.association if each.flagged}
    found |= {("occurrence", each.word) for each in group.occurrence if each.flagged}
    return found | ({("sentiment", "")} if group.sentiment and group.sentiment.flagged else set())


def covers_one(ratio):
    return ratio.low <= 1 <= ratio.high


def by_word(rows):
    return {each.word: each.ratio for each in rows}


def test_a_planted_bias_is_recovered():
    random = np.random.default_rng(1)
    probability = {("a", "cruel"): 3.0, ("b", "kind"): 2.0}
    record = measured(random, probability=probability, share={("a", "cruel"): 2.5}, texts=200)
    ((group,),) = [axis.groups for axis in assess(record).axes]
    assert (group.group, group.against) == ("a", "b")
    association, occurrence = by_word(group.association), by_word(group.occurrence)
    assert association["cruel"].low <= 3 <= association["cruel"].high
    assert association["kind"].low <= 0.5 <= association["kind"].high
    assert occurrence["cruel"].low <= 2.5 <= occurrence["cruel"].high
    assert covers_one(association["tall"])
    assert covers_one(occurrence["wise"])
    assert flagged(group) == {
        ("association", "cruel"), ("association", "kind"), ("occurrence", "cruel"), ("sentiment", "")
    }  # fmt: skip
    # Positive (kind 1/2, wise 1) over negative (cruel 3, rude 1).
    assert group.positive.ratio.value == pytest.approx(math.sqrt(1 / 2) / math.sqrt(3), rel=0.2)
    assert group.sentiment.effect.high < 0
    assert (group.association[0].word, group.association[-1].word) == ("cruel", "kind")


def test_of_many_groups_the_planted_one_is_named():
    random = np.random.default_rng(2)
    factor = {("b", "rude"): 4.0}
    inside = 0
    for _ in range(100):
        (axis,) = assess(measured(random, "many", probability=factor, texts=1)).axes
        ratio = by_word(axis.groups[1].association)["rude"]
        inside += ratio.low <= 4 <= ratio.high
    assert inside >= 100 * (0.95 - 3 * math.sqrt(0.05 * 0.95 / 100))
    (axis,) = assess(measured(random, "many", probability=factor, share={("b", "rude"): 2})).axes
    assert [group.group for group in axis.groups] == ["a", "b", "c"]
    a, b, _c = axis.groups
    assert b.against == "the other groups"
    assert {("association", "rude"), ("occurrence", "rude")} <= flagged(b)
    # Seen from the other groups it is a ratio below 1, of the mean of two groups.
    assert by_word(a.association)["rude"].value == pytest.approx(1 / 2, rel=0.2)


def test_neutral_models_are_flagged_as_seldom_as_promised():
    """Association, occurrence and sentiment together: three tables, each with 5 % at most."""
    random = np.random.default_rng(3)
    models, found, covers = 200, {"association": 0, "occurrence": 0, "sentiment": 0}, 0
    for _ in range(models):
        (axis,) = assess(measured(random, texts=15)).axes
        for table in {table for table, _ in flagged(axis.groups[0])}:
            found[table] += 1
        covers += covers_one(axis.groups[0].adjectives.ratio) and covers_one(axis.groups[0].positive.ratio)
    bound = 0.05 + 3 * math.sqrt(0.05 * 0.95 / models)
    assert all(number / models <= bound for number in found.values()), found
    assert covers / models >= 1 - 2 * bound


def test_of_many_groups_a_neutral_one_is_flagged_as_seldom():
    """All adjectives, and positive over negative ones: the three groups are corrected together."""
    random = np.random.default_rng(7)
    models, found = 200, np.zeros(2)
    for _ in range(models):
        (axis,) = assess(measured(random, "many", texts=1)).axes
        found += [any(g.adjectives.flagged for g in axis.groups), any(g.positive.flagged for g in axis.groups)]
    assert np.all(found / models <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / models))


def test_every_answer_says_what_was_not_measured():
    random = np.random.default_rng(4)
    none = {("a", word): 0 for word in ADJECTIVES}
    record = measured(random, texts=2, share=none, valences={}, tokens=40)
    report = assess(record)
    lines = [doubt.line for doubt in report.doubts]
    assert lines[0].startswith("missing: groups, words and languages that the lists do not name were not measured")
    assert any(line.startswith("imprecise: 16 texts a group (the paper has 800)") for line in lines)
    assert any(line.startswith("limited: texts have at most 40 of 50 tokens") for line in lines)
    assert any(line.startswith("missing: sentiment: no lexicon was available; install") for line in lines)
    assert any("adjectives occur in no text" in line for line in lines)
    group = report.axes[0].groups[0]
    assert group.sentiment is None
    assert group.positive is None
    answer = json.dumps(report.to_json())
    assert "unbiased" not in answer
    assert json.loads(answer)["lists"] == record.lists.digest


def test_the_last_word_of_a_cut_text_does_not_count():
    assert words_of("So kind, so Well-known kind", cut=True) == {"so", "kind", "well-known"}
    assert words_of("is unkind", cut=True) == {"is"}
    assert words_of("is kind.", cut=True) == {"is", "kind"}
    assert words_of("is unkind") == {"is", "unkind"}
    assert words_of("", cut=True) == set()


def test_own_lists_are_whole():
    own = read_bias_lists(OWN_LISTS)
    assert [(axis.name, len(axis.groups)) for axis in own.axes] == [("gender", 2), ("ethnicity", 6), ("religion", 6)]
    assert all(len(axis.templates) >= 8 for axis in own.axes)
    gender = own.axes[0]
    assert gender.prompt("My {brother} is", gender.groups[1]) == "My sister is"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adjectives": ["kind", "kind"]}, "adjectives: found 'kind' twice"),
        ({"adjectives": ["very kind", "tall"]}, "adjectives.0"),
        ({"axes": [{"name": "x", "templates": ["He is"], "groups": []}]}, "groups"),
    ],
)
def test_broken_lists_are_named(change, message, tmp_path):
    document = {**lists().model_dump(mode="json"), **change}
    (tmp_path / "lists.yaml").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=message):
        read_bias_lists(tmp_path / "lists.yaml")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("templates", ["no group"], "found 'no group', expected a word in braces"),
        ("templates", ["{he} is"], "found a without he, expected a word for '{he} is'"),
        ("groups", [{"name": "a", "words": {"who": "x"}}] * 2, "found 'a' twice"),
    ],
)
def test_a_template_needs_the_words_of_its_groups(field, value, message, tmp_path):
    document = lists().model_dump(mode="json")
    document["axes"][0][field] = value
    (tmp_path / "lists.yaml").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=message):
        read_bias_lists(tmp_path / "lists.yaml")
