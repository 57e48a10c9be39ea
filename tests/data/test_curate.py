import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from treering.config.corpora import CorpusConfig, FilterRules
from treering.data.curate.pipeline import curate
from treering.data.words import jaccard, shingles
from treering.errors import UserError

pytestmark = pytest.mark.slow


def quiet(_: str) -> None:
    pass


def decisions(tiny: Any, name: str) -> dict[str, dict[str, Any]]:
    rows = pq.read_table(tiny.project.curated / "decisions" / f"{name}.parquet").to_pylist()
    return {row["id"]: row for row in rows}


def documents(tiny: Any, split: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tiny.project.curated / split / f"{name}.jsonl").read_text().splitlines()]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def page(tiny: Any, operation: str) -> str:
    return str(tiny.pages[operation].removeprefix("<p>").split("</p>")[0])


def test_every_document_has_its_decision(tiny: Any) -> None:
    tiny.rows += [
        {"id": "short", "text": "Too short."},
        {"id": "empty", "text": " "},
        {"id": "again", "text": tiny.rows[3]["text"]},
        {"id": "almost", "text": tiny.rows[4]["text"] + " And so on."},
    ]
    tiny.pages["Copied"] = f"<p>{tiny.rows[5]['text']}</p>"
    summary = curate(tiny.corpora(), tiny.config, tiny.project, quiet)

    own, pages = decisions(tiny, "own"), decisions(tiny, "pages")
    assert (len(own), len(pages)) == (44, 31)
    verdict = {key: (own[key]["step"], own[key]["rule"], own[key]["near_duplicate_of"]) for key in own}
    assert verdict["short"] == ("filter", "min_characters", None)
    assert verdict["empty"] == ("extract", "empty", None)
    assert verdict["again"] == ("dedup", "exact", "own:doc-3")
    assert verdict["almost"] == ("dedup", "near", "own:doc-4")
    copied = pages["tiny/2020-01-01/operations/Copied"]
    assert (copied["step"], copied["near_duplicate_of"], copied["cluster"]) == ("dedup", "own:doc-5", "own:doc-5")
    assert copied["source"] == "pkg:pypi/tiny-docs@1.0#botocore/data/tiny/2020-01-01/service-2.json.gz"
    assert copied["offset"] == 30

    for name, rows in (("own", own), ("pages", pages)):
        for row in rows.values():
            assert row["kept"] == (row["step"] is None) == (row["rule"] is None) == (row["split"] is not None)
        for split in ("train", "heldout"):
            there = {row["id"] for row in documents(tiny, split, name)}
            assert there == {key for key, row in rows.items() if row["split"] == split} != set()
            assert summary["corpora"][name]["documents"][split] == len(there)
    assert summary["corpora"]["own"]["dropped"]["dedup"] == {"exact": 1, "near": 1}
    assert summary["total"]["documents"] == 75
    dropped = sum(count for key, count in summary["total"].items() if key.startswith("dropped_by_"))
    assert summary["total"]["train"] + summary["total"]["heldout"] + dropped == 75


def test_processes_never_change_a_byte(tiny: Any) -> None:
    curate(tiny.corpora(), tiny.config, tiny.project, quiet)
    first = tree(tiny.project.curated)
    curate(tiny.corpora(), tiny.config.model_copy(update={"num_processes": 2}), tiny.project, quiet)
    assert tree(tiny.project.curated) == first
    assert "summary.json" in first
    assert not (tiny.project.root / ".treering" / "curate").exists()


def test_text_is_extracted_and_shuffled(tiny: Any) -> None:
    curate(tiny.corpora(), tiny.config, tiny.project, quiet)
    pages = documents(tiny, "train", "pages")
    assert {row["text"] for row in pages} <= {page(tiny, operation) for operation in tiny.pages}
    offsets = [row["offset"] for row in pages]
    assert offsets != sorted(offsets)
    order = [row["id"] for row in documents(tiny, "train", "own")]
    curate(tiny.corpora(), tiny.config.model_copy(update={"seed": 1}), tiny.project, quiet)
    assert [row["id"] for row in documents(tiny, "train", "own")] != order


def test_no_twin_stands_on_both_sides(tiny: Any) -> None:
    # Half of each document is its neighbour's: too unlike to be dropped as a duplicate, too like to be split.
    parts = [str(row["text"]).split(". ") for row in tiny.rows]
    tiny.rows = [
        {
            "id": f"doc-{i}",
            "text": ". ".join(parts[i][:11] + parts[i ^ 1][11:12] + [f"Number {i} of them ends in this way."]),
        }
        for i in range(40)
    ] + [{"id": f"half-{i}", "text": ". ".join(parts[i][:11] + parts[i + 1][2:5])} for i in range(39)]
    curate(tiny.corpora(), tiny.config, tiny.project, quiet)
    sides = {
        split: [shingles(row["text"], 5) for row in documents(tiny, split, "own")] for split in ("train", "heldout")
    }
    assert max(jaccard(a, b) for a in sides["train"] for b in sides["heldout"]) < tiny.config.heldout.min_jaccard
    assert any(row["step"] in ("dedup", "heldout") for row in decisions(tiny, "own").values())


def test_training_text_holds_no_ngram_of_a_task(tiny: Any) -> None:
    leaked = str(tiny.rows[7]["text"]).split(". ")[4]
    (tiny.project.root / "quiz.jsonl").write_text(json.dumps({"text": leaked}) + "\n")
    config = tiny.config.model_copy(
        update={"decontamination": tiny.config.decontamination.model_copy(update={"tasks": ("quiz.jsonl",)})}
    )
    curate(tiny.corpora(), config, tiny.project, quiet)
    row = decisions(tiny, "own")["doc-7"]
    assert (row["step"], row["rule"]) == ("decontaminate", "quiz") or row["split"] == "heldout"
    assert not any(leaked in document["text"] for document in documents(tiny, "train", "own"))


def test_names_do_not_change_content(tiny: Any) -> None:
    corpora = tiny.corpora()
    curate(corpora, tiny.config, tiny.project, quiet)
    before = (documents(tiny, "train", "own"), (tiny.project.curated / "provenance" / "own.json").read_text())
    (tiny.project.raw / "own").rename(tiny.project.raw / "mine")
    renamed = [corpora[0].model_copy(update={"name": "mine"}), corpora[1]]
    curate(renamed, tiny.config, tiny.project, quiet)
    assert (documents(tiny, "train", "mine"), (tiny.project.curated / "provenance" / "mine.json").read_text()) == before


def test_provenance_counts_add_up(tiny: Any) -> None:
    curate(tiny.corpora(), tiny.config, tiny.project, quiet)
    steps = json.loads((tiny.project.curated / "provenance" / "own.json").read_text())
    assert [step["step"] for step in steps] == ["extract", "filter", "dedup", "heldout", "decontaminate", "shuffle"]
    assert steps[-1]["kept"] == 40 - sum(step["dropped"] for step in steps)
    assert all(step["input"].startswith("sha256:") for step in steps)


def test_an_empty_corpus_is_named_and_leaves_the_old_result(tiny: Any) -> None:
    curate(tiny.corpora(), tiny.config, tiny.project, quiet)
    before = tree(tiny.project.curated)
    tiny.rows = [{"id": "short", "text": "Too short."}]
    expected = (
        r"corpus own: none of 1 documents passes the filter, expected at least one: curation\.prose\.min_characters "
        r"\(\d+\) drops 1\. Change curation\.prose\.min_characters in the experiment's file, or give the corpus `rules`"
    )
    with pytest.raises(UserError, match=expected):
        curate(tiny.corpora(), tiny.config, tiny.project, quiet)
    assert tree(tiny.project.curated) == before


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("Stoplessly wandering.", {"min_characters": 1, "min_words": 0, "min_stop_words": 3},
         r"corpora: own: rules\.min_stop_words \(3\) drops 1\. Change corpora: own: rules\.min_stop_words in the "
         r"experiment's file$"),
        ("Tout le monde parle de la pluie et du beau temps.", {"min_characters": 1, "min_words": 0,
         "min_stop_words": 0, "languages": ("en", "de")}, r"rules\.languages \(en, de\) drops 1"),
        ("", {}, r"corpus own: found no text in 1 documents after extraction as prose, expected at least one"),
    ],
)  # fmt: skip
def test_the_field_that_drops_all_documents_is_named(tiny: Any, text: str, settings: Any, expected: str) -> None:
    tiny.rows = [{"id": "one", "text": text}]
    corpora = tiny.corpora()
    corpora[0] = corpora[0].model_copy(update={"rules": FilterRules(**settings) if settings else None})
    with pytest.raises(UserError, match=expected):
        curate(corpora, tiny.config, tiny.project, quiet)


def test_declared_corpora_are_left_out(tiny: Any) -> None:
    declared = CorpusConfig(name="books", licence="not published", declared_tokens=10)
    summary = curate([*tiny.corpora(), declared], tiny.config, tiny.project, quiet)
    assert sorted(summary["corpora"]) == ["own", "pages"]
    with pytest.raises(UserError, match="all are declared"):
        curate([declared], tiny.config, tiny.project, quiet)
