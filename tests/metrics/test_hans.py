"""HANS: the parts of a table of answers, and a model that follows a heuristic or its last example."""

import math

import numpy as np
import pytest

from treering.metrics.hans import HEURISTICS, Item, break_down

ITEMS = 1200


def answers(random, yes, shots=4, examples=True, items=ITEMS):
    """Items of all heuristics; `yes(label, examples)` is the probability that the model says yes."""
    found = []
    for number in range(items):
        label = "01"[number % 2]
        shown = tuple(random.choice(["0", "1"], shots)) if examples else ()
        says = random.random() < yes(label, shown)
        heuristic = HEURISTICS[number // 2 % 3]
        found.append(Item(shots, heuristic, label, says == (label == "0"), shown))
    return found


def by_part(found, by):
    return {share.part: share for share in found.shares if share.by == by}


def test_a_model_that_follows_the_heuristic_says_yes_to_both_answers():
    random = np.random.default_rng(1)
    found = break_down(answers(random, lambda *_: 0.95, shots=0))
    (whole,) = by_part(found, "all").values()
    assert whole.items == ITEMS
    assert whole.low <= 0.5 <= whole.high
    assert whole.yes == pytest.approx(0.95, abs=0.03)
    parts = by_part(found, "heuristic and answer")
    assert len(parts) == 6
    for heuristic in HEURISTICS:
        right, wrong = (parts[f"{heuristic}, {answer} is right"] for answer in ("yes", "no"))
        assert right.accuracy == pytest.approx(0.95, abs=0.06)
        assert wrong.accuracy == pytest.approx(0.05, abs=0.06)
        assert right.items == wrong.items == ITEMS / 6
    assert {each.by for each in found.shares} == {"all", "heuristic", "heuristic and answer"}
    assert found.influences == ()


def test_a_model_that_repeats_its_last_example_is_found():
    random = np.random.default_rng(2)
    found = break_down(answers(random, lambda _, shown: 0.9 if shown[-1] == "0" else 0.3))
    last = by_part(found, "last example")
    assert last["yes"].yes == pytest.approx(0.9, abs=0.05)
    assert last["no"].yes == pytest.approx(0.3, abs=0.06)
    influence = next(each for each in found.influences if each.of == "last example yes over no")
    assert influence.ratio.low <= 3 <= influence.ratio.high
    assert influence.flagged
    assert by_part(found, "examples that are yes").keys() == {"less than half", "half", "more than half"}


def test_a_model_that_ignores_its_examples_is_flagged_at_most_5_times_of_100():
    random = np.random.default_rng(3)
    flagged = 0
    for _ in range(100):
        found = break_down(answers(random, lambda _label, _shown: 0.6, items=240))
        assert len(found.influences) == 2
        flagged += any(each.flagged for each in found.influences)
    assert flagged <= 100 * (0.05 + 3 * math.sqrt(0.05 * 0.95 / 100))


def test_every_answer_says_what_limits_it():
    random = np.random.default_rng(4)
    items = [item for item in answers(random, lambda *_: 0.5, examples=False) if item.heuristic == "subsequence"]
    lines = [doubt.line for doubt in break_down(items[:50]).doubts]
    assert lines[0].startswith("missing: no item of lexical_overlap, constituent: the published file is sorted")
    assert "imprecise: " in lines[1]
    assert "parts have fewer than 100 items" in lines[1]
    assert lines[2].startswith("limited: 4-shot: 0.00 examples a prompt on average")
    assert "one order of examples" in lines[3]


def test_shots_are_kept_apart():
    random = np.random.default_rng(5)
    found = break_down([*answers(random, lambda *_: 1.0, shots=0), *answers(random, lambda label, _: label == "0")])
    assert {share.shots: share.accuracy for share in found.shares if share.by == "all"} == {0: 0.5, 4: 1.0}
    whole = next(share for share in found.shares if share.shots == 4)
    assert (whole.high, whole.yes) == (1.0, 0.5)
    assert whole.low == pytest.approx(1 / (1 + 1.95996**2 / ITEMS))
