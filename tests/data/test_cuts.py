"""Decontamination by cutting: what goes, what is left, and that every fragment leads to its document."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treering.config.canonical import digest_bytes
from treering.config.corpora import CurationConfig, DecontaminationConfig, HeldoutConfig
from treering.data.curate.checks import Checks
from treering.data.curate.cuts import CutDocument, cut
from treering.data.curate.decontaminate import task_ngrams
from treering.data.curate.engines import PoolEngine, ProcessEngine
from treering.data.curate.heldout import TwinIndex
from treering.data.curate.pipeline import curate
from treering.data.fragments import document_id, fragment_id
from treering.data.words import shingles, word_hashes
from treering.errors import UserError

LEAK = " ".join(f"leak{number}" for number in range(13))


def checks_of(folder: Path, *texts: str) -> Checks:
    path = folder / "quiz.jsonl"
    path.write_text("".join(json.dumps({"id": f"q{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return Checks(TwinIndex([]), [], task_ngrams([path], 13), 5, 0.5)


def spans(document: CutDocument | None) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    assert document is not None
    return [(each.start, each.end) for each in document.removed], [
        (each.start, each.end) for each in document.fragments
    ]


def filler(characters: int) -> str:
    return ("abc " * characters)[: characters - 1] + " "


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> Checks:
    return checks_of(tmp_path_factory.mktemp("quiz"), LEAK, " ".join(f"other{number}" for number in range(20)))


def test_200_characters_go_on_each_side_and_no_word_is_halved(quiz: Checks) -> None:
    text = filler(1000) + LEAK.upper() + "! " + filler(1000)
    at = 1000 + len(LEAK)
    removed, left = spans(found := cut(text, quiz))
    assert removed == [(799, at + 202)]  # the blank before character 800; "abc " ends 2 characters after 200
    assert left == [(0, 799), (at + 202, len(text))]
    assert found is not None
    assert found.removed[0].items == ["quiz: q0"]
    assert found.removed[0].digest == digest_bytes(text[799 : at + 202].encode())
    assert found.dropped_by is None
    inside = "x" * 150 + "yz" * 150 + " " + LEAK
    assert spans(cut(inside, quiz)) == ([(0, len(inside))], [])


@pytest.mark.parametrize(("before", "start"), [(1000, 800), (400, 200), (399, 0)])
def test_without_words_beside_it_the_cut_is_exact(quiz: Checks, before: int, start: int) -> None:
    end = before + len(LEAK) + 200
    removed, left = spans(cut("." * before + LEAK + "." * 400, quiz))
    assert removed == [(start, end)]
    assert left == [*([(0, start)] if start else []), (end, end + 200)]


def test_what_is_left_under_200_characters_goes_too(quiz: Checks) -> None:
    for before, kept in ((404, True), (400, False)):  # without the blank before the cut 203 and 199 are left
        text = filler(before) + LEAK + " " + filler(1000)
        _, left = spans(cut(text, quiz))
        assert [start for start, _ in left] == [*([0] if kept else []), before + len(LEAK) + 201]
    found = cut(LEAK, quiz)
    assert found is not None
    assert (found.dropped_by, found.fragments, found.removed[0].end) == ("nothing_left", (), len(LEAK))


def test_cuts_that_touch_are_one_with_the_items_of_both(quiz: Checks) -> None:
    other = " ".join(f"other{number}" for number in range(3, 19))
    text = filler(500) + LEAK + " " + filler(550) + other + " " + filler(500)
    found = cut(text, quiz)
    assert found is not None
    assert [each.items for each in found.removed] == [["quiz: q0", "quiz: q1"]]
    assert len(found.fragments) == 2


@pytest.mark.parametrize(("matches", "rule"), [(9, None), (10, "max_fragments")])
def test_a_document_in_more_than_10_fragments_is_dropped(quiz: Checks, matches: int, rule: str | None) -> None:
    found = cut((filler(700) + LEAK + " ") * matches + filler(700), quiz)
    assert found is not None
    assert (len(found.fragments), found.dropped_by) == (matches + 1, rule)


def test_letters_that_grow_in_lower_case_move_no_cut(quiz: Checks) -> None:
    plain = spans(cut(filler(1000) + LEAK + " " + filler(1000), quiz))
    assert spans(cut("İ" + filler(1000)[1:] + LEAK + " " + filler(999) + "İ", quiz)) == plain


def test_a_fragment_that_is_like_a_held_out_document_goes_too(quiz: Checks, prose: Callable[[int], str]) -> None:
    held, other = prose(1), prose(2) + prose(3)
    twins = replace(quiz, twins=TwinIndex([(0, shingles(held, 5))]), twin_names=["own:held"])
    text = f"{held}\n{LEAK} {other}"
    assert twins.drop(text) == ("decontaminate", "quiz", None)
    plain, found = cut(text, quiz), cut(text, twins)
    assert plain is not None
    assert found is not None
    assert len(plain.fragments) == 2
    assert found.fragments == plain.fragments[1:]
    assert [(each.start, each.items) for each in found.removed] == [(0, ["heldout: own:held", "quiz: q0"])]


@given(st.lists(st.sampled_from([LEAK, filler(60), filler(300), "İ wörd. ", "\n\n"]), max_size=12))
def test_fragments_and_cuts_are_the_document_and_no_fragment_matches(quiz: Checks, parts: list[str]) -> None:
    text = " ".join(parts)
    found = cut(text, quiz)
    assert (found is None) == (quiz.ngrams.contaminated_by(word_hashes(text)) is None)
    if found is not None:
        removed, left = spans(found)
        whole = sorted(removed + left)
        assert (whole[0][0], whole[-1][1]) == (0, len(text))
        assert all(a[1] == b[0] for a, b in pairwise(whole))
        for start, end in left:
            assert end - start >= 200
            assert quiz.ngrams.contaminated_by(word_hashes(text[start:end])) is None


def test_the_id_of_a_fragment_leads_to_its_document() -> None:
    assert fragment_id("a:b#1", 200, 1530) == "a:b#1#char=200,1530"
    assert document_id("a:b#1#char=200,1530") == "a:b#1"
    assert document_id("a:b#1") == "a:b#1"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_a_cut_corpus(tiny: Any) -> None:
    """Documents of one sentence from a task in the middle; a text in 11 documents is common and stays."""
    common = " ".join(f"common{number}" for number in range(13)) + "."
    for row in tiny.rows[:11]:
        row["text"] += " " + common
    leaked = {f"doc-{seed}": f"leak {seed} " + LEAK for seed in (12, 13, 14)}
    for row in tiny.rows:
        if row["id"] in leaked:
            middle = len(row["text"]) // 2
            row["text"] = f"{row['text'][:middle]} {leaked[row['id']]} {row['text'][middle:]}"
    full = tiny.rows[15]["text"]
    tiny.rows[15]["text"] = " ".join(f"{full[at : at + 350]} {LEAK}" for at in range(0, len(full), 350))
    whole = {row["id"]: row["text"] for row in tiny.rows}
    items = [{"id": "a", "text": LEAK}, {"text": common}]
    (tiny.project.root / "quiz.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    config = CurationConfig(
        num_processes=1,
        heldout=HeldoutConfig(fraction=0.02),
        decontamination=DecontaminationConfig(rule="cut", tasks=("quiz.jsonl",)),
    )
    said: list[str] = []
    summary = curate(tiny.corpora(), config, tiny.project, said.append, engine=ProcessEngine(), shard_bytes=1 << 40)
    expected = tree(tiny.project.curated)

    rows = {row["id"]: row for row in pq.read_table(tiny.project.curated / "decisions" / "own.parquet").to_pylist()}
    trained = [json.loads(line) for line in (tiny.project.curated / "train" / "own.jsonl").read_text().splitlines()]
    texts = {row["id"]: row["text"] for row in trained}
    cut_ones = {name: row for name, row in rows.items() if row["removed"] and row["kept"]}
    assert cut_ones.keys() == leaked.keys() - {name for name, row in rows.items() if row["split"] == "heldout"}
    assert len(cut_ones) >= 2
    for name, row in cut_ones.items():
        (removed,) = row["removed"]
        assert removed["items"] == ["quiz: a"]
        assert removed["digest"] == digest_bytes(whole[name][removed["start"] : removed["end"]].encode())
        ids = [f"{name}#char=0,{removed['start']}", f"{name}#char={removed['end']},{row['characters']}"]
        assert [each for each in texts if document_id(each) == name and each != name] != []
        assert {each for each in texts if document_id(each) == name} == set(ids)
        assert texts[ids[0]] + whole[name][removed["start"] : removed["end"]] + texts[ids[1]] == whole[name]
    dropped = rows["doc-15"]
    assert (dropped["step"], dropped["rule"], len(dropped["removed"])) == ("decontaminate", "nothing_left", 1)
    assert not any("leak7" in text for text in texts.values())
    assert sum("common7" in text for text in texts.values()) == sum(
        rows[f"doc-{number}"]["split"] == "train" for number in range(11)
    )
    assert [line for line in said if "ignored" in line] == [
        "decontaminate    1 n-grams of tasks ignored: more than 10 documents hold each"
    ]
    entry = summary["corpora"]["own"]
    assert (entry["cut"]["documents"], entry["cut"]["fragments"]) == (len(cut_ones), 2 * len(cut_ones))
    assert len(trained) == entry["documents"]["train"] + len(cut_ones)
    last = json.loads((tiny.project.curated / "provenance" / "own.json").read_text())[-2]
    assert (last["parameters"]["rule"], last["parameters"]["ignored"], summary["ignored_ngrams"]) == ("cut", 1, 1)
    assert last["parameters"]["cut"] == entry["cut"]

    curate(tiny.corpora(), config, tiny.project, said.append, engine=PoolEngine(2), shard_bytes=3000)
    assert tree(tiny.project.curated) == expected


@pytest.mark.slow
def test_an_id_like_a_fragments_is_refused(tiny: Any) -> None:
    tiny.rows[30]["id"] = "doc-3#char=0,300"
    corpora = tiny.corpora()
    config = CurationConfig(num_processes=1, decontamination=DecontaminationConfig(rule="cut"))
    expected = r"own\.jsonl, line 31: found id 'doc-3#char=0,300', expected an id that does not end like a fragment's"
    with pytest.raises(UserError, match=expected):
        curate(corpora, config, tiny.project, lambda _: None)
