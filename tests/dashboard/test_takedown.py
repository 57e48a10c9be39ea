"""The Takedown page, held against `takedown`."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dashboard_page import page, table, texts

from treering.audit.documents.selection import Selector
from treering.audit.documents.takedown import takedown
from treering.data.curate.decisions import SCHEMA

LIST = "red:red-3\ngreen:x  # dropped for green-4\ngreen:y\nblue:none\n"


@pytest.fixture
def decided(audited):
    """red-3 and red-9 are near-duplicates that were both kept; x was dropped for green-4, y by a filter."""
    rows = [
        ("red", "red-3", None, None, None, "red:red-3"),
        ("red", "red-9", None, None, None, "red:red-3"),
        ("green", "x", "dedup", "near", "green:green-4", "green:x"),
        ("green", "y", "filter", "too short", None, None),
    ]
    folder = audited.curated / "decisions"
    folder.mkdir(parents=True)
    table = [
        {
            "corpus": name, "id": document, "source": "s", "offset": 0, "licence": "MIT", "characters": 9,
            "kept": step is None, "step": step, "rule": rule, "near_duplicate_of": original, "cluster": cluster,
            "split": "train" if step is None else None,
        }
        for name, document, step, rule, original, cluster in rows
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), folder / "all.parquet")
    return audited


def asked(text, **query):
    app = page("takedown", **query)
    app.text_area[0].set_value(text)
    app.button[0].click().run()
    assert not app.exception
    return app


def number(text):
    return int(text.replace("\u2009", ""))


def assert_answer(app, found):
    for row, each in zip(table(app, "Verdict").to_dict("records"), found.checkpoints, strict=True):
        assert list(row["Verdict"]) == ["✔ clean" if each.clean else "● seen"]
        assert [number(row[name]) for name in ("Step", "Documents", "Exposures")] == [
            each.step,
            each.documents,
            each.exposures,
        ]
        assert row["Off its path"] == (str(each.off_path) if each.off_path else "")
    documents = table(app, "As").to_dict("records")
    assert [(row["As"], row["Entry"], row["Document"], number(row["Exposures"])) for row in documents] == [
        (
            "near-duplicate of" if each.near_duplicate else "named by",
            each.asked,
            f"{each.document.corpus}:{each.document.document}",
            len(each.document.exposures),
        )
        for each in found.documents
    ]


def test_a_pasted_list(decided):
    found = takedown(decided, [Selector.parse(text) for text in ("red:red-3", "green:x", "green:y", "blue:none")])
    app = asked(LIST)
    assert table(app, "Curation").to_numpy().tolist() == [
        ["red:red-3", "1", "1", "1", "kept for train"],
        ["green:x", "0", "1", "1", "dropped by dedup: near"],
        ["green:y", "0", "0", "1", "dropped by filter: too short"],
        ["blue:none", "0", "0", "", "unknown to every available corpus and to curation"],
    ]
    assert_answer(app, found)
    assert {each.document.document for each in found.documents} == {"red-3", "red-9", "green-4"}
    decided = table(app, "Kept instead")
    assert decided[["Raw document", "Decision", "Kept instead", "Found as"]].to_numpy().tolist() == [
        ["red:red-3", "kept for train", "", "named by red:red-3"],
        ["green:x", "dropped by dedup: near", "green:green-4", "named by green:x"],
        ["green:y", "dropped by filter: too short", "", "named by green:y"],
        ["red:red-9", "kept for train", "", "near-duplicate of red:red-3"],
    ]
    assert [number(text) for text in decided["Readings"]] == [each.exposures for each in found.decisions]
    seen = sum(not each.clean for each in found.checkpoints)
    assert seen
    assert f"3 documents of training corpora must go; {seen} of 2 checkpoints read a part" in texts(app)
    assert f"treering takedown /dev/stdin <<'END'\n{LIST.strip()}\nEND" in texts(app)
    exposures = table(app, "In batch")
    assert [int(text) for text in exposures["Step"]] == [each.step for each in found.documents[0].document.exposures]


def test_several_fates_of_one_entry(decided):
    app = asked("licence=MIT\n")
    rows = table(app, "Curation").to_numpy().tolist()
    assert rows == [
        ["licence=MIT", "32", "0", "2", "kept for train"],
        ["", "", "", "1", "dropped by dedup: near"],
        ["", "", "", "1", "dropped by filter: too short"],
    ]
    assert "20 of 32 documents" in texts(app)
    assert_answer(app, takedown(decided, [Selector("licence", "MIT")], limit=20))


def test_an_uploaded_list(decided):
    app = page("takedown", limit="1")
    app.file_uploader[0].upload("gone.txt", LIST.encode())
    app.button[0].click().run()
    found = takedown(decided, [Selector.parse(t) for t in ("red:red-3", "green:x", "green:y", "blue:none")], limit=1)
    assert_answer(app, found)
    assert "1 of 3 documents" in texts(app)
    app.file_uploader[0].upload("gone.txt", b"\xff\xfe")
    app.button[0].click().run()
    assert "gone.txt: found an unreadable file" in texts(app)


@pytest.mark.usefixtures("audited")
def test_without_decisions_it_says_what_was_not_looked_into():
    app = asked("blue:none")
    assert "near-duplicates cannot be told" in texts(app)
    assert "0 documents of training corpora must go; none of 2 checkpoints read a part" in texts(app)
    assert "Exposures" not in " ".join(element.value for element in app.markdown)


def test_damaged_decisions_are_named(decided):
    file = decided.curated / "decisions" / "all.parquet"
    file.write_bytes(b"damaged")
    app = asked("red:red-3")
    assert "The list cannot be looked up." in [error.value for error in app.error]
    assert f"{file}: unreadable" in texts(app)


@pytest.mark.usefixtures("audited")
def test_a_list_that_cannot_be_read_and_none():
    app = asked("red:red-3\nnonsense")
    assert "The list cannot be looked up." in texts(app)
    assert "list line 2: documents: found 'nonsense'" in texts(app)
    assert "list: found no entry" in texts(asked("# nothing"))
    assert "Name what must go" in texts(page("takedown"))


@pytest.mark.usefixtures("audited")
def test_a_long_list_leads_to_a_file():
    app = asked("\n".join(f"blue:blue-{index}" for index in range(150)))
    assert "treering takedown FILE" in [code.value for code in app.code]
