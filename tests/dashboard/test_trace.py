"""The Trace page, held against `trace_documents` and `trace_text`."""

import shutil

import pytest
from dashboard_page import page, table, texts

from treering.audit.documents.selection import Selector
from treering.audit.documents.text import trace_text
from treering.audit.documents.trace import trace_documents
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.text import Detokenizer
from treering.runlog.find import find_runs


@pytest.fixture
def run(audited):
    return find_runs(audited.runs)[0]


def submit(app):
    """What the visitor set in the form is sent."""
    app.button[0].click().run()
    assert not app.exception


def number(text):
    return int(text.replace("\u2009", ""))


def spread(first, last):
    return "" if first is None else str(first) if first == last else f"{first} to {last}"


def assert_checkpoints(app, checkpoints):
    rows = table(app, "Verdict").to_dict("records")
    for row, each in zip(rows, checkpoints, strict=True):
        assert list(row["Verdict"]) == ["✔ clean" if each.clean else "● seen"]
        assert (row["Run"], number(row["Step"])) == (each.run[:8], each.step)
        assert (number(row["Documents"]), number(row["Exposures"])) == (each.documents, each.exposures)
        assert row["Steps"] == spread(each.first_step, each.last_step)
        assert row["Off its path"] == (str(each.off_path) if each.off_path else "")


def assert_exposures(app, document):
    rows = table(app, "In batch").to_dict("records")
    for row, each in zip(rows, document.exposures, strict=True):
        assert (row["Run"], row["Tokens"]) == (each.run[:8], f"{each.start} to {each.end}")
        names = ("Attempt", "Step", "Sample", "In batch", "Replica", "Micro-batch", "Epoch")
        values = [getattr(each, name.lower().replace("-", "_")) for name in names if name != "In batch"]
        values.insert(3, each.position)
        assert [number(row[name]) for name in names] == values


def seen_off_path(project):
    """A document that attempt 1 read after the checkpoint from which attempt 2 went on."""
    for each in trace_documents(project, [Selector("source", "red*")]).documents:
        if any(exposure.attempt == 1 and exposure.step > 6 for exposure in each.exposures):
            return each
    raise AssertionError("none")


def test_one_document(audited):
    document = seen_off_path(audited)
    name = f"{document.corpus}:{document.document}"
    found = trace_documents(audited, [Selector.parse(name)])
    app = page("trace", document=name)
    assert_checkpoints(app, found.checkpoints)
    assert any(each.off_path for each in found.checkpoints)
    (row,) = table(app, "Licence").to_dict("records")
    steps = [each.step for each in document.exposures]
    assert row == {
        "Document": name,
        "Exposures": str(len(steps)),
        "Steps": spread(min(steps), max(steps)),
        "Tokens": str(document.num_tokens),
        "Licence": "CC0-1.0",
        "Source": "red.jsonl",
    }
    assert_exposures(app, document)
    assert f"treering trace --document {name}" in texts(app)


def test_a_pattern_over_sources_shows_some_and_counts_all(audited):
    found = trace_documents(audited, [Selector("source", "blue*")], limit=3)
    app = page("trace", by="source", source="blue*", limit="3")
    assert table(app, "Licence")["Document"].tolist() == [f"blue:{each.document}" for each in found.documents]
    assert len(found.documents) == 3
    assert "3 of 200 documents" in texts(app)
    seen = sum(not each.clean for each in found.checkpoints)
    assert f"200 documents; {seen} of 2 checkpoints read a part" in texts(app)
    assert_checkpoints(app, found.checkpoints)
    assert "treering trace --source 'blue*' --limit 3" in texts(app)


def test_another_document_is_chosen(audited):
    found = trace_documents(audited, [Selector("source", "red*")], limit=20)
    app = page("trace", by="source", source="red*")
    assert_exposures(app, found.documents[0])
    app.session_state["documents source=red*"] = {"selection": {"rows": [7]}}
    app.run()
    assert_exposures(app, found.documents[7])


def test_licences_are_those_of_the_documents(audited):
    app = page("trace", by="licence")
    (box,) = (each for each in app.selectbox if each.label == "Licence")
    assert box.options == ["Apache-2.0", "CC0-1.0", "MIT"]
    box.select("MIT")
    submit(app)
    found = trace_documents(audited, [Selector("licence", "MIT")], limit=20)
    assert_checkpoints(app, found.checkpoints)
    assert table(app, "Licence")["Document"].tolist() == [f"green:{each.document}" for each in found.documents]


def test_a_document_that_nothing_read(audited):
    every = trace_documents(audited, [Selector("source", "blue*")]).documents
    document = next(each for each in every if not each.exposures)
    app = page("trace", document=f"blue:{document.document}")
    assert "1 document; none of 2 checkpoints read a part" in texts(app)
    assert "No step of any run read it." in texts(app)
    assert [list(verdict) for verdict in table(app, "Verdict")["Verdict"]] == [["✔ clean"], ["✔ clean"]]


@pytest.mark.usefixtures("audited")
def test_what_cannot_be_traced_says_why():
    app = page("trace", document="red:nothing")
    assert "no document of a corpus at hand is meant by red:nothing" in app.code[0].value
    app = page("trace", document="nonsense")
    assert [warning.value for warning in app.warning] == ["This cannot be traced."]
    expected = "CORPUS:ID, CORPUS:#NUMBER, source=PATTERN or licence=NAME"
    assert app.code[0].value == f"documents: found 'nonsense', expected {expected}"
    assert "CORPUS:ID" in texts(page("trace"))


def test_what_is_not_at_hand_is_named(audited, run):
    shutil.rmtree(audited.corpus("green"))
    app = page("trace", document="red:red-3")
    found = trace_documents(audited, [Selector.parse("red:red-3")])
    assert "Not looked into" in texts(app)
    assert all(text.replace("`", "") in texts(app) for text in found.unanswered)
    assert "corpus green" in found.unanswered[0]
    shutil.rmtree(run.path)
    app = page("trace", document="red:red-3")
    assert "1 document; no checkpoint in any run yet" in texts(app)


@pytest.mark.slow
def test_a_text(indexed):
    project, _run = indexed
    read = trace_documents(project, [Selector("source", "*")]).documents
    document = next(each for each in read if any(exposure.start == 0 for exposure in each.exposures))
    (whole,) = Detokenizer(project.tokenizer).documents(Corpus.open(project.corpus(document.corpus)), [document.number])
    text = " ".join(whole.split()[:16])
    found = trace_text(project, text)
    app = page("trace", by="text")
    app.text_area[0].set_value(text)
    submit(app)
    assert_checkpoints(app, found.checkpoints)
    (row,) = table(app, "Holds").to_dict("records")
    (match,) = found.matches
    assert match.match.exact
    assert (row["Holds"], row["Document"]) == ("the whole text", f"{document.corpus}:{document.document}")
    assert row["At tokens"] == ", ".join(f"{start} to {end}" for start, end in match.match.spans)
    assert match.document.exposures
    assert_exposures(app, match.document)
    assert f"treering trace --text /dev/stdin <<'END'\n{text}\nEND" in texts(app)

    app.text_area[0].set_value(f"{text} and nine words more that stand in no document")
    submit(app)
    assert table(app, "Holds")["Holds"].tolist() == [f"{match.match.ngrams} of 13 runs"]

    app.text_area[0].set_value("too short")
    submit(app)
    assert "text: found 2 words, expected at least 13" in texts(app)


def test_a_text_without_an_index_names_the_command(audited):
    app = page("trace", by="text")
    app.text_area[0].set_value("one two three four five six seven eight nine ten eleven twelve thirteen")
    submit(app)
    assert "This cannot be traced." in texts(app)
    assert "treering index" in texts(app)
    assert not audited.index.exists()
